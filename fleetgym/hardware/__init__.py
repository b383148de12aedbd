"""Describe GPUs and models, the configurations that they form, and how fast these serve requests."""
