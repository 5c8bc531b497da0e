"""Where commands print to: terminals that show less than ours, consoles with another code page, shells."""

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.settings import Settings
from tests._commands import RUN, environment
from tests.unit.cli._stores import add_session, fill, variables_of

TITLE = "注文 → é ✓"


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, str]:
    """The variables of a store with one session."""
    variables = {"HELIX_DATA_DIRECTORY": str(tmp_path)}

    async def fill() -> None:
        backends = Backends(Settings.from_env(variables))
        try:
            assert backends.sessions is not None
            await backends.sessions.create_session("s1", CreateSession(user_id="jörg", title=TITLE))
        finally:
            await backends.close()

    asyncio.run(fill())
    return variables


def test_an_export_to_a_terminal_cannot_act_on_it(tmp_path: Path) -> None:
    """A user's text set the title of the operator's window, and could have written over lines."""
    variables = variables_of(tmp_path)
    message = Message(id="m", role="user", content="\x1b]0;owned\x07 and \u009b2J")
    fill(variables, lambda backends: add_session(backends, "s", message))
    for name in ("md", "jsonl"):
        for output in ("-", "/dev/stdout"):
            shown = run_on_terminal(variables, "session", "export", "s", "--format", name, "-o", output)
            assert "owned" in shown
            assert not {"\x1b", "\x07", "\u009b"} & set(shown)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no /dev/fd")
def test_an_export_to_standard_output_by_its_path_is_all_that_is_in_it(tmp_path: Path) -> None:
    """``-o /dev/stdout >> log`` lost the session, and what was in the log."""
    variables = variables_of(tmp_path)
    fill(variables, lambda backends: add_session(backends, "s", Message(id="m", role="user", content="hi")))
    # A link of our own: /dev/stdout must survive a failure of this test.
    path = tmp_path / "stdout"
    path.symlink_to("/dev/fd/1")
    command = [sys.executable, "-c", RUN, "session", "export", "s", "-o"]
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as output:
        subprocess.run([*command, str(path)], env=environment(variables), stdout=output, check=True)
    assert path.is_symlink()
    expected = subprocess.run([*command, "-"], env=environment(variables), stdout=subprocess.PIPE, check=True)
    assert log.read_bytes() == b"before\n" + expected.stdout


NAMED = "import sys; sys.argv[0] = 'helix-temporal'; " + RUN
"""As the installed script is called: completion is by its name."""


def run(variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """A command as a process."""
    return subprocess.run(
        [sys.executable, "-c", NAMED, *arguments],
        env=environment(variables),
        capture_output=True,
        check=False,
    )


def run_on_terminal(variables: dict[str, str], *arguments: str) -> str:
    """What a command shows on a terminal."""
    shown, terminal = pty.openpty()
    own = environment({})
    own.pop("NO_COLOR")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], env={**own, **variables}, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    read = bytearray()
    try:
        while data := os.read(shown, 4096):
            read += data
    except OSError:
        pass  # Linux says by this that nobody writes any more.
    finally:
        os.close(shown)
    assert process.wait() in {0, 3, 7}, read  # the doctor may find a Temporal, or none
    return read.decode(errors="replace")


def test_a_terminal_has_a_heading_that_stands_out(stores: dict[str, str]) -> None:
    """The other half of the next test: it would pass if there were no terminal."""
    assert "\x1b[1m" in run_on_terminal({**stores, "TERM": "xterm"}, "session", "list")


@pytest.mark.parametrize(
    ("plain", "command"),
    [({"TERM": "dumb"}, ("session", "list")), ({"TERM": "xterm", "NO_COLOR": "1"}, ("doctor",))],
)
def test_a_terminal_that_shows_no_styles_gets_none(
    stores: dict[str, str], plain: dict[str, str], command: tuple[str, ...]
) -> None:
    """Editors and logs of CI show escapes as rubbish around each heading."""
    shown = run_on_terminal({**stores, **plain}, *command)
    assert len(shown.splitlines()) > 1
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("code_page", "command"),
    [("cp1252", ("list",)), ("cp437", ("show", "s1")), ("ascii", ("list", "--json"))],
)
def test_a_console_that_lacks_a_character_is_shown_its_number(
    stores: dict[str, str], code_page: str, command: tuple[str, ...]
) -> None:
    """Consoles of Windows, and servers without a locale: one title ended the list with a traceback."""
    found = run({**stores, "PYTHONIOENCODING": code_page}, "session", *command)
    assert (found.returncode, found.stderr) == (0, b"")
    assert "\\u6ce8\\u6587" in found.stdout.decode(code_page)


