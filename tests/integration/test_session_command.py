"""``helix-temporal session …`` on real stores, of sessions that a real worker has run."""

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator

from helix_temporal.client import SessionClient
from helix_temporal.models.states import SessionProperties
from helix_temporal.settings import Settings
from helix_temporal.testing.proxy import FaultProxy
from helix_temporal.worker import connect
from tests._commands import RUN, environment, read_until, running
from tests.unit.cli._schemas import file_of

pytestmark = pytest.mark.slow  # each starts processes

AGENTS: Final = '''
from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ToolOutcome, agent_tool, tool
from helix_temporal.models.agents import TextDelta
from helix_temporal.models.messages import ToolCall, Usage

USED = Usage(input_tokens=20, output_tokens=5)


@tool
async def weather(city: str) -> ToolOutcome:
    """The weather in a city."""
    if city == "Atlantis":
        return ToolOutcome("no such city", is_error=True)
    return ToolOutcome(f"sunny in {city}")


class Desk:
    """Asks for the tool that the user names, and says what it was given, word by word."""

    async def stream(self, request: ModelRequest):
        last = request.messages[-1]
        if last.role == "user" and " " in last.text:
            name, _, value = last.text.partition(" ")
            key = "city" if name == "weather" else "task"
            call = ToolCall(id=f"call-{last.id}", name=name, arguments={key: value})
            yield ModelResponse("", tool_calls=(call,), usage=USED)
            return
        for word in ("I", "heard:", last.text):
            yield TextDelta(f"{word} ")
        yield ModelResponse(f"I heard: {last.text} ", usage=USED)


cook = Agent(name="cook", model=Desk())
TOOLS = [weather, agent_tool("cook", agent=cook)]
desk = Agent(name="desk", model=Desk(), instructions="Be kind.", tools=TOOLS)
'''


@pytest.fixture(params=["servers", "directory"])
def variables(
    request: pytest.FixtureRequest,
    temporal_address: str,
    redis_url: str,
    postgres_dsn: str,
    s3_variables: dict[str, str],
    unique: str,
    table_prefix: str,
    tmp_path: Path,
) -> dict[str, str]:
    """Redis, PostgreSQL and S3 under names of the test's own; or one directory."""
    stores = {
        "servers": {
            "HELIX_REDIS_URL": redis_url,
            "HELIX_REDIS_PREFIX": f"{unique}:",
            "HELIX_POSTGRES_DSN": postgres_dsn,
            "HELIX_TABLE_PREFIX": table_prefix,
            **s3_variables,
        },
        "directory": {"HELIX_DATA_DIRECTORY": str(tmp_path / "data")},
    }
    (tmp_path / "office.py").write_text(AGENTS)
    found: dict[str, str] = {
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_TASK_QUEUE": unique,
        "HELIX_ALLOW_PLAINTEXT": "true",
        **stores[request.param],
    }
    if request.param == "servers":
        assert run(found, "migrate").returncode == 0
    return found


