"""Score results: the formula, its statistics, best-known costs and the table."""
