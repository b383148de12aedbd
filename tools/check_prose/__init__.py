"""How long sentences are, by page, and ceilings that may only fall."""
