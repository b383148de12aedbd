"""Reproduce what inference-fleet-sim (2026) prints: `python -m fleetgym.papers run inference_fleet_sim`."""
