"""A policy learned by MaskablePPO: one small network, shared by all slots, that changes a fleet replica by replica."""
