"""All that matters of a session in all stores, the same for two sessions with the same story."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from helix_temporal.backends import Backends
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.messages import Message
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import StepCommitted
from helix_temporal.session.record import SessionRecord
from tests.chaos._people import read_thread

_OWN_NAMES: Final = re.compile(r"#[0-9a-f]{16}|[A-Za-z0-9_-]{16}\.\d|missing-[0-9a-f]{32}")
"""Of model calls and answers, which are others in each attempt."""


async def shape_of(backends: Backends, name: str) -> str:
    """A session's thread, its state, runs, checkpoints and sub-agents, and what a page shows of it."""
    messages = await read_thread(backends, name)
    shape = {
        "thread": await _thread(backends, name, messages),
        "session": await _session(backends, name),
        "shown": await _shown(backends, name, messages),
    }
    return _OWN_NAMES.sub("#", json.dumps(shape, indent=0))


async def _thread(backends: Backends, name: str, messages: Sequence[Message]) -> Any:
    try:
        facts = await backends.threads.read_facts(name)
    except ThreadNotFoundError:
        return "not there"
    kept = SessionRecord.model_validate_json(facts.slice or b"{}")
    suspended = kept.suspended and (len(kept.suspended.calls), [each.at for each in kept.suspended.outcomes])
    # Two sessions with the same story do not begin at the same time.
    state = kept.model_dump(
        mode="json", exclude={"suspended", "answered", "taken_back", "usage", "at_work_since"}
    )
    return {
        "stands": [facts.head.position, facts.committed, facts.closed],
        "state": state,
        "suspended": suspended,
        "answered": sorted(each.outcome for each in kept.answered),
        "taken_back": [(each.id, each.to.position, len(each.messages)) for each in kept.taken_back],
        # Each call has its own price; how many there were is in the tokens of their answers.
        "answers_used": kept.usage.output_tokens,
        "messages": [f"{each.role} {each.text} {len(each.tool_calls)}" for each in messages],
    }


async def _session(backends: Backends, name: str) -> Any:
    store = backends.sessions
    state = await store.load_state(name)
    if state is None:
        return "not there"
    runs = (await store.list_runs(name)).items
    checkpoints = (await store.list_checkpoints(name)).items
    references = await store.list_sub_session_refs(name)
    return {
        "status": [state.status, state.failure_reason, state.step_count, state.head.position],
        "run": state.current_run_id,
        "values": state.custom_state,
        "of": [state.parent_session_id, state.root_session_id],
        "pending": sorted(
            [each.tool_name, each.kind, each.response is not None]
            for each in state.pending_client_tool_calls.values()
        ),
        "completed": sorted(each.outcome for each in state.completed_client_tool_calls.values()),
        "waits": state.suspension_context and state.suspension_context.kind,
        "children_wait": [each.agent_type for each in state.suspended_awaiting_children],
        "owners": sorted(state.client_tool_call_ownership.values()),
        "runs": [(each.run_id, each.status, each.step_count) for each in runs],
        "checkpoints": [each.head.position for each in checkpoints],
        "staged": len(await store.list_staged(name)),
        "sub_agents": sorted((each.agent_type, each.status) for each in references),
    }


async def _shown(backends: Backends, name: str, messages: Sequence[Message]) -> Any:
    """The answers that a page shows: where words are missing it reads the thread, as it is told to."""
    assert backends.streams is not None
    reader = await backends.streams.create_resumable_reader(name)
    info = await backends.streams.get_info(name)
    if reader is None or info is None or not info.last_sequence:
        return "nothing"
    view, characters = StreamView(), dict[str, int]()
    async for stored in reader:
        view.feed(stored)
        if isinstance(stored.chunk, StepCommitted) and stored.chunk.message_id:
            characters[stored.chunk.message_id] = stored.chunk.characters or 0
        if stored.sequence >= info.last_sequence:
            break
    await reader.aclose()
    texts = {each.id: each.text for each in messages}
    return [
        {
            "text": each.text
            if characters.get(each.message_id, len(each.text)) == len(each.text)
            else texts.get(each.message_id),
            "stands": each.committed,
            "tools": sorted((tool.name, tool.success) for tool in each.tools.values()),
        }
        for each in view.messages
    ]
