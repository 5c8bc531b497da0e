"""What zeitlich wrote comes back as it was, and what we add to it is of a form that zeitlich reads."""

import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.adapters.zeitlich import convert_zeitlich_rows
from helix_temporal.coldtier.zeitlich_format import decode_snapshot, parse_written_snapshot
from helix_temporal.errors import LegacyWriterActiveError
from helix_temporal.models import messages
from helix_temporal.models.messages import Message, ToolCall, Usage, decode_message, encode_message
from helix_temporal.session.record import SessionRecord
from helix_temporal.testing.contracts._threads_base import Author
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier._v1_files import KEY, anthropic, body, google, lang_chain, packed, snapshot, text
from tests.unit.coldtier.test_v1 import blob, rows, tiers_with

ROWS = {"anthropic": anthropic, "googleGenAI": google, "langChain": lang_chain}
HALF = "\ud83d cut"


def nested(levels: int) -> Any:
    """An array in an array and so on."""
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


STATES: dict[str, Any] = {
    "half a pair": {"tasks": [], "custom": {"a": HALF, HALF: 1}},
    "NUL": {"tasks": [["t", {"subject": "a\0b"}]], "custom": {}},
    "1e20": {"tasks": [], "custom": {"n": 10**20, "m": -(10**20)}},
    "deep": {"tasks": [], "custom": {"tree": nested(80)}},
    "very deep": {"tasks": [], "custom": {"tree": nested(400)}},
    "too deep": {"tasks": [], "custom": {"tree": nested(700)}},
    "all": {"tasks": [], "custom": {"a": HALF, "b": nested(70), "c": 10**20, "d": {"e": "\0"}}},
}


async def stored(tiers: Tiers) -> bytes:
    """The snapshot as it lies there."""
    found = await tiers.bucket.get(KEY)
    assert found is not None
    return found.data


async def exported(tiers: Tiers, **options: Any) -> dict[str, Any]:
    """What an export writes."""
    await tiers.threads.export_v1("t", **options)
    fields: dict[str, Any] = json.loads(gzip.decompress(await stored(tiers)))
    return fields


# ---- what zeitlich wrote --------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATES)
async def test_a_state_that_no_store_can_hold_is_imported_and_comes_back(name: str) -> None:
    """JavaScript's strings and numbers are not ours; the session sees what is nearest."""
    data = snapshot([anthropic(0)], STATES[name])
    tiers = tiers_with(data)
    await tiers.threads.import_v1("t")
    facts = await tiers.threads.read_facts("t")
    values = SessionRecord.model_validate_json(facts.slice).values
    assert values.keys() == {"tasks", "custom"}
    await tiers.threads.export_v1("t")
    assert await stored(tiers) == data


async def test_what_a_session_changed_is_written_and_the_rest_stays() -> None:
    """Also beside values that we could not hold."""
    tiers = tiers_with(snapshot([anthropic(0)], STATES["all"]))
    author = Author(tiers.threads, "t")
    opened = await author.open()
    state = SessionRecord.model_validate_json(opened.header.slice)
    custom: Any = dict(state.values["custom"]) | {"new": 1}  # type: ignore[arg-type]
    changed = state.model_copy(update={"values": state.values | {"custom": custom}})
    await tiers.threads.save_slice("t", author.epoch, changed.model_dump_json().encode(), 1)
    written = await exported(tiers)
    assert written["state"] == {"tasks": [], "custom": STATES["all"]["custom"] | {"new": 1}}


@pytest.mark.parametrize("levels", [65, 400, 20_000])
@pytest.mark.parametrize("adapter", ROWS)
async def test_rows_of_any_depth_are_kept(adapter: str, levels: int) -> None:
    """They are read by whom they are for; what nobody can read is let alone."""
    row = ROWS[adapter](0)[:-1] + ',"deep":' + "[" * levels + "]" * levels + "}"
    data = snapshot([row, ROWS[adapter](1)])
    tiers = tiers_with(data)
    opened = await Author(tiers.threads, "t").open()
    assert opened.header.adapter == adapter
    assert await rows(Author(tiers.threads, "t")) == [row, ROWS[adapter](1)]
    await tiers.threads.export_v1("t")
    assert await stored(tiers) == data


def test_a_state_of_any_depth_is_read() -> None:
    """Also where the interpreter can just read it, and could not write it again a few calls deeper."""
    for levels in [*range(590, 610), *range(850, 1000), 5000]:
        tree = "[" * levels + "]" * levels
        data = f'{{"v":1,"messages":[],"dedupIds":[],"state":{{"tree":{tree}}}}}'.encode()
        assert decode_snapshot(data, "anthropic", "it").slice
        assert parse_written_snapshot(data, "it").state == f'{{"tree":{tree}}}'


