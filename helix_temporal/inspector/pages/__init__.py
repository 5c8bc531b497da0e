"""The pages: their paths, and what each shows."""

from typing import Final

from helix_temporal.inspector.page_request import PageRoute
from helix_temporal.inspector.pages.calls import show_calls
from helix_temporal.inspector.pages.conversation import (
    show_context,
    show_conversation,
    show_message,
    show_turn,
)
from helix_temporal.inspector.pages.maintenance import show_maintenance
from helix_temporal.inspector.pages.sessions import open_session, show_sessions, show_waiting
from helix_temporal.inspector.pages.state import show_state
from helix_temporal.inspector.pages.storage import show_storage
from helix_temporal.inspector.pages.timeline import show_timeline
from helix_temporal.inspector.pages.tree import show_tree
from helix_temporal.inspector.pages.usage import show_usage

_ONE: Final = "/sessions/{session_id:helix_id}"

ROUTES: Final = (
    PageRoute("/", "sessions", show_sessions),
    PageRoute("/open", "open", open_session),
    PageRoute("/calls", "calls", show_calls),
    PageRoute("/waiting", "waiting", show_waiting),
    PageRoute("/maintenance", "maintenance", show_maintenance),
    PageRoute(_ONE, "conversation", show_conversation),
    PageRoute(f"{_ONE}/turns/{{number:helix_number}}", "turn", show_turn),
    PageRoute(f"{_ONE}/messages/{{position:helix_number}}", "message", show_message),
    PageRoute(f"{_ONE}/context/{{position:helix_number}}", "context", show_context),
    PageRoute(f"{_ONE}/timeline", "timeline", show_timeline),
    PageRoute(f"{_ONE}/state", "state", show_state),
    PageRoute(f"{_ONE}/usage", "usage", show_usage),
    PageRoute(f"{_ONE}/tree", "tree", show_tree),
    PageRoute(f"{_ONE}/storage", "storage", show_storage),
)
