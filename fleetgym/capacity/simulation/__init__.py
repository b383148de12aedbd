"""Simulate a window request by request, and compare the result with the closed form."""
