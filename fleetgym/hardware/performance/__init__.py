"""How one deployment performs: delay models, measured rooflines, and laws of token lengths."""
