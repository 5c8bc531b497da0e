"""A clock for what is decided by the time."""


class Clock:
    """Milliseconds that pass when they are told to."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        """What time it is."""
        return self.now
