"""Sessions of the OpenAI Agents SDK: ``Runner.run(agent, text, session=HelixSession("user-42", store))``.

Inside a workflow (``temporalio-openai-agents``) it is `HelixWorkflowSession`, with `HelixOpenAIPlugin` on the
client or the worker, behind ``OpenAIAgentsPlugin``.
"""

from typing import TYPE_CHECKING, Any, cast

from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from helix_temporal.frameworks.given_stores import check_sessions
from helix_temporal.frameworks.item_log import ItemLog
from helix_temporal.frameworks.openai_agents_store import ITEM_FORMAT, KIND, thread_of
from helix_temporal.frameworks.openai_agents_worker import HelixOpenAIPlugin
from helix_temporal.frameworks.openai_agents_workflow import ConversationPlace, HelixWorkflowSession
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.sessions import SessionStore

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

__all__ = ["ITEM_FORMAT", "ConversationPlace", "HelixOpenAIPlugin", "HelixSession", "HelixWorkflowSession"]


class HelixSession:
    """A `Session` of the OpenAI Agents SDK over a session store; several processes may share one.

    A batch of items is one atomic append, and one that is repeated since a store did not answer stands once.
    Of two that pop at once each gets another item.

    Args:
        session_id: The conversation's id; the store has it as ``openai-agents/<session_id>``.
        store: `Backends.sessions`, or another session store.
        session_settings: As every session of the SDK: ``limit`` is how many items a run is given.
        user_id: Whose conversation it is, for lists; stored when it begins.

    Raises:
        InvalidIdError: The id is empty, or none that a store can keep.
    """

    def __init__(
        self,
        session_id: str,
        store: SessionStore,
        *,
        session_settings: "SessionSettings | dict[str, Any] | None" = None,
        user_id: str | None = None,
    ) -> None:
        self.session_id = validate_id(session_id, "session id")
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        create = CreateSession(agent_type=KIND, user_id=user_id)
        check_sessions(store)
        self._log = ItemLog(store, thread_of(session_id), ITEM_FORMAT, create)

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The newest ``limit`` items, or as many as the settings say, oldest first; all without either."""
        newest = resolve_session_limit(limit, self.session_settings)
        return cast("list[TResponseInputItem]", await self._log.read_items(newest))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append the items, all or none."""
        await self._log.append_items(items)

    async def pop_item(self) -> "TResponseInputItem | None":
        """Take the newest item back; None if there is none."""
        return cast("TResponseInputItem | None", await self._log.take_newest())

    async def clear_session(self) -> None:
        """Take all items back; the session goes on under its id."""
        await self._log.clear_items()
