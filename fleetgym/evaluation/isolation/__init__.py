"""Agents kept apart from the run: official rules, the sandbox, its supervisor, and the messages between both."""
