"""Read, check and write JSON, TOML and Markdown files: their schema, their units, and the errors of bad input."""
