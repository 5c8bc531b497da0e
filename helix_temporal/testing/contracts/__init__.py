"""Contract classes: bind a backend by a class line and a fixture."""
