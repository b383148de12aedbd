"""Search for cheaper episodes of tasks whose whole day is known, and propose them as best-known costs."""
