"""Rules that the scripts keep, checked in their text."""

import re
from importlib.resources import files

import pytest

SCRIPTS = {
    path.name.removesuffix(".lua"): re.sub(r"--.*", "", path.read_text("utf-8"))
    for path in (files("helix_temporal.stores.redis") / "lua").iterdir()
}

GIVEN = {"key", "staging", "session", "order", "rows", "entries", "marks", "head", "chunks", "keys"}
"""Names that scripts give to members of KEYS."""


@pytest.mark.parametrize("command", ["DEL", "UNLINK", "EXPIRE", "PEXPIRE", "PEXPIREAT", "RENAME"])
def test_only_few_scripts_end_a_thread(command: str) -> None:
    """Unarchived data never expires: whoever adds a place that can lose a thread must come by here."""
    found = {name for name, text in SCRIPTS.items() if f"'{command}'" in text}
    assert (
        found
        == {
            "DEL": set(),
            "UNLINK": {
                "drop",
                "drop_damaged",
                "evict",
                "install",
                "rebase",
                "session_commit",
                "stream_append",
                "stream_change",
                "stream_drop",
            },
            "EXPIRE": set(),
            "PEXPIRE": {"_stream", "evict", "payload_put", "stage"},
            "PEXPIREAT": {"session_commit"},
            "RENAME": {"install"},
        }[command]
    )


def test_no_script_parses_messages() -> None:
    """Bodies are opaque: Lua's JSON turns [] into {} and long numbers into floats."""
    assert [name for name, text in SCRIPTS.items() if "cjson" in text or "cmsgpack" in text] == []


def test_every_script_touches_only_the_keys_it_is_given() -> None:
    """A key made up inside a script may live on another node of a cluster."""
    made_up = []
    for name, text in SCRIPTS.items():
        commands = re.findall(r"redis\.call\('(\w+)'(?:, ([\w.\[\]]+( or \w+)?))?", text)
        keys = {key for command, key, _ in commands if command != "TIME"}
        made_up += [(name, key) for key in sorted(keys - {"KEYS[1]", *GIVEN})]
    assert made_up == []


def test_a_sessions_end_of_life_is_not_its_threads() -> None:
    """A session may have a time to live; what is not archived of its thread never has one."""
    assert set(re.findall(r"'PEXPIREAT', (\w+)", SCRIPTS["session_commit"])) == {"session", "order"}
    assert set(re.findall(r"'UNLINK', ([\w, ]+)", SCRIPTS["session_commit"])) == {"session, order"}


def test_no_script_sorts_texts() -> None:
    """Lua compares texts by the server's locale: the same data would be in another order elsewhere."""
    assert [name for name, text in SCRIPTS.items() if "table.sort" in text] == []


def test_only_the_keys_of_a_stream_end_with_it() -> None:
    """A stream may have the id of a session: what ends by itself is the stream's alone."""
    assert set(re.findall(r"'PEXPIRE', (\w+)", SCRIPTS["_stream"])) == {"head", "chunks", "keys"}
