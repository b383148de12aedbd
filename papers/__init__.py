"""One folder per paper: its evaluation repeated, and the studies that only it needs."""
