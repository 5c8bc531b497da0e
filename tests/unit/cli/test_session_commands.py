"""``helix-temporal session …`` over a directory: no server, no worker."""

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from helix_temporal.backends import Backends
from helix_temporal.cli.session_calls import context_command
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry, ToolUsageEntry
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.views import SessionViews
from helix_temporal.views.models import SessionOverview
from tests.unit.cli._schemas import file_of
from tests.unit.cli._stores import add_session, call, conversation, fill, json_of, variables_of

BAD_TITLE: Final = "a\nb\x1b[2J\u202e"


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Stores with a session of three turns, a child of it, and one whose id begins with a dash."""
    found = variables_of(tmp_path_factory.mktemp("stores"))

    async def write(backends: Backends) -> None:
        await add_session(
            backends,
            "order/7",
            *conversation(3),
            agent_type="desk",
            user_id="anna",
            title=BAD_TITLE,
            tags=("vip",),
            metadata={"region": "EU"},
            custom_state={"basket": [1]},
        )
        await add_session(backends, "child", parent_session_id="order/7", root_session_id="order/7")
        await add_session(backends, "-x", user_id="bob", status="failed")

    fill(found, write)
    return found


def assert_fits(command: str, value: Any) -> None:
    """The output is what the published schema says."""
    schema = json.loads(file_of(command).read_text())
    Draft202012Validator(schema).validate(value)


# ---- list -------------------------------------------------------------------------------------------


def test_a_list_is_a_row_for_each_session(variables: dict[str, str]) -> None:
    """A title with a line end or an escape neither adds a row nor acts."""
    found = call(variables, "session", "list")
    heading, *rows = found.stdout.splitlines()
    assert heading.split() == ["SESSION", "STATUS", "AGENT", "USER", "STEPS", "CHANGED", "TITLE"]
    assert [row.split()[0] for row in rows] == ["-x", "child", "order/7"]
    assert rows[2].endswith(r"  a\nb\x1b[2J\u202e")


def test_a_list_as_json_is_one_object(variables: dict[str, str]) -> None:
    """It has the cursor, and fits the schema."""
    found = json_of(call(variables, "session", "list", "--limit", "2", "--json"))
    assert_fits("session list", found)
    assert [each["session_id"] for each in found["sessions"]] == ["-x", "child"]
    rest = json_of(call(variables, "session", "list", "--cursor", found["next_cursor"], "--json"))
    assert [each["session_id"] for each in rest["sessions"]] == ["order/7"]
    assert rest["next_cursor"] is None


def test_the_cursor_is_printed_beside_the_data(variables: dict[str, str]) -> None:
    """A pipe gets rows alone."""
    found = call(variables, "session", "list", "--limit", "1")
    assert len(found.stdout.splitlines()) == 2
    assert found.stderr.startswith("more: --cursor ")


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--user", "anna"], ["order/7"]),
        (["--agent", "desk"], ["order/7"]),
        (["--tag", "vip"], ["order/7"]),
        (["--meta", "region=EU"], ["order/7"]),
        (["--status", "failed"], ["-x"]),
        (["--failed"], ["-x"]),
        (["--roots"], ["-x", "order/7"]),
        (["--since", "1h"], ["-x", "child", "order/7"]),
        (["--until", "1h"], []),
        (["--waiting"], []),
    ],
)
def test_each_filter_filters(variables: dict[str, str], options: list[str], ids: list[str]) -> None:
    """An option that is taken and ignored would show other people's sessions; nothing is an empty list."""
    found = json_of(call(variables, "session", "list", *options, "--json"))
    assert [each["session_id"] for each in found["sessions"]] == ids


def test_all_are_one_object_a_line(variables: dict[str, str]) -> None:
    """A million of them are no array that somebody has to hold."""
    lines = call(variables, "session", "list", "--all", "--json").stdout.splitlines()
    objects = [json.loads(line) for line in lines]
    assert [each["session_id"] for each in objects] == ["-x", "child", "order/7"]
    assert_fits("session list --all", objects[0])


