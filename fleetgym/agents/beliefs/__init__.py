"""What may come, given what was seen: one class for each kind of process that an instance may name."""
