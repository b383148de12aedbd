"""Repeat the evaluation of Jiang et al. (ICML 2025): `python -m fleetgym.papers run jiang`."""
