"""One protocol per feature."""
