"""Sizing fleets by queueing theory: token-length laws, service profiles and SLOs in; pools, plans and studies out."""
