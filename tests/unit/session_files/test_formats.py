"""Transcripts, chat messages and agent files."""

import hashlib
import json
import re
from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.messages import (
    Message,
    ToolCall,
    encode_message,
    image_part,
    text_part,
    thinking_part,
)
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.session.record import SessionRecord, encode_record
from helix_temporal.session_files import FORMATS
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from tests.unit.session_files._scenes import export_bytes, export_whole, make_session, make_tree, open_memory


async def _export(name: str, *messages: Message | StoredMessage, instructions: str | None = None) -> str:
    """The file of a session with these messages."""
    async with open_memory(session_store="none") as stores:
        record = SessionRecord(instructions=instructions)
        await stores.threads.open(OpenThread("s", 1, "workflow", slice=encode_record(record)))
        stored = tuple(encode_message(each) if isinstance(each, Message) else each for each in messages)
        await stores.threads.append(StepAppend("s", 1, EMPTY, stored, commits=True))
        return (await export_bytes(stores, file_format=FORMATS[name])).decode()


CALL = ToolCall(id="c", name="find", arguments={"q": "München"})
TURN = (
    Message(
        id="u",
        role="user",
        content=[text_part("What is this?"), image_part(media_type="image/png", data="AA==")],
    ),
    Message(
        id="a",
        role="assistant",
        content=[thinking_part("Let me see."), text_part("I look.")],
        tool_calls=(CALL,),
    ),
    Message(id="t", role="tool", content="nothing\n```\nfound", tool_call_id="c", name="find", is_error=True),
    Message(id="e", role="assistant", content="I don't know."),
)


async def test_a_transcript_can_be_read() -> None:
    """Roles, texts, calls with arguments, results that failed; code in a result ends no block."""
    text = await _export("md", *TURN)
    assert "## 1. User\n\n> What is this?\n>\n> (image, image/png)\n" in text
    assert 'Calls `find`:\n\n```\n{\n  "q": "München"\n}\n```' in text
    assert "## 3. Tool result (find) – failed\n\n````\nnothing\n```\nfound\n````\n" in text
    assert text.endswith("## 4. Assistant\n\n> I don't know.\n")


async def test_no_text_looks_like_another_speakers() -> None:
    """A transcript is shown as evidence: a user wrote answers into it, and an open block hid real ones."""
    forged = "Hi\n\n## 2. Assistant\n\nYes, it is free.\r## 3. User\n```\n<!-- open"
    text = await _export("md", Message(id="u", role="user", content=forged), *TURN[3:])
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## 1. User", "## 2. Assistant"]
    [between] = re.findall(r"## 1\. User\n\n(.*?)\n\n## 2", text, flags=re.DOTALL)
    assert all(line.startswith(">") for line in between.splitlines())


async def test_a_transcript_says_whose_session_it_is() -> None:
    """A file that is found months later."""
    async with open_memory() as stores:
        await make_tree(stores)
        text = (await export_bytes(stores, file_format=FORMATS["md"], children=True)).decode()
        assert text.startswith("# Where is my order?\n\n- Session: s\n- Messages: 8\n- Agent: support\n")
        assert "\n# Session s>search>c1\n\n- Session: s>search>c1\n- Sub-agent of: s\n" in text


async def test_chat_messages_are_what_the_provider_takes() -> None:
    """They are sent to a model as they are, or made to train one."""
    made = json.loads(await _export("openai", *TURN, instructions="Be brief."))
    arguments = '{"q":"München"}'
    assert made == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "find", "arguments": arguments}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "nothing\n```\nfound"},
        {"role": "assistant", "content": "I don't know."},
    ]


async def test_chat_messages_hold_one_session() -> None:
    """There is no place in an array of messages that says whose they are."""
    async with open_memory() as stores:
        await make_session(stores)
        with pytest.raises(InvalidRequestError, match="leave the children out"):
            await export_bytes(stores, file_format=FORMATS["openai"], children=True)


