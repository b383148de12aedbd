"""Traces of requests in, instances out: reading, sorting into workloads, fitting demand, pricing, writing."""

from fleetgym.capacity.traces.importing import ImportedTrace as ImportedTrace
from fleetgym.capacity.traces.importing import import_trace as import_trace
