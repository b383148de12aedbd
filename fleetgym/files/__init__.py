"""Files in and out: JSON, TOML and Markdown, the schema of what they hold, and the errors of what they do not."""
