"""What people see of sessions, read from the stores without a worker: for the command line and the pages."""

from helix_temporal.views.sessions import SessionViews

__all__ = ["SessionViews"]
