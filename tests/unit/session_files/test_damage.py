"""Damaged files: each is refused with its line and with what is wrong, and nothing is imported."""

import gzip
import hashlib
import io
from collections.abc import Callable
from typing import Any, Final

import orjson
import pytest

from helix_temporal.errors import SessionFileError, ThreadNotFoundError, UnsupportedFormatError
from helix_temporal.models.base import canonical_json
from helix_temporal.session_files import verify_file
from tests.unit.session_files._scenes import export_bytes, import_bytes, make_tree, open_memory

Damage = Callable[[list[bytes]], list[bytes]]


async def _make_file() -> bytes:
    async with open_memory() as source:
        await make_tree(source)
        return await export_bytes(source, children=True)


async def _import(data: bytes) -> None:
    """Import into empty stores, and make sure that they are still empty after a refusal."""
    async with open_memory() as target:
        try:
            await import_bytes(target, data)
        finally:
            assert (await target.sessions.list_sessions()).sessions == ()
            with pytest.raises(ThreadNotFoundError):
                await target.threads.read_facts("s>search>c1>read")


def change_line(number: int, change: Callable[[Any], object]) -> Damage:
    """The file with another line ``number``, and a header that fits it: only the contents are wrong."""

    def damage(lines: list[bytes]) -> list[bytes]:
        plain = orjson.loads(lines[number - 1])
        changed = change(plain)
        line = changed if isinstance(changed, bytes) else _write(plain)
        return with_header([*lines[: number - 1], line, *lines[number:]])

    return damage


DEEP: Final = "400 lists in each other"
DEEP_FOR_US: Final = "70 lists in each other"
"""Stand for what no program here can write."""


def _write(plain: Any) -> bytes:
    line = canonical_json(plain) + b"\n"
    for text, count in ((DEEP, 400), (DEEP_FOR_US, 70)):
        line = line.replace(f'"{text}"'.encode(), b"[" * count + b"]" * count)
    return line


def with_header(lines: list[bytes], **fields: Any) -> list[bytes]:
    """The same lines below a header that has their number, size and checksum."""
    body = b"".join(lines[1:])
    header = orjson.loads(lines[0]) | {
        "lines": len(lines) - 1,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        **fields,
    }
    return [canonical_json(header) + b"\n", *lines[1:]]


def set_field(kind: str, name: str, value: Any) -> Callable[[Any], object]:
    """Another value of one field of a line."""

    def change(plain: Any) -> object:
        plain[kind][name] = value
        return plain

    return change


def drop_line(number: int) -> Damage:
    """The file without a line, and with a header that fits."""
    return lambda lines: with_header([*lines[: number - 1], *lines[number:]])


def swap_lines(number: int) -> Damage:
    """The file with two lines exchanged, and with a header that fits."""
    return lambda lines: with_header(
        [*lines[: number - 1], lines[number], lines[number - 1], *lines[number + 1 :]]
    )


