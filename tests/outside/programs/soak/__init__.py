"""One worker under constant load for long: ``python -m soak --sessions 100 --minutes 30``."""