@pytest.mark.parametrize(
    "options",
    [
        ["--waiting", "--failed"],
        ["--meta", "region"],
        ["--since", "soon"],
        ["--status", "asleep"],
        ["--limit", "0"],
        ["--all", "--cursor", "x"],
        ["--cursor", "none of ours"],
    ],
)
def test_options_that_are_not_right_are_a_mistake_in_usage(
    variables: dict[str, str], options: list[str]
) -> None:
    """They are refused, not ignored."""
    found = call(variables, "session", "list", *options)
    assert (found.exit_code, found.stdout) == (2, "")


def test_a_store_that_goes_away_in_the_middle_leaves_what_was_read(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is out is out, and the status says that it is not all."""

    async def iterate(_views: SessionViews, _wanted: object, **_: object) -> AsyncIterator[SessionOverview]:
        for number in range(3):
            yield SessionOverview(session_id=f"s-{number}", status=SessionStatus.ACTIVE)
        raise StoreUnavailableError("postgres: no answer")

    monkeypatch.setattr(SessionViews, "iterate_sessions", iterate)
    text = call(variables, "session", "list", "--all")
    assert [line.split()[0] for line in text.stdout.splitlines()] == ["SESSION", "s-0", "s-1", "s-2"]
    assert (text.exit_code, text.stderr) == (7, "StoreUnavailableError: postgres: no answer\n")
    lines = call(variables, "session", "list", "--all", "--json")
    assert [json.loads(line)["session_id"] for line in lines.stdout.splitlines()] == ["s-0", "s-1", "s-2"]
    assert json.loads(lines.stderr)["error"]["exit_status"] == lines.exit_code == 7


MANY: Final = """
import sys
import psutil
from helix_temporal.cli import main
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry, ToolUsageEntry
from helix_temporal.views import SessionViews
from helix_temporal.views.models import SessionOverview

async def iterate(views, wanted, **_):
    before = 0
    for number in range(100_000):
        if number == 1_000:
            before = psutil.Process().memory_info().rss
        yield SessionOverview(session_id=f"s-{number}", status=SessionStatus.ACTIVE, title="x" * 100)
    print(psutil.Process().memory_info().rss - before, file=sys.stderr)

SessionViews.iterate_sessions = iterate
main()
"""


@pytest.mark.parametrize("options", [["--json"], []])
def test_memory_does_not_grow_with_the_list(variables: dict[str, str], options: list[str]) -> None:
    """A million sessions are listed in the memory of a thousand."""
    found = subprocess.run(
        [sys.executable, "-c", MANY, "session", "list", "--all", *options],
        env={**variables, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.count("\n") >= 100_000
    assert int(found.stderr) < 8_000_000


def test_a_list_whose_reader_leaves_ends_quietly(variables: dict[str, str]) -> None:
    """`| head` of a million sessions is no failure, and reads no further."""
    with subprocess.Popen(
        [sys.executable, "-c", MANY, "session", "list", "--all"],
        env={**variables, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("SESSION")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


# ---- one session ------------------------------------------------------------------------------------


def test_show_says_where_a_session_stands(variables: dict[str, str]) -> None:
    """Without a worker: whose it is, how far it is, where it is stored."""
    out = call(variables, "session", "show", "order/7").stdout
    assert "user        anna\n" in out
    assert "messages    12\n" in out
    assert "thread      order/7: hot" in out


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("session show", []),
        ("session tree", []),
        ("session usage", []),
        ("session usage", ["--descendants"]),
        ("session turns", []),
        ("session state", []),
        ("session checkpoints", []),
        ("thread show", []),
    ],
)
def test_what_is_printed_fits_the_schema(
    variables: dict[str, str], command: str, arguments: list[str]
) -> None:
    """Programs are written by it."""
    assert_fits(command, json_of(call(variables, *command.split(), "--json", *arguments, "order/7")))


@pytest.mark.parametrize(
    "command",
    ["show", "messages", "turns", "tree", "usage", "state", "checkpoints", "context"],
)
def test_a_session_that_is_not_there_is_a_status(variables: dict[str, str], command: str) -> None:
    """Of each command the same, as one line, or as an object."""
    found = call(variables, "session", command, "nobody")
    assert (found.exit_code, found.stdout) == (4, "")
    assert found.stderr.startswith("SessionNotFoundError: session 'nobody'")
    as_json = call(variables, "session", command, "nobody", "--json")
    assert as_json.exit_code == json.loads(as_json.stderr)["error"]["exit_status"] == 4


def test_an_id_may_begin_with_a_dash(variables: dict[str, str]) -> None:
    """Behind `--` it is no option."""
    assert json_of(call(variables, "session", "show", "--json", "--", "-x"))["overview"]["user_id"] == "bob"


def test_an_id_with_an_escape_does_not_act(variables: dict[str, str]) -> None:
    """No session can have it, and the line that says so is shown on a terminal."""
    found = call(variables, "session", "show", "a\x1b[2J")
    assert found.exit_code == 2
    assert "\x1b" not in found.output


def test_state_is_printed_as_json(variables: dict[str, str]) -> None:
    """As people set it."""
    assert '"basket": [\n    1\n  ]' in call(variables, "session", "state", "order/7").stdout


@pytest.mark.parametrize(
    ("command", "row"),
    [
        ("usage", r"^model calls +–$"),
        ("turns", r"^ +1 +– +– +4 +– +– "),
        ("tree", r"^order/7 +.* +– +– "),
    ],
)
def test_what_a_model_does_not_report_is_not_told_as_nothing(
    variables: dict[str, str], command: str, row: str
) -> None:
    """A model of one's own that reports no usage: the list of turns said that they took 0 tokens."""
    assert re.search(row, call(variables, "session", command, "order/7").stdout, re.MULTILINE)


def test_a_tree_has_its_children_below_it(variables: dict[str, str]) -> None:
    """With sums of each."""
    rows = call(variables, "session", "tree", "order/7").stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["SESSION", "order/7", "child"]
    assert rows[2].startswith("  child")


# ---- the conversation -------------------------------------------------------------------------------


def test_a_conversation_is_read_from_its_begin(variables: dict[str, str]) -> None:
    """Calls stand with their results."""
    lines = call(variables, "session", "messages", "order/7").stdout.splitlines()
    assert lines[:8] == [
        "turn 1",
        "  user · #0",
        "    question 1",
        "  assistant · #1 · step 1",
        '    → weather {"city":"Bern"}',
        "    ← done: sunny",
        "  assistant · #3 · step 2",
        "    answer 1",
    ]
    assert [line for line in lines if line.startswith("turn")] == ["turn 1", "turn 2", "turn 3"]


def test_a_conversation_as_json_is_a_turn_a_line(variables: dict[str, str]) -> None:
    """However long it is, nobody has to hold it."""
    lines = call(variables, "session", "messages", "order/7", "--json").stdout.splitlines()
    turns = [json.loads(line) for line in lines]
    assert [turn["start"] for turn in turns] == [0, 4, 8]
    assert_fits("session messages", turns[0])


def test_the_tail_is_the_last_turns(variables: dict[str, str]) -> None:
    """In the order in which they were."""
    lines = call(variables, "session", "messages", "order/7", "--tail", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["start"] for line in lines] == [4, 8]


def test_one_turn_is_that_of_its_number(variables: dict[str, str]) -> None:
    """With whole texts."""
    (line,) = call(variables, "session", "messages", "order/7", "--turn", "2", "--json").stdout.splitlines()
    assert json.loads(line)["messages"][0]["text"] == "question 2"


@pytest.mark.parametrize(
    "place",
    [
        ["messages", "order/7", "--turn", "99"],
        ["context", "order/7", "--turn", "99"],
        ["context", "order/7", "--turn", "2", "--step", "99"],
        ["context", "order/7", "--message", "99"],
    ],
)
def test_a_place_that_is_not_there_is_not_found(variables: dict[str, str], place: list[str]) -> None:
    """It is no empty conversation, and no mistake in usage, whatever names it."""
    found = call(variables, "session", *place)
    assert (found.exit_code, found.stdout) == (4, "")


@pytest.mark.parametrize("options", [["--tail", "1"], ["--follow"]])
def test_one_turn_is_no_tail(variables: dict[str, str], options: list[str]) -> None:
    """What contradicts itself is refused."""
    assert call(variables, "session", "messages", "order/7", "--turn", "1", *options).exit_code == 2


def test_turns_are_listed_page_by_page(variables: dict[str, str]) -> None:
    """The newest first page says where the one before it is."""
    last = json_of(call(variables, "session", "turns", "order/7", "--limit", "2", "--json"))
    assert [turn["text"] for turn in last["turns"]] == ["question 2", "question 3"]
    first = json_of(call(variables, "session", "turns", "order/7", "--before", str(last["before"]), "--json"))
    assert [turn["text"] for turn in first["turns"]] == ["question 1"]
    assert first["before"] is None


# ---- contexts ---------------------------------------------------------------------------------------


def test_the_context_of_a_step_is_that_of_its_answer(variables: dict[str, str]) -> None:
    """By turn and step, by the answer's position, or of the last step of all."""
    by_turn = json_of(
        call(variables, "session", "context", "order/7", "--turn", "2", "--step", "1", "--json")
    )
    by_position = json_of(call(variables, "session", "context", "order/7", "--message", "5", "--json"))
    last = json_of(call(variables, "session", "context", "order/7", "--json"))
    assert_fits("session context", by_turn)
    assert by_turn == by_position
    assert [by_turn["answer"], last["answer"]] == [5, 11]


@pytest.mark.parametrize(
    ("session_id", "command"),
    [
        ("order/7", "helix-temporal session context --message 5 order/7"),
        ("a b'c", "helix-temporal session context --message 5 'a b'\"'\"'c'"),
        ("-x", "helix-temporal session context --message 5 -- -x"),
        ("$(rm)", "helix-temporal session context --message 5 '$(rm)'"),
    ],
)
def test_the_command_for_a_context_can_be_pasted(session_id: str, command: str) -> None:
    """An id is a stranger's text, and the command goes into a shell."""
    assert context_command(session_id, 5) == command


async def add_aborted_turn(backends: Backends) -> None:
    """A session whose only turn was aborted after a tool had failed."""
    sessions = backends.sessions
    assert sessions is not None
    await add_session(backends, "-odd id")
    await sessions.start_run("-odd id", NewRun(run_id="r1", start_head=EMPTY))
    await sessions.update_run("-odd id", "r1", RunChange(status=RunStatus.ABORTED))
    await backends.usage.record_entry(
        ToolUsageEntry(
            id="tool/a1.0",
            session_id="-odd id",
            timestamp=1_764_398_412_000,
            run_id="r1",
            tool_name="look",
            tool_call_id="c",
            success=False,
            duration_ms=1,
            attempts=3,
            error="it was closed",
        )
    )


def test_a_failed_call_of_an_aborted_turn_names_a_command_that_shows_it(tmp_path: Path) -> None:
    """Turns that fail are aborted; a command that is refused would be the end of the search."""
    variables = variables_of(tmp_path)
    fill(variables, add_aborted_turn)
    printed = call(variables, "session", "calls", "--failed").stdout
    assert "its message is not in the thread" in printed
    assert "look  failed  1 ms  3 attempts\n" in printed
    (command,) = [line.strip() for line in printed.splitlines() if "helix-temporal" in line]
    shown = call(variables, *shlex.split(command)[1:])
    assert shown.exit_code == 0
    assert "aborted" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("calls", "--user", "ana"), "there is no session of user 'ana'; is the name right?"),
        (("calls", "--user", "anna", "--failed"), "no call has all that was asked for"),
        (("calls", "--user", "anna", "--tag", "vup"), "no session has all that was asked for"),
        (("list", "--user", "ana"), "there is no session of user 'ana'; is the name right?"),
        (("list", "--user", "ana", "--all"), "there is no session of user 'ana'; is the name right?"),
        (("list", "--user", "anna", "--failed"), "no session has all that was asked for"),
        (("turns", "child"), "it has no turns"),
        (("checkpoints", "child"), "it has no checkpoints"),
    ],
)
def test_a_command_that_finds_nothing_says_so(
    variables: dict[str, str], arguments: tuple[str, ...], said: str
) -> None:
    """An empty screen for a misspelt user reads as a user without failures; the data stays empty."""
    found = call(variables, "session", *arguments)
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", f"{said}\n")