# Lines of the file: 1 header, 2 session, 3 child, 4–5 runs, 6–8 usage, 9–16 messages, 17 session, …
DAMAGES: Final[dict[str, tuple[Damage, str]]] = {
    "empty": (lambda lines: [], "line 1: the file is empty"),
    "no header": (lambda lines: lines[1:], "line 1: no header"),
    "header that is no JSON": (lambda lines: [b"{\n", *lines[1:]], "line 1: no header"),
    "header without a checksum": (lambda lines: with_header(lines, sha256=None), "line 1: no header: sha256"),
    "header with a field more": (lambda lines: with_header(lines, more=1), "line 1: no header: more"),
    "another program's file": (lambda lines: [b'{"type":"summary"}\n'], "line 1: no header"),
    "packed": (lambda lines: [gzip.compress(b"".join(lines))], "line 1: the file is packed by gzip"),
    "a byte order mark": (lambda lines: [b"\xef\xbb\xbf", *lines], "line 1: the file begins with a byte"),
    "another encoding": (
        lambda lines: [b"".join(lines).decode().encode("utf-16")],
        "line 1: the file is in UTF-16, as PowerShell",
    ),
    "ends of lines of another system": (
        lambda lines: [each.replace(b"\n", b"\r\n") for each in lines],
        "line 1: it ends with CR LF",
    ),
    "cut at a line": (lambda lines: lines[:12], "line 12: the file ends here"),
    "cut in a line": (lambda lines: [*lines[:12], lines[12][:9]], "line 13: it has no end"),
    "a line more": (lambda lines: [*lines, lines[-1]], "a session line was expected, this is a message line"),
    "a bit turned": (
        lambda lines: [*lines[:8], lines[8].replace(b"Where", b"where"), *lines[9:]],
        "the file was changed after it was written",
    ),
    "a line that is no JSON": (change_line(9, lambda plain: b"{]\n"), "line 9: not JSON"),
    "a line of no kind": (change_line(9, lambda plain: b'{"note":{}}\n'), "line 9: an object with one field"),
    "an empty line": (change_line(9, lambda plain: b"\n"), "line 9: not JSON"),
    "a list": (change_line(9, lambda plain: b"[]\n"), "line 9: an object with one field"),
    "a message is missing": (drop_line(10), "line 10: message 2, where 1 was expected"),
    "the last message is missing": (drop_line(16), "line 16: a message line was expected"),
    "messages exchanged": (swap_lines(10), "line 10: message 2, where 1 was expected"),
    "a run is missing": (drop_line(4), "line 5: a run line was expected"),
    "runs exchanged": (swap_lines(4), "line 5: run of turn 1: a later one"),
    "a run that is live": (change_line(4, set_field("run", "status", "running")), "line 4: run of turn 1"),
    "a run that is none": (change_line(4, set_field("run", "turn", "x")), "line 4: no run: turn"),
    "usage exchanged": (swap_lines(6), "line 7: usage is not in the order"),
    "usage that is none": (change_line(6, set_field("usage", "kind", "x")), "line 6: no usage"),
    "a message that is none": (change_line(9, set_field("message", "body", {})), "line 9: no message"),
    "a message nested too deep": (
        change_line(9, lambda plain: plain["message"]["body"].update(metadata={"secret key": DEEP_FOR_US})),
        "line 9: no message: nesting over 64 levels",
    ),
    "a message nested deeper than JSON is written": (
        change_line(9, set_field("message", "body", {"x": DEEP})),
        "line 9: no message: nesting over 64 levels",
    ),
    "a state nested deeper than JSON is written": (
        change_line(2, lambda plain: plain["session"]["state"]["custom_state"].update(x=DEEP)),
        "line 2: no session: nesting over 64 levels",
    ),
    "a record nested deeper than JSON is written": (
        change_line(2, lambda plain: plain["session"]["thread"].update(record={"values": DEEP})),
        "line 2: no session: nesting over 64 levels",
    ),
    "a run nested deeper than JSON is written": (
        change_line(4, lambda plain: plain["run"].update(error=DEEP)),
        "line 4: no run: error",
    ),
    "a message without a body": (
        change_line(9, lambda plain: plain["message"].pop("body")),
        "line 9: no message: either body or base64",
    ),
    "a message of two bodies": (
        change_line(9, set_field("message", "base64", "AA==")),
        "line 9: no message: either body or base64",
    ),
    "a message that is no base64": (
        change_line(9, lambda plain: plain["message"].update(base64="%", body=None)),
        "line 9: no message: not base64",
    ),
    "a message of no kind": (change_line(9, set_field("message", "kind", "z")), "line 9: no message: kind"),
    "another last message": (
        change_line(16, set_field("message", "id", "e9")),
        "line 16: the last message is not the one",
    ),
    "a state that is none": (
        change_line(2, set_field("session", "state", {"version": 0})),
        "line 2: no session: version",
    ),
    "metadata that are too large": (
        change_line(2, lambda plain: plain["session"]["state"]["metadata"].update(large="x" * 70_000)),
        "line 2: no session that a store takes: TooLargeError",
    ),
    "a state beyond the messages": (
        change_line(2, set_field("session", "state", {"head": {"position": 9, "last_id": "x"}})),
        "line 2: the state ends at 9",
    ),
    "a state in front of the messages": (
        change_line(2, set_field("session", "state", {"head": {"position": 0, "last_id": "x"}})),
        "line 2: the state names a message in front of the first",
    ),
    "a thread that is another's": (
        change_line(2, lambda plain: plain["session"]["state"].update(thread_id="bobs")),
        "line 2: no session of a file: thread_id: a session in a file has its own thread",
    ),
    "a parent outside the file": (
        change_line(2, lambda plain: plain["session"]["state"].update(parent_session_id="bobs")),
        "line 2: no session of a file: parent_session_id",
    ),
    "a root outside the file": (
        change_line(17, lambda plain: plain["session"]["state"].update(root_session_id="bobs")),
        "line 17: no session of a file: root_session_id",
    ),
    "a child that has another parent": (
        change_line(17, lambda plain: plain["session"]["state"].update(parent_session_id="bobs")),
        "line 17: no session of a file: parent_session_id",
    ),
    "a session that waits": (
        change_line(
            2,
            lambda plain: plain["session"]["state"].update(
                status="paused", client_tool_call_ownership={"c": "bobs"}
            ),
        ),
        "line 2: no session of a file: client_tool_call_ownership, status",
    ),
    "a record of a workflow that runs": (
        change_line(2, lambda plain: plain["session"]["thread"].update(record={"run": "r"})),
        "line 2: no session of a file: run",
    ),
    "a state at another message": (
        change_line(2, set_field("session", "state", {"head": {"position": 3, "last_id": "x"}})),
        "line 11: the state names another message",
    ),
    "another session first": (
        change_line(2, set_field("session", "session_id", "other")),
        "line 2: the first session is not the one",
    ),
    "an id that is none": (change_line(2, set_field("session", "session_id", "")), "line 2: no session"),
    "a child that is not promised": (
        change_line(3, set_field("child", "sub_session_id", "other")),
        "line 17: session 's>search>c1' is no child of 's'",
    ),
    "a child of another": (
        change_line(17, set_field("session", "parent", "other")),
        "line 17: session 's>search>c1' is no child of 'other'",
    ),
    "a child that is its parent": (
        change_line(3, set_field("child", "sub_session_id", "s")),
        "line 3: session 's' comes twice",
    ),
    "the last session is missing": (
        lambda lines: with_header(lines[:23]),
        "the file ends after 2 sessions and 12 messages",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_file_is_refused_whole(name: str) -> None:
    """The error says the line and what is wrong with it, and the stores are as they were."""
    damage, said = DAMAGES[name]
    data = b"".join(damage((await _make_file()).splitlines(keepends=True)))
    with pytest.raises(SessionFileError) as refused:
        await _import(data)
    assert said in str(refused.value)


async def test_an_error_says_nothing_of_what_is_in_the_file() -> None:
    """Errors are logged, and conversations must not be."""
    lines = (await _make_file()).splitlines(keepends=True)
    damage = change_line(9, set_field("message", "body", {"role": "user", "content": {"secret": "x"}}))
    with pytest.raises(SessionFileError) as refused:
        await _import(b"".join(damage(lines)))
    assert "secret" not in str(refused.value)


async def test_a_newer_format_is_told_from_damage() -> None:
    """What helps is another version of this package."""
    lines = (await _make_file()).splitlines(keepends=True)
    with pytest.raises(UnsupportedFormatError, match="helix-session/2"):
        await _import(b"".join(with_header(lines, format="helix-session/2")))


async def test_every_cut_of_a_file_is_noticed() -> None:
    """A disk that was full may have ended it anywhere."""
    data = await _make_file()
    found = [_is_sound(data[:size]) for size in range(len(data))]
    assert found == [False] * len(data)
    assert _is_sound(data)


async def test_every_changed_byte_is_noticed() -> None:
    """Also where the file is still JSON."""
    data = await _make_file()
    body = data.index(b"\n") + 1
    found = [_is_sound(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) for at in range(body, len(data))]
    assert found == [False] * (len(data) - body)


def _is_sound(data: bytes) -> bool:
    try:
        verify_file(io.BytesIO(data))
    except (SessionFileError, UnsupportedFormatError):
        return False
    return True