async def test_each_row_names_its_own_adapter() -> None:
    """A thread may have gone on with another one; the newest row's is the thread's."""
    wanted = [anthropic(0), google(1), lang_chain(2)]
    tiers = tiers_with(snapshot(wanted))
    opened = await Author(tiers.threads, "t").open(adapter="anthropic")
    found = [decode_message(each) for each in await Author(tiers.threads, "t").everything()]
    assert [each.format for each in found] == [f"zeitlich-v1/{name}" for name in ROWS]
    assert opened.header.adapter == "anthropic"
    tiers = tiers_with(snapshot(wanted))
    assert (await Author(tiers.threads, "t").open()).header.adapter == "langChain"


async def test_results_of_langchain_keep_the_ids_that_zeitlich_knows_them_by() -> None:
    """Those of their calls; else a retried activity there would append them a second time."""
    call = {"id": "c1", "name": "look", "args": {}, "type": "tool_call"}
    wanted = [
        lang_chain(0),
        text({"type": "ai", "data": {"id": "a", "content": "", "tool_calls": [call]}}),
        text({"type": "tool", "data": {"id": "r", "content": "sun", "tool_call_id": "c1"}}),
    ]
    tiers = tiers_with(snapshot(wanted, dedupIds=["m-0", "a", "c1"]))
    await our_turn(Author(tiers.threads, "t"))
    assert (await exported(tiers))["dedupIds"][:3] == ["m-0", "a", "c1"]


async def test_a_snapshot_that_was_removed_after_moving_over_is_written_anew() -> None:
    """Nobody else's is there."""
    tiers = tiers_with(snapshot([anthropic(0)]))
    await tiers.threads.import_v1("t")
    await tiers.bucket.delete(KEY)
    assert (await exported(tiers))["messages"] == [anthropic(0)]
    tiers.bucket._blobs[KEY] = blob(snapshot([anthropic(1)]))
    with pytest.raises(LegacyWriterActiveError):
        await tiers.threads.export_v1("t")


characters = st.characters(codec=None) | st.sampled_from(["\0", "\ud800", "\udc00", "\u2028", "😀"])
strings = st.text(characters, max_size=6)
numbers = st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=8,
)
some_rows = st.lists(st.sampled_from(list(ROWS)), max_size=5)


@settings(max_examples=80, deadline=None)
@given(
    names=some_rows, custom=st.dictionaries(strings, values, max_size=3), extra=values, there=st.booleans()
)
async def test_any_snapshot_of_zeitlich_s_survives(
    names: list[str], custom: Any, extra: Any, there: bool
) -> None:
    """Imported, exported, imported elsewhere and exported again: the same bytes."""
    written = [text({**json.loads(ROWS[name](at)), "extra": extra}) for at, name in enumerate(names)]
    data = snapshot(written, {"tasks": [], "custom": custom} if there else None)
    tiers = tiers_with(data)
    await tiers.threads.import_v1("t")
    await tiers.threads.export_v1("t")
    assert await stored(tiers) == data
    assert await rows(Author(tiers.threads, "t")) == written
    # Without the snapshot to go by, each thread's rows are what they were.
    await tiers.bucket.delete(KEY)
    await tiers.threads.export_v1("t")
    again = tiers_with(await stored(tiers))
    await again.threads.import_v1("t")
    await again.threads.export_v1("t")
    assert await stored(again) == await stored(tiers)


# ---- what we add to it ----------------------------------------------------------------------------

IMAGE = messages.image_part(media_type="image/png", data="iVBORw0KGgo=")
OURS = [
    Message(id="u1", role="user", content=[messages.text_part("See"), IMAGE], metadata={"a": 1}),
    Message(
        id="a1",
        role="assistant",
        content=[messages.thinking_part("Hm."), messages.text_part("I look.")],
        tool_calls=(ToolCall(id="c1", name="look", arguments={"z": 1}), ToolCall(id="c2", name="hear")),
        usage=Usage(input_tokens=3, output_tokens=4),
        cost_usd=Decimal("0.0123"),
        provider={"anthropic": {"raw": ["x"], "of": "y"}},
    ),
    Message(id="r1", role="tool", content=[messages.text_part("sun"), IMAGE], tool_call_id="c1", name="look"),
    Message(id="r2", role="tool", content="deaf", tool_call_id="c2", name="hear", is_error=True),
    Message(id="a2", role="assistant", content="Sunny."),
]


async def our_turn(author: Author) -> None:
    """Opens the thread and adds the turn above."""
    await author.open()
    first = author.step(encode_message(OURS[0]), answer=encode_message(OURS[1]), commits=False)
    await author.append(first)
    await author.append(author.step(*map(encode_message, OURS[2:4]), answer=encode_message(OURS[4])))


