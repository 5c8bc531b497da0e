"""Any conversation in our form, as hypothesis makes it."""

from typing import Any

from hypothesis import strategies as st

from helix_temporal.agents import repair_tool_results
from helix_temporal.models import messages as parts
from helix_temporal.models.agents import ModelRequest, ToolSpec
from helix_temporal.models.messages import Finish, Message, ToolCall, not_arguments

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = st.sampled_from(["weather", "a.b", "1st", "Ünï", "x" * 128])
ids = st.sampled_from(["call_0", "call_0", "toolu_1", "a b|c", "i" * 256]) | st.text(
    "ab", min_size=1, max_size=2
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(texts, values, max_size=2) | texts.map(lambda text: not_arguments(text, "wrong"))
calls = st.builds(ToolCall, id=ids, name=names, arguments=arguments)

_DATA = "+//+"
some_parts = st.one_of(
    texts.map(parts.text_part),
    texts.map(lambda text: parts.text_part(text, cache=True)),
    texts.map(parts.thinking_part),
    st.just(parts.image_part(media_type="image/png", data=_DATA)),
    st.just(parts.image_part(url="https://x.example/a.png")),
    st.just(parts.file_part(media_type="application/pdf", data=_DATA, name="a.pdf")),
    st.just(parts.file_part(media_type="text/plain", data="aGk=")),
    st.just(parts.file_part(url="https://x.example/a.pdf", media_type="application/pdf")),
    st.just(parts.file_part(file_id="file-1")),
    st.just({"type": "image"}),
    st.just({"type": "hologram", "of": [1]}),
)
contents: st.SearchStrategy[Any] = texts | st.lists(some_parts, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """One message of any role."""
    role = draw(st.sampled_from(["user", "assistant", "assistant", "tool", "system", "foreign"]))
    fields: dict[str, Any] = {"id": "m", "role": role, "content": draw(contents)}
    if role == "assistant":
        fields["tool_calls"] = tuple(draw(st.lists(calls, max_size=3)))
        fields["finish"] = draw(st.none() | st.sampled_from(Finish))
    elif role == "tool":
        fields |= {"tool_call_id": draw(ids), "is_error": draw(st.booleans())}
    return Message(**fields)


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    """Any thread as a model is given it: each call with its result."""
    drawn = draw(st.lists(messages(), max_size=8))
    numbered = [each.model_copy(update={"id": f"m{at}"}) for at, each in enumerate(drawn)]
    mended, _ = repair_tool_results([*numbered, Message(id="last", role="user", content="Go on.")])
    return ModelRequest(
        agent="a",
        session_id="s",
        thread_id="t",
        messages=mended,
        instructions=draw(texts),
        tools=(ToolSpec(name="weather"),),
    )
