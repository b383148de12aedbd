"""Make the tables that ship in ``fleetgym/data``; ``python -m tools.make_data`` runs it."""
