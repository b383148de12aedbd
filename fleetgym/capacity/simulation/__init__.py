"""Request-level simulation: pools and requests in, the fate of every request, and what it says of a fleet, out."""
