"""Tools that make, check and measure what the project ships."""
