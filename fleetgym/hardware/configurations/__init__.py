"""Enumerate the configurations that a model can run on: replicas of one GPU type, and templates of several."""
