"""Define the problem: instances, scenarios and the processes that draw them, actions, and the costs of a window."""
