"""The families of the standard set: how instances are made from a seed (entry point: `fleetgym.families.generate`)."""
