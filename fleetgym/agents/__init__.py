"""Define agents and what they know: the view, forecasters and beliefs, wrappers of planners, and the registry."""
