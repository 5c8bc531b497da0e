"""What a worker has for conversations of pydantic-ai in workflows: plugin, activities, interceptor."""

import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelRequest, repair_messages
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from helix_temporal.activities._runtime import application_error, raise_application_errors
from helix_temporal.errors import HelixError, InvalidReferenceError
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore
from helix_temporal.frameworks.pydantic_ai_references import (
    EntryReference,
    EntryReferenceSigner,
    find_reference,
)
from helix_temporal.frameworks.pydantic_ai_workflow import (
    CONFLICT,
    LoadConversationInput,
    SaveConversationInput,
    WorkflowConversation,
)
from helix_temporal.frameworks.store_plugin import (
    HEARTBEAT_EVERY,
    StorePlugin,
    read_reference_keys,
    with_heartbeats,
)
from helix_temporal.settings import Settings

if TYPE_CHECKING:
    from helix_temporal.backends import Backends

_MODEL_ACTIVITIES: Final = ("__model_request", "__model_request_stream", "__model_compact_messages")
"""How names of pydantic-ai's activities end that are given messages."""


class HelixPydanticAIPlugin(StorePlugin):
    """Conversations of `load_conversation` in our stores; stands beside ``PydanticAIPlugin``.

    A guest: it looks at the model activities of pydantic-ai, and there only at messages that are references.

    Args:
        settings: Where the stores are; ``reference_key`` signs references.
        backends: Stores from elsewhere, as `helix_temporal.Backends`; whoever made them closes them.

    Raises:
        InvalidConfigError: There is no ``reference_key``.
    """

    def __init__(self, settings: Settings, *, backends: "Backends | None" = None) -> None:
        self.signer = EntryReferenceSigner(*read_reference_keys(settings))
        self._store: HelixConversationStore | None = None
        mine = ConversationActivities(self)
        super().__init__(
            "helix.HelixPydanticAIPlugin",
            settings,
            backends,
            activities=[mine.load, mine.save],
            interceptors=[_ConversationInterceptor(self)],
        )

    @property
    def store(self) -> HelixConversationStore:
        """The conversations, whose stores are opened by the first call that needs them."""
        if self._store is None:
            self._store = HelixConversationStore(self.backends.sessions)
        return self._store

    def forget_stores(self) -> None:
        """See `StorePlugin.forget_stores`."""
        self._store = None


class _ConversationInterceptor(Interceptor):
    def __init__(self, plugin: HelixPydanticAIPlugin) -> None:
        self._plugin = plugin

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _ConversationModelActivities(next, self._plugin)


class _ConversationModelActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, plugin: HelixPydanticAIPlugin) -> None:  # noqa: A002
        super().__init__(next)
        self._plugin = plugin

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        """Give a model the messages that references stand for; any other activity passes as it is."""
        if activity.info().activity_type.endswith(_MODEL_ACTIVITIES):
            try:
                args = [await self._expand(each) for each in input.args]
            except HelixError as error:
                # The cause would carry its traceback, and with it whatever a driver put into it.
                raise application_error(error) from None
            input = dataclasses.replace(input, args=args)  # noqa: A001
        return await self.next.execute_activity(input)

    async def _expand(self, argument: Any) -> Any:
        messages = getattr(argument, "messages", None)
        if not isinstance(messages, list) or not any(find_reference(each) for each in messages):
            return argument
        expanded: list[Any] = []
        for message in messages:
            text = find_reference(message)
            expanded += [message] if text is None else await self._read_history(text)
        # As the agent does it in the workflow, where it has not seen them.
        return dataclasses.replace(argument, messages=repair_messages(expanded, repair_last_response=False))

    async def _read_history(self, text: str) -> list[Any]:
        reference = self._plugin.signer.verify(text, activity.info().workflow_id or "")
        entries = await self._plugin.store.read_history_at(reference.entry_id, reference.place)
        if any(find_reference(each.message) for each in entries):
            raise InvalidReferenceError("a conversation holds a message that is a reference itself")
        return [each.message for each in entries]


