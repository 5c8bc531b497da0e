"""Ids of traces and spans: derived, the same everywhere, and never two things' alike."""

import hashlib

import pytest

from helix_temporal.telemetry.ids import SpanRef, derive_call, derive_span_id, derive_trace_id


def test_a_trace_id_is_16_bytes_of_a_hash_of_session_and_run() -> None:
    """Whoever knows session and run finds the trace; the form is stored nowhere and must never change."""
    expected = hashlib.sha256(b"1:s3:run").digest()[:16]
    assert derive_trace_id("s", "run") == int.from_bytes(expected, "big")


def test_a_span_id_is_8_bytes_of_a_hash_of_what_it_stands_for() -> None:
    """As the trace's."""
    expected = hashlib.sha256(b"1:s3:run4:chat2:m1").digest()[:8]
    assert derive_span_id("s", "run", "chat", "m1") == int.from_bytes(expected, "big")


def test_parts_do_not_run_into_each_other() -> None:
    """Ids of sessions may have any letters, slashes among them."""
    assert derive_trace_id("a", "bc") != derive_trace_id("ab", "c")
    assert derive_span_id("s", "r", "attempt", "1", "2") != derive_span_id("s", "r", "attempt", "12")


def test_a_session_of_odd_letters_has_a_trace() -> None:
    """A telemetry must not fail where a session does not."""
    assert derive_trace_id("\ud800 ü 日", "r") > 0


def test_a_header_is_read_as_it_was_written() -> None:
    """What a step tells the workers of its tools."""
    ref = SpanRef(derive_trace_id("s", "r"), derive_span_id("s", "r", "turn"), sampled=False)
    assert SpanRef.parse(ref.traceparent) == ref


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        f"ff-{'1' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'1' * 16}-01-more",
        f"00-{'A' * 32}-{'1' * 16}-01",
    ],
)
def test_a_malformed_header_names_no_span(header: str | None) -> None:
    """It comes from any caller: a turn does without it."""
    assert SpanRef.parse(header) is None


def test_a_header_of_a_later_version_is_read() -> None:
    """As the W3C says: what is known of it counts."""
    found = SpanRef.parse(f"01-{'1' * 32}-{'2' * 16}-03-more")
    assert found == SpanRef(int("1" * 32, 16), int("2" * 16, 16), sampled=True)


def test_the_call_of_a_sub_agent_is_named_before_it_is_recorded() -> None:
    """The workflow gives it to the sub-agent's session; a step records it when it has the result."""
    root = SpanRef(7, 8)
    assert derive_call(root, "s", "r", "result") == SpanRef(7, derive_span_id("s", "r", "call", "result"))
