"""Rules that the scripts keep, checked in their text."""

import re
from importlib.resources import files

import pytest

SCRIPTS = {
    path.name.removesuffix(".lua"): re.sub(r"--.*", "", path.read_text("utf-8"))
    for path in (files("helix_temporal.stores.redis") / "lua").iterdir()
}


@pytest.mark.parametrize("command", ["DEL", "UNLINK", "EXPIRE", "PEXPIRE", "RENAME"])
def test_only_few_scripts_end_a_record(command: str) -> None:
    """Unarchived data never expires: whoever adds a place that can lose a thread must come by here."""
    found = {name for name, text in SCRIPTS.items() if f"'{command}'" in text}
    assert (
        found
        == {
            "DEL": set(),
            "UNLINK": {"drop", "evict", "install", "rebase"},
            "EXPIRE": set(),
            "PEXPIRE": {"evict", "stage"},
            "RENAME": {"install"},
        }[command]
    )


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_parses_messages(name: str) -> None:
    """Bodies are opaque: Lua's JSON turns [] into {} and long numbers into floats."""
    assert "cjson" not in SCRIPTS[name]
    assert "cmsgpack" not in SCRIPTS[name]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_script_touches_only_the_keys_it_is_given(name: str) -> None:
    """A key made up inside a script may live on another node of a cluster."""
    commands = re.findall(r"redis\.call\('(\w+)'(?:, ([\w.\[\]]+( or \w+)?))?", SCRIPTS[name])
    assert {key for command, key, _ in commands if command != "TIME"} <= {"key", "staging", "KEYS[1]"}
