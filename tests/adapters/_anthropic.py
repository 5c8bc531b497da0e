"""Anthropic's wire format: answers as streams of events, put together from the blocks that they make."""

import json
from typing import Any

import anthropic

from helix_temporal.adapters.anthropic import AnthropicModel
from tests.adapters._standin import Reply, StandIn, events

Block = dict[str, Any]


def model(standin: StandIn, **options: Any) -> AnthropicModel:
    """The adapter with a real client that talks to the stand-in."""
    # Reading the system's certificates takes longer than any test here.
    plain = anthropic.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    client = anthropic.AsyncAnthropic(api_key="k-secret", base_url=standin.url, http_client=plain)
    given: dict[str, Any] = {"cache": None} | options
    return AnthropicModel("claude-test", client, **given)


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def thinking(thought: str, signature: str = "EqQBCgIYAhIM+/c2lnbmF0dXJl==") -> Block:
    return {"type": "thinking", "thinking": thought, "signature": signature}


def redacted(data: str = "EmwKAhgBEgy3va3pzix/==") -> Block:
    return {"type": "redacted_thinking", "data": data}


def use(call_id: str, name: str = "weather", **arguments: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def says(*blocks: Block, stop: str | None = None, usage: Block | None = None, cut: bool = False) -> Reply:
    """A stream that makes exactly these blocks."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    stop = stop or ("tool_use" if calls else "end_turn")
    each = [one for at, block in enumerate(blocks) for one in block_events(at, block)]
    every = [begins(usage), *each, *ends(stop)]
    return stream(*(every[:-3] if cut else every), cut=cut)


def stream(*each: Block, cut: bool = False) -> Reply:
    """Events with their names."""
    return events(*[(one["type"], one) for one in each], cut=cut)


def begins(usage: Block | None = None) -> Block:
    counts = {"input_tokens": 10, "output_tokens": 1} | (usage or {})
    message: Block = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-test",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts,
    }
    return {"type": "message_start", "message": message}


def ends(stop: str, **usage: Any) -> list[Block]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 7} | usage,
        },
        {"type": "message_stop"},
    ]


def block_events(at: int, block: Block) -> list[Block]:
    """One block as it comes: empty, then piece by piece."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in halves(block["text"])]
        deltas += [{"type": "citations_delta", "citation": one} for one in block.get("citations") or []]
        empty = block | {"text": ""} | ({"citations": []} if "citations" in block else {})
    elif kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in halves(block["thinking"])]
        deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        empty = block | {"thinking": "", "signature": ""}
    elif "input" in block:
        deltas = pieces_of_input(json.dumps(block["input"], ensure_ascii=False) if block["input"] else "")
        empty = block | {"input": {}}
    else:
        deltas, empty = [], block
    return block_from(at, empty, *deltas)


def block_from(at: int, empty: Block, *deltas: Block) -> list[Block]:
    return [
        {"type": "content_block_start", "index": at, "content_block": empty},
        {"type": "ping"},
        *[{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas],
        {"type": "content_block_stop", "index": at},
    ]


def pieces_of_input(given: str) -> list[Block]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *halves(given)]]


def halves(whole: str) -> list[str]:
    middle = len(whole) // 2
    return [piece for piece in (whole[:middle], whole[middle:]) if piece]
