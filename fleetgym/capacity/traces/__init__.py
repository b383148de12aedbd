"""Import traces of requests: read, sort into workloads, fit demand, price, and write instances."""

from fleetgym.capacity.traces.importing import ImportedTrace as ImportedTrace
from fleetgym.capacity.traces.importing import import_trace as import_trace
