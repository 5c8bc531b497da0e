"""Streams above the backends: what they are, and who writes and reads them."""
