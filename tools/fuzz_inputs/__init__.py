"""Fuzz every kind of file and every option that fleetgym reads."""