@pytest.mark.parametrize("arguments", [["--help"], ["session", "list", "--help"]])
def test_help_is_shown_where_frames_cannot_be_drawn(arguments: list[str]) -> None:
    """It is the first that somebody asks for."""
    shown = run_on_terminal({"TERM": "xterm", "PYTHONIOENCODING": "cp1252"}, *arguments)
    assert "Traceback" not in shown
    assert "Usage" in shown


@pytest.mark.parametrize(
    ("closed", "arguments", "status"),
    [
        (">&-", ["session", "list"], 0),
        (">&- 2>&- <&-", ["session", "show", "nobody"], 4),
        ("<&-", ["session", "import", "-"], 6),
        (">&-", ["--help"], 0),
    ],
)
def test_a_stream_that_was_closed_is_no_failure(
    stores: dict[str, str], closed: str, arguments: list[str], status: int
) -> None:
    """Supervisors start what they supervise so; each command ended with a traceback."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", NAMED, *arguments]
    found = subprocess.run(command, env=environment(stores), capture_output=True, check=False)
    assert found.returncode == status
    assert b"Traceback" not in found.stderr


@pytest.mark.parametrize("arguments", [["show", "nobody"], ["show", "nobody", "--json"]])
def test_a_status_does_not_depend_on_who_reads_the_error(
    stores: dict[str, str], arguments: list[str]
) -> None:
    """The reader of standard error had gone: the status was that of a bug, or of success."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", NAMED, "session", *arguments]
    done = subprocess.run(command, env=environment(stores), stderr=writer, check=False)
    os.close(writer)
    assert done.returncode == 4


@pytest.mark.parametrize(
    "command",
    [
        *(f"session {name}" for name in ("show", "tree", "usage", "messages", "turns", "export", "state")),
        *(f"thread {name}" for name in ("show", "verify", "import-v1", "export-v1")),
        "telemetry backfill --since 1h --session",
    ],
)
def test_what_is_no_id_is_refused_by_every_command(stores: dict[str, str], command: str) -> None:
    """A terminal of another encoding than UTF-8: some said that it is not there, others had a traceback."""
    found = CliRunner().invoke(app, [*command.split(), "\udcff"], env=stores)
    assert (found.exit_code, found.stdout) == (2, "")
    assert " id: lone surrogate at 0" in " ".join(found.stderr.replace("│", "").split())


@pytest.mark.parametrize(
    "command",
    [
        "cleanup --older-than nan",
        "cleanup --older-than inf",
        "telemetry backfill --since 99999999999d",
        "session context s1 --agents .",
        "session context s1 --agents /",
    ],
)
def test_a_value_that_no_conversion_takes_is_a_mistake_in_usage(stores: dict[str, str], command: str) -> None:
    """It was a traceback of Python's own."""
    found = CliRunner().invoke(app, command.split(), env=stores)
    assert (found.exit_code, found.stdout) == (2, "")
    assert isinstance(found.exception, SystemExit)


def complete(line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    asked = {
        "_HELIX_TEMPORAL_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    found = run(asked)
    assert found.stderr == b""
    return found.stdout.decode().split()


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("helix-temporal ", {"session", "doctor", "inspect"}),
        ("helix-temporal session list --f", {"--failed"}),
        ("helix-temporal session export s1 --format ", {"jsonl", "md", "openai", "af"}),
        ("helix-temporal health ", {"ready", "live", "started"}),
    ],
)
def test_a_shell_completes_names_options_and_values(line: str, some: set[str]) -> None:
    """Commands are imported when they are run: completion must find their options all the same."""
    offered = set(complete(line))
    assert some <= offered
    assert all(each.startswith(line.rpartition(" ")[2]) for each in offered)


@pytest.mark.parametrize("shell", ["bash", "powershell"])
def test_each_shell_has_its_script(shell: str) -> None:
    """``--show-completion`` is for those who keep their shell's files themselves."""
    # Else it is for the shell that runs the tests, and there may be none.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    found = run(named, "--show-completion", shell)
    assert found.returncode == 0
    assert b"HELIX_TEMPORAL_COMPLETE" in found.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["--help"], ["session", "list", "--help"]])
def test_help_for_a_full_disk_is_an_error_of_one_line(arguments: list[str]) -> None:
    """It was a traceback, as no command had begun whose errors are told in a line."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", NAMED, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment({}),
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.decode() == "OSError: [Errno 28] No space left on device\n"
