"""All compiled code: plain functions that take NumPy arrays, trust them, and return arrays or numbers."""
