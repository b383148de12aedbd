"""Reproduce what Jiang et al. (ICML 2025) print: `python -m fleetgym.papers.jiang`."""
