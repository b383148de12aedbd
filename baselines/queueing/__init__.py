"""Size fleets by queueing theory (Chen et al., inference-fleet-sim): one planner and its compiled loops."""
