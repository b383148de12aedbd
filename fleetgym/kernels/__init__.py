"""All compiled code: plain functions over NumPy arrays that trust their input."""
