"""Reference agents and planners: one readable file per published method, written against the public API only."""
