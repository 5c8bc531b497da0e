"""What a pattern matches is nowhere in a redacted file, which is still a session."""

import asyncio
import re
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.messages import Message, ToolCall, encode_message, image_part, text_part
from helix_temporal.models.states import CreateSession, ErrorInfo
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.models.usage import CustomUsageEntry, ToolUsageEntry, UsageSource
from helix_temporal.session.record import SessionRecord, encode_record
from helix_temporal.session_files import FORMATS, Redaction
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from tests.unit.session_files._scenes import (
    export_bytes,
    export_whole,
    import_bytes,
    make_session,
    make_tree,
    open_memory,
)

MAIL: Final = "ann.lee@example.com"
PATTERN: Final = r"[\w.]+@example\.com"
ID: Final = f"chat of {MAIL}"


async def _make_session(stores: Backends) -> None:
    """A session that has the address in everything that can hold a text."""
    await stores.sessions.create_session(
        ID,
        CreateSession(
            agent_type=f"agent of {MAIL}",
            user_id=MAIL,
            title=f"Mail to {MAIL}",
            custom_state={MAIL: {"deep": [MAIL, 1]}, "key": f"{MAIL} {MAIL}"},
            tags=(MAIL, "vip"),
            metadata={MAIL: MAIL},
        ),
    )
    record = SessionRecord(instructions=f"You serve {MAIL}.", values={MAIL: MAIL}, metadata={MAIL: MAIL})
    await stores.threads.open(OpenThread(ID, 1, "workflow", slice=encode_record(record)))
    messages = [encode_message(each) for each in _make_messages()]
    opaque = StoredMessage("o", f"row of {MAIL}", f"\xff raw row: {MAIL}".encode("latin-1"))
    await stores.threads.append(StepAppend(ID, 1, EMPTY, (*messages, opaque), commits=True))
    await stores.sessions.start_run(ID, NewRun(run_id=f"run of {MAIL}", workflow_id=MAIL))
    error = ErrorInfo(type="Error", message=f"{MAIL} was refused")
    change = RunChange(status=RunStatus.FAILED, error=error, completion_reason=MAIL)
    await stores.sessions.update_run(ID, f"run of {MAIL}", change)
    source = UsageSource(type="tool", name=MAIL)
    await stores.usage.record_entry(
        ToolUsageEntry(id=MAIL, session_id=ID, timestamp=1, tool_name=MAIL, error=MAIL, source=source)
    )
    await stores.usage.record_entry(
        CustomUsageEntry(id="x", session_id=ID, timestamp=1, metric=MAIL, key=MAIL)
    )


def _make_messages() -> list[Message]:
    call = ToolCall(id=f"call {MAIL}", name="find_user", arguments={MAIL: [MAIL, {"to": MAIL}]})
    parts = [text_part(f"Here is {MAIL}"), image_part(url=f"https://example.com/{MAIL}.png")]
    return [
        Message(id=f"m of {MAIL}", role="user", content=parts, metadata={"from": MAIL, MAIL: 1}),
        Message(id="a", role="assistant", tool_calls=(call,), provider={"raw": f'{{"to":"{MAIL}"}}'}),
        Message(id="t", role="tool", content=MAIL, tool_call_id=call.id, name=MAIL, is_error=True),
        Message(id="f", role="foreign", format="other/1", content=orjson.dumps({"x": MAIL}).decode()),
    ]


@pytest.mark.parametrize("name", sorted(FORMATS))
async def test_what_matches_is_nowhere_in_the_file(name: str) -> None:
    """One place that was forgotten is a leak."""
    async with open_memory() as source:
        await _make_session(source)
        data = await export_bytes(source, ID, file_format=FORMATS[name], redaction=Redaction([PATTERN]))
        assert not re.search(PATTERN, data.decode())
        assert b"ann.lee" not in data
        assert b"[redacted]" in data


async def test_nor_in_the_bytes_that_are_no_message() -> None:
    """They stand in the file in base64, where no search finds them."""
    async with open_memory() as source, open_memory() as target:
        await _make_session(source)
        data = await export_bytes(source, ID, redaction=Redaction([PATTERN]))
        done = await import_bytes(target, data)
        facts = await target.hot.read_snapshot(done.session_id, 0)
        assert facts is not None
        assert facts.messages[-1].body == b"\xff raw row: [redacted]"


async def test_a_redacted_file_says_so_and_is_a_session() -> None:
    """It is what is sent with a bug report, and who gets it wants to look at it."""
    async with open_memory() as source, open_memory() as target:
        await _make_session(source)
        data, exported = await export_whole(source, ID, redaction=Redaction([PATTERN]))
        assert exported.redacted
        assert orjson.loads(data.split(b"\n")[0])["redacted"] is True
        imported = await import_bytes(target, data)
        assert (imported.redacted, imported.session_id) == (True, "redacted-1")
        state = await target.sessions.load_state("redacted-1")
        assert state is not None
        assert state.title == "Mail to [redacted]"


async def test_ids_stay_one_id_wherever_they_stand() -> None:
    """A call and its result, a session and its sub-agent's, belong together afterwards as well."""
    async with open_memory() as source, open_memory() as target:
        await make_tree(source, "ann@example.com")
        data = await export_bytes(source, "ann@example.com", children=True, redaction=Redaction(["ann@"]))
        await import_bytes(target, data)
        refs = await target.sessions.list_sub_session_refs("redacted-1")
        assert [each.sub_session_id for each in refs] == ["redacted-1>search>c1"]
        assert await target.sessions.load_state("redacted-1>search>c1>read") is not None


async def test_numbers_of_the_application_are_looked_at() -> None:
    """A card's number is no text in JSON."""
    async with open_memory() as source:
        await source.sessions.create_session(
            "s", CreateSession(custom_state={"card": 4111111111111111, "n": 5})
        )
        data = await export_bytes(source, redaction=Redaction([r"\b4\d{15}\b"]))
        assert b"4111111111111111" not in data
        assert b'"custom_state":{"card":"[redacted]","n":5}' in data


async def test_several_patterns_are_all_taken_out() -> None:
    """--redact is repeatable."""
    async with open_memory() as source:
        await make_session(source)
        data = await export_bytes(source, redaction=Redaction(["order", "gold"]))
        assert not re.search(b"order|gold", data)


async def test_without_a_match_only_the_header_differs() -> None:
    """Redaction touches nothing else."""
    async with open_memory() as source:
        await make_session(source)
        plain = await export_bytes(source)
        redacted = await export_bytes(source, redaction=Redaction(["no such text"]))
        assert redacted.split(b"\n")[1:] == plain.split(b"\n")[1:]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("(", "no regular expression"), ("x*", "an empty text"), ("red", "what stands in place")],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str, said: str) -> None:
    """A typing error would leave everything in, or take everything out."""
    with pytest.raises(InvalidRequestError, match=said):
        Redaction([pattern])


_text = st.text(st.sampled_from("ab@x. "), max_size=12)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_text, _json, max_size=4))
def test_no_key_and_no_value_keeps_what_matches(state: Any) -> None:
    """Also where two keys become the same: both values stay."""

    async def check() -> None:
        async with open_memory() as source:
            await source.sessions.create_session("s", CreateSession(custom_state=state))
            data = await export_bytes(source, redaction=Redaction(["a@+b?"]))
            shown = orjson.loads(data.split(b"\n")[1])["session"]["state"].get("custom_state", {})
            assert not re.search("a@", orjson.dumps(shown).decode())
            assert len(shown) == len(state)

    asyncio.run(check())
