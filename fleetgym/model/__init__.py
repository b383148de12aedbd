"""The problem: instances and scenarios, the processes that draw them, actions, and the costs of a window."""