@pytest.mark.parametrize("command", ["list", "calls"])
def test_times_that_are_exchanged_are_refused(variables: dict[str, str], command: str) -> None:
    """Nothing is ever between them: the list was empty, as if nothing had happened."""
    found = call(variables, "session", command, "--since", "1h", "--until", "2h")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "1h is not before 2h" in found.stderr


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--tag", "vip"], 3),
        (["--meta", "region=EU"], 3),
        (["--tag", "vip", "--meta", "region=US"], 0),
        (["--tag", "vip", "--tag", "new"], 0),
    ],
)
def test_calls_are_found_by_what_their_session_has(
    variables: dict[str, str], options: list[str], count: int
) -> None:
    """The page has these filters, and `session list` has."""
    lines = call(variables, "session", "calls", *options, "--json").stdout.splitlines()
    assert [json.loads(line)["session_id"] for line in lines] == ["order/7"] * count


def test_calls_refuse_a_pair_that_is_none(variables: dict[str, str]) -> None:
    """It is not ignored."""
    found = call(variables, "session", "calls", "--meta", "region")
    assert (found.exit_code, found.stdout) == (2, "")


async def add_expensive_session(backends: Backends) -> None:
    """A session whose one step took 1,690 tokens."""
    await add_session(backends, "dear", *conversation())
    await backends.usage.record_entry(
        TokenUsageEntry(
            id="model/a1",
            session_id="dear",
            timestamp=1,
            model="m",
            tokens=TokenCounts(prompt=1_600, completion=90),
        )
    )


