"""Play windows, solve the routing LP, size and price fleets: compiled functions over NumPy arrays, which they trust."""
