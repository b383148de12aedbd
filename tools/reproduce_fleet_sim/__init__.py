"""Reproduce what inference-fleet-sim (2026) prints: `python -m tools.reproduce_fleet_sim`."""