@pytest.fixture
def worker(variables: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """A worker that serves the agents."""
    with running(tmp_path, variables, "worker", "office", until="Starting a worker for"):
        yield


def run(
    variables: dict[str, str], *arguments: str, cwd: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Call ``helix-temporal`` as a process."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=cwd,
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def read(variables: dict[str, str], *arguments: str) -> Any:
    """The object that a command prints with ``--json``; it fits the command's schema."""
    found = run(variables, *arguments, "--json")
    assert found.returncode == 0, found.stderr
    value = json.loads(found.stdout)
    fits(" ".join(arguments[:2]), value)
    return value


def read_lines(variables: dict[str, str], *arguments: str) -> list[Any]:
    """The objects that a command prints with ``--json``, one a line."""
    found = run(variables, *arguments, "--json")
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


def fits(command: str, value: Any) -> None:
    Draft202012Validator(json.loads(file_of(command).read_text())).validate(value)


async def ask(variables: dict[str, str], session_id: str, *texts: str) -> None:
    """Ask a session, one text after the other."""
    client, _ = await connect(Settings.from_env(variables))
    sessions = SessionClient(client, task_queue=variables["HELIX_TASK_QUEUE"])
    for text in texts:
        await sessions.ask(
            session_id, text, agent="desk", properties=SessionProperties(user_id="anna"), timeout=60
        )


def test_what_a_worker_has_run_is_read_without_it(
    variables: dict[str, str], worker: None, unique: str, tmp_path: Path
) -> None:
    """The list, where it stands, each turn with its calls, tokens, and the sub-agent's session below it."""
    session = f"{unique}-office"
    asyncio.run(ask(variables, session, "weather Bern", "weather Atlantis", "cook soup"))

    (listed,) = read(variables, "session", "list", "--user", "anna", "--roots")["sessions"]
    assert (listed["session_id"], listed["agent"]) == (session, "desk")
    shown = read(variables, "session", "show", session)
    assert (shown["turns"], shown["messages"]) == (3, 12)
    turns = read(variables, "session", "turns", session)["turns"]
    assert [(turn["number"], turn["text"], turn["failed_calls"]) for turn in turns] == [
        (1, "weather Bern", 0),
        (2, "weather Atlantis", 1),
        (3, "cook soup", 0),
    ]
    assert all(turn["tokens"]["input"] for turn in turns)
    tree = read(variables, "session", "tree", session)
    (child,) = tree["children"]
    assert child["overview"]["agent"] == "cook"
    assert tree["sums"]["tokens"]["input"] > tree["usage"]["tokens"]["input"]
    usage = read(variables, "session", "usage", session)
    assert usage["by_tool"]["weather"] == {**usage["by_tool"]["weather"], "calls": 2, "failed": 1}
    text = run(variables, "session", "messages", session, "--turn", "1").stdout
    assert '    → weather {"city":"Bern"}\n' in text
    assert ": sunny in Bern\n" in text
    assert "    I heard: sunny in Bern\n" in text


def test_the_call_that_failed_is_found_and_what_the_model_had_been_given(
    variables: dict[str, str], worker: None, unique: str, tmp_path: Path
) -> None:
    """Which tool call of a user failed, and why was it made: two commands, the first prints the second."""
    session = f"{unique}-office"
    asyncio.run(ask(variables, session, "weather Bern", "weather Atlantis"))

    (found,) = read_lines(variables, "session", "calls", "--user", "anna", "--failed", "--since", "1h")
    fits("session calls", found)
    assert (found["session_id"], found["turn"], found["call"]["name"]) == (session, 2, "weather")
    assert read_lines(variables, "session", "calls", "--user", "bob", "--failed") == []
    printed = run(variables, "session", "calls", "--user", "anna", "--failed").stdout
    (command,) = [line.strip() for line in printed.splitlines() if "helix-temporal" in line]
    asked = run(variables, *shlex.split(command)[1:], "--agents", "office", "--json", cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    context = json.loads(asked.stdout)
    fits("session context", context)
    assert context["answer"] == found["message_position"]
    texts = [part["text"] for part in context["parts"] if part["kind"] in {"message", "input"}]
    assert "weather Atlantis" in texts[-1]


def test_states_of_checkpoints_differ(variables: dict[str, str], worker: None, unique: str) -> None:
    """Checkpoints are listed, and each can be compared with now."""
    session = f"{unique}-office"
    asyncio.run(ask(variables, session, "hello", "again"))

    listed = read(variables, "session", "checkpoints", session)["checkpoints"]
    oldest = listed[-1]["checkpoint_id"]
    at = read(variables, "session", "state", session, "--at", oldest)
    assert at["checkpoint"]["checkpoint_id"] == oldest
    compared = run(variables, "session", "state", session, "--diff", oldest, "--json")
    fits("session state --diff", json.loads(compared.stdout))


def test_a_session_is_followed_live(
    variables: dict[str, str], worker: None, unique: str, tmp_path: Path
) -> None:
    """What was said before is there, then each piece comes as it comes; Ctrl-C ends it by 130."""
    session = f"{unique}-office"
    asyncio.run(ask(variables, session, "first"))
    text = _start(variables, "session", "messages", session, "--follow")
    lines = _start(variables, "session", "messages", session, "--follow", "--json")
    try:
        seen = read_until(text, "I heard: first")
        asyncio.run(ask(variables, session, "weather Bern"))
        seen += read_until(text, "turn ended: completed")
        chunks = list[dict[str, Any]]()
        reading = threading.Thread(target=_read_turn, args=(lines, chunks), daemon=True)
        reading.start()
        # It says nothing before the first chunk: nobody knows whether it came in time for that turn.
        while reading.is_alive():
            asyncio.run(ask(variables, session, "weather Bern"))
    finally:
        ends = [_interrupt(process) for process in (text, lines)]
    assert '    → weather {"city":"Bern"}\n' in seen
    assert "    I heard: sunny in Bern" in seen
    types = [chunk["chunk"]["type"] for chunk in chunks]
    assert types.count("text_delta") >= 1
    fits("session messages --follow", chunks[0])
    assert ends == [(130, ""), (130, "")]


def _read_turn(process: "subprocess.Popen[str]", chunks: list[dict[str, Any]]) -> None:
    """Lines of --json up to the end of a turn."""
    assert process.stdout is not None
    for line in process.stdout:
        chunks.append(json.loads(line))
        if chunks[-1]["chunk"]["type"] == "run_ended":
            return


def _start(variables: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _interrupt(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Ctrl-C; the exit status, and what was said on standard error."""
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, said


# ---- stores that are away -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--all"], ["show", "x"], ["messages", "x"], ["calls"]]
)
def test_a_store_that_is_away_is_status_7(postgres_dsn: str, table_prefix: str, arguments: list[str]) -> None:
    """A script may try again; nothing on standard output pretends to be a result."""

    async def read_without_store() -> "subprocess.CompletedProcess[str]":
        dsn = urlsplit(postgres_dsn)
        async with FaultProxy.start(f"{dsn.hostname}:{dsn.port}") as proxy:
            user = dsn.netloc.rpartition("@")[0]
            address = f"{user}@{proxy.address}" if user else proxy.address
            proxy.refuse()
            variables = {
                "HELIX_POSTGRES_DSN": dsn._replace(netloc=address).geturl(),
                "HELIX_TABLE_PREFIX": table_prefix,
                "HELIX_ALLOW_PLAINTEXT": "true",
            }
            return await asyncio.to_thread(run, variables, "session", *arguments, "--json")

    found = asyncio.run(read_without_store())
    assert (found.returncode, found.stdout) == (7, "")
    assert json.loads(found.stderr)["error"]["exit_status"] == 7
