"""What commands say of sessions that fail, wait, or have just begun, in the words of the inspector."""

import json
import re
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from helix_temporal.backends import Backends
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.models.stored_messages import EMPTY
from tests.unit.cli._schemas import file_of
from tests.unit.cli._stores import add_session, call, conversation, fill, json_of, variables_of

ERROR: Final = ErrorInfo(type="", message="ApplicationCodeError: no such order")


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Sessions whose first turn runs, whose second one runs, waits, and failed; each named so."""
    found = variables_of(tmp_path_factory.mktemp("stores"))

    async def write(backends: Backends) -> None:
        for name in ("first", "waits", "failed"):
            await add_session(backends, name)
            await backends.sessions.start_run(name, NewRun(run_id=f"run-{name}", start_head=EMPTY))
        await add_session(backends, "second", *conversation())
        first = NewRun(run_id="run-answered", start_head=EMPTY)
        await backends.sessions.start_run("second", first)
        await backends.sessions.update_run("second", first.run_id, RunChange(status=RunStatus.COMPLETED))
        head = (await backends.threads.read_facts("second")).head
        await backends.sessions.start_run("second", NewRun(run_id="run-second", start_head=head))
        await backends.sessions.update_run(
            "waits", "run-waits", RunChange(status=RunStatus.SUSPENDED_CLIENT_TOOL)
        )
        await backends.sessions.update_run(
            "failed",
            "run-failed",
            RunChange(status=RunStatus.FAILED, completion_reason="failed"),
        )
        failed = await backends.sessions.load_state("failed")
        assert failed is not None
        ended = {"status": SessionStatus.FAILED, "failure_reason": "error", "error": ERROR}
        await backends.sessions.save_state("failed", failed.model_copy(update=ended))
        await backends.sessions.update_status("waits", SessionStatus.PAUSED)

    fill(found, write)
    return found


def facts_of(variables: dict[str, str], session_id: str) -> dict[str, str]:
    """What `session show` says, by the fact's name."""
    lines = call(variables, "session", "show", session_id).stdout.splitlines()
    return {line[:10].strip(): line[10:].strip() for line in lines}


def test_a_failure_is_told_once(variables: dict[str, str]) -> None:
    """It was "failure   error", and then "error     : ApplicationCodeError"."""
    facts = facts_of(variables, "failed")
    assert facts["failure"] == "ApplicationCodeError: no such order"
    assert "error" not in facts


def test_a_status_has_the_words_of_the_page(variables: dict[str, str]) -> None:
    """The terminal said "active", "paused" and "suspended_client_tool" of what the page calls otherwise."""
    assert facts_of(variables, "first")["status"] == "running"
    waits = facts_of(variables, "waits")
    assert (waits["status"], "turn 1, waiting for an answer, since" in waits["run"]) == ("waiting", True)
    rows = call(variables, "session", "list").stdout.splitlines()[1:]
    words = {row.split()[0]: row.split()[1] for row in rows}
    assert words == {"first": "active", "second": "active", "waits": "waiting", "failed": "failed"}


def test_json_has_the_statuses_as_they_are_stored(variables: dict[str, str]) -> None:
    """Programs compare them."""
    assert json_of(call(variables, "session", "show", "waits", "--json"))["overview"]["status"] == "paused"


@pytest.mark.parametrize("name", ["waiting", "paused"])
def test_a_filter_takes_the_word_that_the_list_shows(variables: dict[str, str], name: str) -> None:
    """As well as the one that is stored, which scripts have."""
    found = json_of(call(variables, "session", "list", "--status", name, "--json"))
    assert [each["session_id"] for each in found["sessions"]] == ["waits"]


def test_a_status_that_is_none_is_told_with_those_that_are(variables: dict[str, str]) -> None:
    """Whoever guesses is told what to write."""
    found = call(variables, "session", "list", "--status", "asleep")
    assert found.exit_code == 2
    assert {"waiting", "paused", "interrupted"} <= set(re.findall(r"\w+", found.stderr))


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", [("messages",), ("messages", "--tail", "1"), ("turns",)])
@pytest.mark.parametrize(("session_id", "turn"), [("first", 1), ("second", 2)])
def test_a_turn_whose_messages_are_not_stored_yet_is_told(
    variables: dict[str, str], session_id: str, turn: int, command: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Nothing was printed, or that there are no turns, of a session that was at work."""
    found = call(variables, "session", *command, session_id, *options)
    assert found.exit_code == 0
    assert found.stderr.startswith(f"turn {turn} is under way since 20")
    assert "--follow" in found.stderr
    assert "no turns" not in found.stderr
    assert "under way" not in found.stdout


@pytest.mark.parametrize("session_id", ["failed", "waits"])
def test_no_turn_is_under_way_where_none_runs(variables: dict[str, str], session_id: str) -> None:
    """What waits or has failed does not go on by itself."""
    assert "under way" not in call(variables, "session", "messages", session_id).stderr


def test_a_discarded_run_is_a_line_for_programs_as_well(variables: dict[str, str]) -> None:
    """A session that failed in its only turn was nothing at all with --json."""
    text = call(variables, "session", "messages", "failed").stdout
    assert text == "discarded: run run-failed of turn 1, failed, 0 steps\n"
    (line,) = call(variables, "session", "messages", "failed", "--json").stdout.splitlines()
    turn = json.loads(line)
    assert (turn["number"], turn["messages"]) == (1, [])
    assert [(each["run_id"], each["kept"]) for each in turn["attempts"]] == [("run-failed", False)]
    Draft202012Validator(json.loads(file_of("session messages").read_text())).validate(turn)
