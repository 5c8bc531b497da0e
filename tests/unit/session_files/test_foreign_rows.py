"""Sessions of frameworks as transcripts, chat messages and agent files: what was said, and no raw rows."""

import json
from typing import Any

import pytest

from helix_temporal.models.messages import encode_message
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session_files import FORMATS, Redaction
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from tests.unit.models._foreign_rows import CONVERSATIONS
from tests.unit.models.test_foreign_rows import messages_of
from tests.unit.session_files._scenes import export_bytes, open_memory


async def export_rows(name: str, conversation: str, *patterns: str) -> str:
    """The file of a session that a framework wrote."""
    form, rows = CONVERSATIONS[conversation]
    stored = tuple(map(encode_message, messages_of(form, [each.row for each in rows])))
    async with open_memory(session_store="none") as stores:
        await stores.threads.open(OpenThread("s", 1, "workflow"))
        await stores.threads.append(StepAppend("s", 1, EMPTY, stored, commits=True))
        redaction = Redaction(patterns) if patterns else None
        return (await export_bytes(stores, file_format=FORMATS[name], redaction=redaction)).decode()


def list_spoken(messages: list[Any]) -> list[tuple[str, str]]:
    """Who says one of the words of the conversations."""
    texts = [
        (each["role"], part["text"])
        for each in messages
        if each["role"] != "tool"
        for part in _list_parts(each["content"])
    ]
    lines = [(role, text.partition("\n")[0]) for role, text in texts]
    return [each for each in lines if each[1] in {"Look", "Done.", "And now?", "Bye."}]


def _list_parts(content: Any) -> list[dict[str, str]]:
    texts = [{"text": content}] if isinstance(content, str) else content or []
    return [each for each in texts if "text" in each]


SPOKEN = [("user", "Look"), ("assistant", "Done."), ("user", "And now?"), ("assistant", "Bye.")]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_chat_messages_say_who_spoke(conversation: str) -> None:
    """They were raw rows, each of them a user's: a model would be trained to speak JSON to itself."""
    made = json.loads(await export_rows("openai", conversation))
    assert list_spoken(made) == SPOKEN
    _, rows = CONVERSATIONS[conversation]
    names = {call["function"]["name"] for each in made for call in each.get("tool_calls", [])}
    assert names - {"unnamed"} == {"look"}
    assert sum(len(each.get("tool_calls", [])) for each in made) == sum(len(each.calls) for each in rows)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_each_answer_with_calls_is_followed_by_their_results(conversation: str) -> None:
    """Chat Completions refuses any other order, and a call without its result."""
    made = json.loads(await export_rows("openai", conversation))
    asking = [at for at, each in enumerate(made) if each.get("tool_calls")]
    asked = [[call["id"] for call in made[at]["tool_calls"]] for at in asking]
    following = [made[at + 1 : at + 1 + len(ids)] for at, ids in zip(asking, asked, strict=True)]
    answered = [[each.get("tool_call_id") for each in results] for results in following]
    assert [sorted(each) for each in answered] == [sorted(each) for each in asked]
    assert sum(each["role"] == "tool" for each in made) == sum(map(len, asked))


@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_a_transcript_has_no_raw_rows(conversation: str) -> None:
    """It is for people.

    One row of the agent framework stays raw: its call stands in a question for approval alone.
    """
    text = await export_rows("md", conversation)
    assert text.count("Other format") == (1 if conversation == "agent-framework" else 0)
    assert [text.index(word) for word in ("Look", "Done.", "And now?", "Bye.")] == sorted(
        text.index(word) for word in ("Look", "Done.", "And now?", "Bye.")
    )
    assert "Calls `look`:" in text


@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_an_agent_file_names_the_messages_that_it_has(conversation: str) -> None:
    """They are not as many as there are rows."""
    [agent] = json.loads(await export_rows("af", conversation))["agents"]
    assert agent["in_context_message_ids"] == [each["id"] for each in agent["messages"]]
    assert list_spoken(agent["messages"]) == SPOKEN


@pytest.mark.parametrize("name", ["md", "openai", "af"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
async def test_rows_are_redacted(name: str, conversation: str) -> None:
    """What is read of a row is taken out as if the message were ours; so are ids, and they still match."""
    text = await export_rows(name, conversation, "Done", "look")
    assert "Done" not in text
    assert "look" not in text
    assert "[redacted]" in text


@pytest.mark.parametrize("name", ["md", "openai", "af"])
@pytest.mark.parametrize("depth", [63, 64, 65, 66, 900])
@pytest.mark.parametrize("form", [('{"a":', "}"), ("[", "]")])
async def test_deep_arguments_stop_no_export(name: str, depth: int, form: tuple[str, str]) -> None:
    """A framework stores what a model asked for, and a message of ours may not be nested so deeply."""
    deep = form[0] * depth + "1" + form[1] * depth
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": deep, "id": "fc_a"}
    rows = [{"role": "user", "content": "Look"}, call]
    stored = tuple(map(encode_message, messages_of("openai-agents/1", rows)))
    async with open_memory(session_store="none") as stores:
        await stores.threads.open(OpenThread("s", 1, "workflow"))
        await stores.threads.append(StepAppend("s", 1, EMPTY, stored, commits=True))
        text = (await export_bytes(stores, file_format=FORMATS[name])).decode()
    assert form[0].replace('"', "") * 20 in "".join(each for each in text if each not in ' "\\\n')
