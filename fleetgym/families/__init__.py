"""Make the instances of each family from a seed; `fleetgym.families.generate` is the entry point."""
