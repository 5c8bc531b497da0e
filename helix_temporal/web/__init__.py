"""Sessions over HTTP: an ASGI application with server-sent events.  Needs the extra ``web``."""

from helix_temporal.web.app import Authorise, create_sse_app

__all__ = ["Authorise", "create_sse_app"]
