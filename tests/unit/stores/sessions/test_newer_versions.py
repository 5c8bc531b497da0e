"""What a newer version of the package wrote is not called damage: an upgrade reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidRequestError, StoreCorruptError, UnsupportedFormatError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import CreateSession, SessionState, SubSessionRef
from helix_temporal.settings import Settings
from helix_temporal.stores.sessions import RowSessions, decisions
from helix_temporal.stores.sessions.decisions import decode_model, encode_model
from helix_temporal.stores.sessions.loop import encode_state
from tests.unit.cli._stores import add_session, call, conversation, fill, variables_of

STATE = json.loads(encode_model(SessionState(session_id="s"), "state"))


def decode(**fields: object) -> SessionState:
    """A state as a store has it, with these fields."""
    return decode_model(SessionState, json.dumps({**STATE, **fields}).encode(), "session 's': state")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"schema_version": 2}, "schema_version 2, 1 or lower expected"),
        ({"schema_version": 2, "version": "a text"}, "schema_version 2, 1 or lower expected"),
        ({"status": "dreaming"}, "a value of status that this version does not know"),
        ({"mode": "eternal", "status": "dreaming"}, "a value of mode, status that this version"),
    ],
)
def test_a_newer_state_asks_for_an_upgrade(fields: dict[str, object], says: str) -> None:
    """Whoever is told of damage restores a backup, and loses what was written since."""
    with pytest.raises(UnsupportedFormatError, match=f"{says}.*newer version wrote it; upgrade"):
        decode(**fields)


@pytest.mark.parametrize("fields", [{"version": "a text"}, {"status": "dreaming", "version": 0}])
def test_what_no_version_wrote_is_damage(fields: dict[str, object]) -> None:
    """An upgrade would not mend it."""
    with pytest.raises(StoreCorruptError, match="not a SessionState"):
        decode(**fields)


def test_a_run_in_a_status_of_a_newer_version_asks_for_an_upgrade() -> None:
    """All that sessions store is read by one function."""
    run = Run(session_id="s", run_id="r", turn=1).model_dump(mode="json") | {"status": "dreaming"}
    with pytest.raises(UnsupportedFormatError, match="a value of status"):
        decode_model(Run, json.dumps(run).encode(), "run")


def test_a_state_that_could_not_be_read_again_is_not_written() -> None:
    """An application that numbers its own states by this field locked itself out."""
    with pytest.raises(InvalidRequestError, match="schema_version 2, 1 or lower expected"):
        encode_state(SessionState(session_id="s", schema_version=2))


async def test_a_sub_agents_session_of_a_newer_version_is_left_when_its_caller_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a damaged one: the rest is deleted, and the log names it."""
    backends = Backends(Settings())
    sessions = backends.sessions
    await sessions.create_session("p")
    await sessions.create_session("p>c", CreateSession(parent_session_id="p"))
    await sessions.add_sub_session_refs("p", [SubSessionRef(sub_session_id="p>c")])
    view = RowSessions.view_session

    async def refuse_child(store: RowSessions, session_id: str) -> Any:
        if session_id == "p>c":
            raise UnsupportedFormatError("session 'p>c': state: a newer version wrote it")
        return await view(store, session_id)

    monkeypatch.setattr(RowSessions, "view_session", refuse_child)
    await sessions.delete_session("p")
    assert await sessions.load_state("p") is None
    await backends.close()


def test_a_command_says_that_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is that of a newer archive, not that of damage."""
    variables = variables_of(tmp_path)

    async def write(backends: Backends) -> None:
        await add_session(backends, "s1", *conversation())

    fill(variables, write)
    monkeypatch.setattr(decisions, "SCHEMA_VERSION", 0)
    found = call(variables, "session", "show", "s1")
    assert found.exit_code == 1
    assert "upgrade helix_temporal" in found.stderr