def test_a_tree_has_numbers_as_the_sums_have_them(tmp_path: Path) -> None:
    """One and the same number was 1690 here and 1,690 there."""
    variables = variables_of(tmp_path)
    fill(variables, add_expensive_session)
    assert " 1,690 " in call(variables, "session", "tree", "dear").stdout
    assert " 1,690:" in call(variables, "session", "usage", "dear").stdout


async def make_database(backends: Backends) -> None:
    """As a worker leaves it that has had no session yet."""
    assert not await backends.sessions.session_exists("s")


def test_stores_without_sessions_are_told(tmp_path: Path) -> None:
    """The variables may name another deployment's stores."""
    variables = variables_of(tmp_path)
    fill(variables, make_database)
    found = call(variables, "session", "list")
    assert (found.stdout, found.stderr) == ("", "no sessions are stored here\n")


# ---- without stores ---------------------------------------------------------------------------------


def test_without_stores_it_says_what_to_set(tmp_path: Path) -> None:
    """Forgotten variables must not read as sessions that were deleted."""
    found = call({"HELIX_TEMPORAL_ADDRESS": "127.0.0.1:7233"}, "session", "list", "--json")
    assert found.exit_code == 2
    assert "HELIX_REDIS_URL" in json.loads(found.stderr)["error"]["message"]


