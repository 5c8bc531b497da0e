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
from helix_temporal.inspector.pages.details import (
    show_state,
    show_storage,
    show_timeline,
    show_tree,
    show_usage,
)
from helix_temporal.inspector.pages.maintenance import show_maintenance
from helix_temporal.inspector.pages.sessions import open_session, show_sessions, show_waiting

_ONE: Final = "/sessions/{session_id:helix_id}"

ROUTES: Final = (
    PageRoute("/", "sessions", show_sessions),
    PageRoute("/open", "open", open_session),
    PageRoute("/calls", "calls", show_calls),
    PageRoute("/waiting", "waiting", show_waiting),
    PageRoute("/maintenance", "maintenance", show_maintenance),
    PageRoute(_ONE, "conversation", show_conversation),
    PageRoute(f"{_ONE}/turns/{{number:int}}", "turn", show_turn),
    PageRoute(f"{_ONE}/messages/{{position:int}}", "message", show_message),
    PageRoute(f"{_ONE}/context/{{position:int}}", "context", show_context),
    PageRoute(f"{_ONE}/timeline", "timeline", show_timeline),
    PageRoute(f"{_ONE}/state", "state", show_state),
    PageRoute(f"{_ONE}/usage", "usage", show_usage),
    PageRoute(f"{_ONE}/tree", "tree", show_tree),
    PageRoute(f"{_ONE}/storage", "storage", show_storage),
)
