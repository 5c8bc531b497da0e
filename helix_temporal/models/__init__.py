"""What is sent and stored: one module per feature."""
