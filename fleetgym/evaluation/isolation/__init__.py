"""Run agents in separate processes: the agent protocol, the sandbox of official runs, and their CPU budget."""
