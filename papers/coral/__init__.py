"""Repeat the evaluation of Coral (Mei et al., 2026): `python -m fleetgym.papers run coral`."""
