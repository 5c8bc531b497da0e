"""Items of the Responses API, as a session of the OpenAI Agents SDK keeps them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject, storable_text
from helix_temporal.models.foreign_rows.content import part_at_address, read_content
from helix_temporal.models.foreign_rows.row import ROLES, ForeignRow, NamedCall

_RESULT_OF: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""Calls whose results are items of their own; the provider carries out others within its answer."""
_RESULTS: Final = frozenset(_RESULT_OF.values())
_PAIRED: Final = _RESULT_OF.keys() - {"tool_search_call", "program", "mcp_approval_request"}
"""Calls that are refused without their result: of the others a provider may carry out the rest itself."""
_PAIRED_RESULTS: Final = frozenset(_RESULT_OF[each] for each in _PAIRED)


def read_openai_item(item: Mapping[str, Any]) -> ForeignRow:
    """An item; messages come with ``type: message`` or, in the easy form, without a type."""
    kind = item.get("type") or "message"
    if kind == "message":
        said = partial(read_content, item["content"], _read_part)
        return ForeignRow(role=ROLES[item["role"]], read_said=said)
    if kind == "reasoning":
        # The provider refuses a reasoning item without the item that it led to.
        return ForeignRow(joins="next")
    name = item.get("call_id") or item.get("approval_request_id") or item.get("id")
    call = NamedCall(name, item.get("name"))
    if kind in _RESULT_OF:
        return ForeignRow(calls=[call])
    return ForeignRow(results=[call]) if kind in _RESULTS else ForeignRow()


def drop_unanswered_calls(items: Sequence[JsonObject], stored: Collection[int]) -> list[JsonObject]:
    """The items without stored calls that have no result, and stored results that have no call.

    A provider refuses both.  A run that waits for an approval leaves a call behind; the first of the newest
    few items may be a result.

    Args:
        items: What a model is to be given.
        stored: Numbers of those that come from the store; all others stay.
    """
    calls = {(_RESULT_OF[_type(each)], each.get("call_id")) for each in items if _type(each) in _PAIRED}
    results = {(_type(each), each.get("call_id")) for each in items if _type(each) in _PAIRED_RESULTS}
    kept: list[JsonObject] = []
    for at, item in enumerate(items):
        kind, call_id = _type(item), item.get("call_id")
        if at in stored and kind in _PAIRED and (_RESULT_OF[kind], call_id) not in results:
            while kept and _type(kept[-1]) == "reasoning":
                kept.pop()  # nor does it take reasoning without the item that it led to
        elif at not in stored or kind not in _PAIRED_RESULTS or (kind, call_id) in calls:
            kept.append(item)
    return kept


def _type(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "message")


def _read_part(part: Mapping[str, Any]) -> Iterator[JsonObject]:
    kind = part["type"]
    if kind in {"input_text", "output_text", "refusal"}:
        yield messages.text_part(storable_text(part["refusal" if kind == "refusal" else "text"]))
    elif kind == "input_image" and part.get("image_url"):
        yield part_at_address(part["image_url"])
    elif kind in {"input_image", "input_file"}:
        name, data = part.get("filename"), part.get("file_data") or ""
        if data.startswith("data:"):
            yield part_at_address(data, partial(messages.file_part, name=name))
        else:
            url, file_id = part.get("file_url"), part.get("file_id")
            yield messages.file_part(data=data, url=url, file_id=file_id, name=name)