async def ours_after(adapter: str) -> Tiers:
    """A thread of zeitlich's with a turn of ours at its end."""
    tiers = tiers_with(snapshot([ROWS[adapter](0), ROWS[adapter](1)]))
    await our_turn(Author(tiers.threads, "t"))
    return tiers


@pytest.mark.parametrize("adapter", ROWS)
async def test_our_turns_are_read_back_as_they_were(adapter: str) -> None:
    """By us, from a snapshot that went through zeitlich; images, reasoning and usage among them."""
    written = await exported(await ours_after(adapter))
    tiers = tiers_with(body(written["messages"]), "threads/messages/t.json")
    await tiers.threads.import_v1("t")
    found = [decode_message(each) for each in await Author(tiers.threads, "t").everything()]
    assert [each.format for each in found] == [f"zeitlich-v1/{adapter}"] * 7
    assert list(convert_zeitlich_rows(found))[2:] == OURS


@pytest.mark.parametrize("adapter", ROWS)
async def test_export_import_and_export_are_the_same_bytes(adapter: str) -> None:
    """With turns of ours among the rows."""
    first = await ours_after(adapter)
    await first.threads.export_v1("t")
    second = tiers_with(await stored(first))
    await second.threads.import_v1("t")
    await second.threads.export_v1("t")
    assert await stored(second) == await stored(first)


async def test_our_turns_for_anthropic_are_params_of_its_api() -> None:
    """Roles of user and assistant alone, and a system prompt that is marked."""
    written = await exported(await ours_after("anthropic"), instructions="Be kind.")
    found = [json.loads(row) for row in written["messages"]]
    assert found[0] == {
        "id": "instructions", "message": {"role": "user", "content": "Be kind."}, "isSystem": True
    }  # fmt: skip
    user, asked, sun, deaf, last = (row["message"] for row in found[3:])
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE["data"]}
    image = {"type": "image", "source": source}
    see, said = {"type": "text", "text": "See"}, {"type": "text", "text": "sun"}
    assert user == {"role": "user", "content": [see, image]}
    assert [block["type"] for block in asked["content"]] == ["text", "tool_use", "tool_use"]
    assert sun["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": [said, image]}]
    assert deaf["content"][0]["is_error"]
    assert last == {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]}


async def test_our_turns_for_google_are_contents() -> None:
    """Its adapter reads the role and the parts of each row."""
    written = await exported(await ours_after("googleGenAI"), instructions="Be kind.")
    found = [json.loads(row)["content"] for row in written["messages"]]
    assert [each["role"] for each in found] == [
        "system", "user", "model", "user", "model", "user", "user", "model"
    ]  # fmt: skip
    assert all(each["parts"] for each in found)
    call = found[4]["parts"][1]
    assert call["functionCall"] == {"id": "c1", "name": "look", "args": {"z": 1}}
    assert call["thoughtSignature"]
    result = {"id": "c1", "name": "look", "response": {"result": "sun"}}
    image = {"inlineData": {"mimeType": "image/png", "data": IMAGE["data"]}}
    assert found[5]["parts"] == [{"functionResponse": result}, image]


async def test_our_turns_for_langchain_are_stored_messages() -> None:
    """Its adapter asks each row for its type and the id in its data."""
    written = await exported(await ours_after("langChain"), instructions="Be kind.")
    found = [json.loads(row) for row in written["messages"]]
    assert [each["type"] for each in found] == ["system", "human", "ai", "human", "ai", "tool", "tool", "ai"]
    assert written["dedupIds"][3:] == ["u1", "a1", "c1", "c2", "a2"]
    assert all(each["data"]["id"] for each in found)
    assert found[4]["data"]["tool_calls"][0] == {
        "name": "look", "args": {"z": 1}, "id": "c1", "type": "tool_call"
    }  # fmt: skip
    assert found[6]["data"]["status"] == "error"


async def test_an_adapter_can_be_named_for_a_thread_that_was_never_zeitlich_s() -> None:
    """The new program may go on with any of them."""
    tiers = tiers_with()
    await our_turn(Author(tiers.threads, "t"))
    written = await exported(tiers, adapter="googleGenAI")
    assert {json.loads(row)["content"]["role"] for row in written["messages"]} == {"user", "model"}


async def test_what_zeitlich_changed_in_a_row_of_ours_counts() -> None:
    """A transform of a fork there may have taken words away; they must not come back."""
    written = await exported(await ours_after("anthropic"))
    row = json.loads(written["messages"][2])
    row["message"]["content"] = [{"type": "text", "text": "(removed)"}]
    rows_ = [*written["messages"][:2], text(row)]
    tiers = tiers_with(packed(body(rows_)))
    await tiers.threads.import_v1("t")
    found = [decode_message(each) for each in await Author(tiers.threads, "t").everything()]
    assert [(each.content, each.metadata) for each in convert_zeitlich_rows(found)][2:] == [("(removed)", {})]
