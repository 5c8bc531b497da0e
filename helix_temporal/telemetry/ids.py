"""Ids of traces and spans, derived from what they stand for.

So each worker can name a span that another one records, and a span that is recorded once more has the same
id.  Pure, and without OpenTelemetry: workflow code may derive ids, too.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final, Literal, Self

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8

SpanOf = Literal["turn", "chat", "summary", "call", "attempt"]


@dataclass(frozen=True, slots=True)
class SpanRef:
    """Where a span is: what a child or a link must know of it."""

    trace_id: int
    span_id: int
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """As the W3C header of that name has it."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, traceparent: str | None) -> Self | None:
        """The span that a header names; None for one that is missing or malformed."""
        found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
        if found is None or found[1] == "ff" or (found[5] and found[1] == "00"):
            return None
        trace_id, span_id = int(found[2], 16), int(found[3], 16)
        return cls(trace_id, span_id, bool(int(found[4], 16) & 1)) if trace_id and span_id else None

    def at(self, span_id: int) -> "SpanRef":
        """Another span of the same trace."""
        return SpanRef(self.trace_id, span_id, self.sampled)


def derive_trace_id(session_id: str, run_id: str) -> int:
    """The trace of a turn that is in no caller's trace: 16 bytes of a SHA-256."""
    return _derive_id(_TRACE_BYTES, session_id, run_id)


def derive_span_id(session_id: str, run_id: str, what: SpanOf, *which: str) -> int:
    """A span of a turn.

    Args:
        session_id: Whose turn it is.
        run_id: The turn.
        what: What kind of span.
        which: The answer's id for ``chat``, the summary's for ``summary``, the result's for ``call``, and its
            attempt besides for ``attempt``; nothing for ``turn``.
    """
    return _derive_id(_SPAN_BYTES, session_id, run_id, what, *which)


def derive_call(root: SpanRef, session_id: str, run_id: str, result_id: str) -> SpanRef:
    """The span of a tool call, or of a call of a sub-agent, of the turn whose root this is."""
    return root.at(derive_span_id(session_id, run_id, "call", result_id))


def _derive_id(size: int, *parts: str) -> int:
    # With their lengths: ("a", "b/c") and ("a/b", "c") are two turns.
    named = ""
    for part in parts:
        named += f"{len(part)}:{part}"
    found = hashlib.sha256(named.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(found[:size], "big") or 1  # all zeros is no id
