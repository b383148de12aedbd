"""Model how one deployment performs: delays, rooflines, measured profiles, and distributions of token lengths."""
