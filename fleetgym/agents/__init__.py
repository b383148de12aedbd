"""What an agent is, what it may know, and how it is found by its name."""
