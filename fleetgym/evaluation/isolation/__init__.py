"""Run agents in processes of their own: the agent protocol, the box of official runs, and their CPU budget."""
