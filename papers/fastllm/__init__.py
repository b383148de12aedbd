"""FastLLM's evaluation on fresh instances in, a page with published and measured numbers side by side out."""
