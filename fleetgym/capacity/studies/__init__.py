"""Answer a fleet planner's questions, which `fleetgym study` prints: pools sized by queueing, and their cost."""
