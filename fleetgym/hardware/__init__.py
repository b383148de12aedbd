"""From GPUs and models to configurations, and from those to what they do to requests."""
