"""Sessions as a web page for people: an ASGI application.  Needs the extra ``inspector``."""

from helix_temporal.inspector.access import ACTIONS, Action, Authorise, LocalAccess, Viewer
from helix_temporal.inspector.app import create_inspector

__all__ = ["ACTIONS", "Action", "Authorise", "LocalAccess", "Viewer", "create_inspector"]