def test_a_directory_that_is_misspelt_is_not_made(tmp_path: Path) -> None:
    """Reading changes nothing, and an empty list would say that all sessions were deleted."""
    found = call(variables_of(tmp_path / "misspelt"), "session", "list")
    assert (found.exit_code, found.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


# ---- archives that cannot be read -------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> dict[str, str]:
    """Stores with a session whose messages are in an archive alone, which is damaged."""
    archive = tmp_path / "archive"
    archive.mkdir()
    found = {**variables_of(tmp_path / "data"), "HELIX_COLD_DIRECTORY": str(archive)}

    async def write(backends: Backends) -> None:
        await add_session(backends, "cold", *conversation(2), user_id="anna")
        facts = await backends.threads.read_facts("cold")
        await backends.threads.flush(FlushThread("cold", facts.epoch, closes=True))
        await backends.threads.evict("cold", facts.epoch)

    fill(found, write)
    (manifest,) = archive.rglob("manifest.blob")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    return found


@pytest.mark.parametrize("command", ["show", "messages", "turns"])
def test_what_a_damaged_archive_hides_is_said(damaged: dict[str, str], command: str) -> None:
    """The rest is shown; nobody takes an empty page for an empty conversation."""
    found = call(damaged, "session", command, "cold")
    assert found.exit_code == 3
    assert "checksum" in found.stderr


def test_what_is_not_known_is_not_printed_as_zero(damaged: dict[str, str]) -> None:
    """Eight messages lie in the archive; beside a warning 0 would be believed all the same."""
    found = call(damaged, "session", "show", "cold", "--json")
    view = json.loads(found.stdout)
    assert (view["messages"], view["place"]["messages"], view["place"]["bytes"]) == (None, None, None)
    shown = call(damaged, "session", "show", "cold").stdout
    assert re.search(r"^messages +unknown$", shown, re.MULTILINE)
    assert "cold, size unknown" in shown
    turns = call(damaged, "session", "turns", "cold")
    assert "no turns" not in turns.stderr + turns.stdout


@pytest.mark.parametrize("more", [(), ("--json",), ("--all",), ("--all", "--json")])
def test_a_list_that_leaves_out_a_damaged_session_is_status_3(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A script that counts sessions would go on with a wrong number."""
    found = call(make_damaged_session(tmp_path, "sessions.summary"), "session", "list", *more)
    assert found.exit_code == 3
    assert "sound" in found.stdout
    assert "1 session is left out of the list" in found.stderr


@pytest.mark.parametrize("damaged_part", ["sessions.state", "usage.body"])
def test_calls_are_found_beside_a_damaged_session(tmp_path: Path, damaged_part: str) -> None:
    """It ended the search before all sessions that had not been changed since."""
    found = call(make_damaged_session(tmp_path, damaged_part), "session", "calls", "--json")
    assert found.exit_code == 3
    assert "sound" in {json.loads(line)["session_id"] for line in found.stdout.splitlines()}
    assert "not all of 1 session can be read: calls may be missing.  session 'broken': Store" in found.stderr


def test_sums_that_lack_what_cannot_be_read_say_so(tmp_path: Path) -> None:
    """Zeros beside a session looked like one that has cost nothing."""
    found = call(make_damaged_session(tmp_path, "usage.body"), "session", "tree", "broken")
    assert found.exit_code == 0
    assert "not all tokens and costs of 1 session are in the sums" in found.stderr


def test_a_time_that_nobody_measured_is_none_in_sums(tmp_path: Path) -> None:
    """Calls took no time at all, by the table that had a dash for each tool."""
    found = call(make_damaged_session(tmp_path, "usage.body"), "session", "usage", "sound")
    assert "0 ms" not in found.stdout


def make_damaged_session(directory: Path, part: str) -> dict[str, str]:
    """Stores with a sound session and a damaged one, which was changed last: a column of this table."""
    variables, (table, column) = variables_of(directory), part.split(".")

    async def write(backends: Backends) -> None:
        for name in ("sound", "broken"):
            await add_session(backends, name, *conversation())
            about: dict[str, Any] = {"session_id": name, "timestamp": 1, "tool_name": "weather"}
            await backends.usage.record_entry(ToolUsageEntry(id="tool/a1.0", tool_call_id="c", **about))

    fill(variables, write)
    (file,) = directory.rglob("helix.db")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"UPDATE {table} SET {column} = X'00' WHERE session_id = 'broken'")
    return variables


def test_a_damaged_thread_is_status_6(damaged: dict[str, str]) -> None:
    """Of the one thread that was named nothing can be shown."""
    found = call(damaged, "thread", "show", "cold", "--json")
    assert (found.exit_code, found.stdout) == (6, "")
    assert json.loads(found.stderr)["error"]["type"] == "ArchiveCorruptError"