class ConversationActivities:
    """Activities ``helix.pydantic_ai.*``, which load and save conversations, and issue references."""

    def __init__(self, plugin: HelixPydanticAIPlugin) -> None:
        self._plugin = plugin

    @activity.defn(name="helix.pydantic_ai.load")
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def load(self, request: LoadConversationInput) -> WorkflowConversation:
        """The conversation, or a new one."""
        record = await self._plugin.store.read_record(request.conversation_id)
        if record is None or (request.scope is not None and record.scope != request.scope):
            return _encode_place(Conversation(conversation_id=request.conversation_id))
        return await self._make_place(record, request.newest)

    @activity.defn(name="helix.pydantic_ai.save")
    @raise_application_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def save(self, request: SaveConversationInput) -> WorkflowConversation:
        """Append new messages; a repeat finds them there."""
        try:
            record = await self._write(request)
        except ConversationConflict as error:
            raise ApplicationError(str(error), type=CONFLICT, non_retryable=True) from None
        return await self._make_place(record, request.newest)

    async def _write(self, request: SaveConversationInput) -> ConversationRecord:
        conversation = ConversationTypeAdapter.validate_python(request.conversation)
        conversation_id, store = conversation.conversation_id, self._plugin.store
        stored = await store.read_record(conversation_id)
        if stored is not None and request.scope is not None and stored.scope != request.scope:
            raise ConversationConflict(conversation_id)
        again = stored is not None and stored.revision == request.revision
        parent_id = None if stored is None or again else stored.head_id
        entries: list[ConversationEntry] = []
        for entry_id, message in zip(request.entry_ids, conversation.messages, strict=True):
            entries.append(ConversationEntry(id=entry_id, parent_id=parent_id, message=message))
            parent_id = entry_id
        record = ConversationRecord(
            conversation_id=conversation_id,
            head_id=stored.head_id if again and stored is not None else parent_id,
            usage=conversation.usage,
            deferred_tool_requests=conversation.deferred_tool_requests,
            scope=request.scope if stored is None else stored.scope,
            forked_from=None if stored is None else stored.forked_from,
            forked_at=None if stored is None else stored.forked_at,
            branches=[] if stored is None else list(stored.branches),
            revision=request.revision,
            updated_at=datetime.fromisoformat(request.updated_at),
        )
        await store.write_record(record, new_entries=entries, expected_revision=conversation.revision)
        return record

    async def _make_place(self, record: ConversationRecord, newest: int) -> WorkflowConversation:
        """The conversation as a workflow has it: a reference, and the messages that it wants as they are."""
        store = self._plugin.store
        wanted = max(newest, 2) if record.deferred_tool_requests is not None else newest
        tail = await store.read_history(record.head_id, limit=wanted) if wanted else []
        # The message that stands for the others is an answer: a request must follow.
        while tail and tail[0].parent_id is not None and not isinstance(tail[0].message, ModelRequest):
            tail = await store.read_history(record.head_id, limit=len(tail) + 1)
        before = tail[0].parent_id if tail else record.head_id
        conversation = Conversation(
            messages=[each.message for each in tail],
            usage=record.usage,
            conversation_id=record.conversation_id,
            deferred_tool_requests=record.deferred_tool_requests,
            revision=record.revision,
        )
        return _encode_place(conversation, None if before is None else await self._sign(before))

    async def _sign(self, entry_id: str) -> str:
        reference = EntryReference(entry_id, await self._plugin.store.find_place(entry_id))
        return self._plugin.signer.sign(reference, activity.info().workflow_id or "")


def _encode_place(conversation: Conversation, reference: str | None = None) -> WorkflowConversation:
    text = ConversationTypeAdapter.dump_python(conversation, mode="json")
    return WorkflowConversation(conversation=text, reference=reference)
