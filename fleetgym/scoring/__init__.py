"""From results to a table of scores: the formula, best-known costs and the search for better ones."""