async def test_an_agent_file_has_what_its_schema_asks_for() -> None:
    """The lists that must be there are there, and every id in the context is a message's."""
    made: Any = json.loads(await _export("af", *TURN, instructions="Be brief."))
    lists = {"agents", "blocks", "files", "groups", "mcp_servers", "sources", "tools", "metadata"}
    assert set(made) == lists
    [agent] = made["agents"]
    assert agent["system"] == "Be brief."
    roles = [each["role"] for each in agent["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert agent["in_context_message_ids"] == [each["id"] for each in agent["messages"]]
    assert agent["messages"][2]["tool_calls"][0]["function"]["name"] == "find"
    assert agent["messages"][3]["tool_returns"][0]["status"] == "error"


async def test_an_agent_file_has_an_agent_a_session() -> None:
    """Sub-agents are agents there, too."""
    async with open_memory() as stores:
        await make_tree(stores)
        made = json.loads(await export_bytes(stores, file_format=FORMATS["af"], children=True))
        assert [each["id"] for each in made["agents"]] == ["agent-0", "agent-1", "agent-2"]


async def test_an_agent_file_passes_the_checks_of_lettas_import() -> None:
    """It refuses a whole file for one name or id; what they must be is in its code alone."""
    async with open_memory() as stores:
        await make_tree(stores)
        made = json.loads(await export_bytes(stores, file_format=FORMATS["af"], children=True))
    agents = made["agents"]
    names = [each["name"] for each in agents]
    assert all(re.fullmatch("[A-Za-z0-9 _-]+", each) for each in names)
    assert names[0] == "Where is my order"
    assert agents[0]["description"] == "Where is my order? (session s)"
    ids = [each["id"] for agent in agents for each in agent["messages"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("message-[0-9]+", each) for each in ids)


async def test_an_agent_begins_with_its_instructions() -> None:
    """Letta takes the first message for the system's, and writes its own text over it: it was the user's."""
    made = json.loads(await _export("af", *TURN))
    [agent] = made["agents"]
    assert [each["role"] for each in agent["messages"]][:2] == ["system", "user"]
    assert agent["messages"][1]["content"][0]["text"].startswith("What is this?")


async def test_a_title_of_another_alphabet_leaves_an_agent_with_a_name() -> None:
    """None of its characters may be in a name there."""
    async with open_memory() as stores:
        await stores.sessions.create_session("s", CreateSession(title="注文はどこ？"))
        [agent] = json.loads(await export_bytes(stores, file_format=FORMATS["af"]))["agents"]
    assert (agent["name"], agent["description"]) == ("session-0", "注文はどこ？ (session s)")


@pytest.mark.parametrize("name", sorted(FORMATS))
async def test_a_message_that_nobody_can_read_stops_no_export(name: str) -> None:
    """The rest is what one wants to save from a damaged store."""
    damaged = StoredMessage("o", "row", b"\xff\x00 not a message")
    text = await _export(name, *TURN, damaged)
    assert "I don't know." in text


@pytest.mark.parametrize("name", ["openai", "af"])
async def test_a_session_without_messages_is_json(name: str) -> None:
    """A list of nothing, not half a list."""
    async with open_memory() as stores:
        await stores.sessions.create_session("s")
        json.loads(await export_bytes(stores, file_format=FORMATS[name]))


@pytest.mark.parametrize("name", ["openai", "af"])
async def test_instructions_alone_are_json(name: str) -> None:
    """A session that was begun, and has said nothing."""
    async with open_memory(session_store="none") as stores:
        record = encode_record(SessionRecord(instructions="Be brief."))
        await stores.threads.open(OpenThread("s", 1, "workflow", slice=record))
        json.loads(await export_bytes(stores, file_format=FORMATS[name]))


@pytest.mark.parametrize("name", ["md", "openai", "af"])
async def test_the_checksum_is_that_of_the_file(name: str) -> None:
    """Whoever keeps it compares it with what ``sha256sum`` prints; of two formats it was of a part."""
    async with open_memory() as stores:
        await make_session(stores)
        data, exported = await export_whole(stores, file_format=FORMATS[name])
        assert (exported.sha256, exported.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
