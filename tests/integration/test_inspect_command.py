"""``helix-temporal inspect`` as a process: its link, what it needs, and its end."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from shop_agents import make_agents

from helix_temporal.backends import Backends
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.devstack.programs import free_port
from helix_temporal.inspector.server import bind
from helix_temporal.models.states import CreateSession
from helix_temporal.settings import Settings
from helix_temporal.testing.environment import helix_env
from tests._commands import RUN, environment, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

AGENTS = """
from helix_temporal.agents import Agent, ScriptedModel

clerk = Agent(name="clerk", model=ScriptedModel(["I am the clerk."]), instructions="Be a clerk.")
"""


async def make_database(directory: Path) -> None:
    """As a worker leaves it that has had no session yet."""
    backends = Backends(Settings(data_directory=directory / "data"))
    assert not await backends.sessions.session_exists("s1")
    await backends.close()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Stores in a directory, with nothing in them, and a Temporal that is not there."""
    asyncio.run(make_database(tmp_path))
    return {
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}",
        "HELIX_ALLOW_PLAINTEXT": "true",
    }


@contextmanager
def inspecting(
    directory: Path, variables: dict[str, str], *arguments: str
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command while it serves, with the link that it printed."""
    process = start(directory, variables, "inspect", "--port", "0", *arguments)
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        assert link.startswith("http://127.0.0.1:"), link + process.stdout.read()
        yield process, link
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert "Traceback" not in output


def run(directory: Path, variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command until it ends by itself."""
    process = start(directory, variables, "inspect", *arguments)
    output, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, output)


def browse(link: str) -> httpx.Client:
    """A browser that opens links."""
    parts = urlsplit(link)
    return httpx.Client(base_url=f"http://{parts.netloc}", follow_redirects=True, timeout=60)


async def fill(directory: Path) -> None:
    """One session, in SQLite."""
    backends = Backends(Settings(data_directory=directory / "data"))
    assert backends.sessions is not None
    await backends.sessions.create_session("s1", CreateSession(title="Lamps"))
    await backends.close()


def test_the_link_shows_sessions_without_a_worker_and_without_temporal(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Somebody looks at what is left when everything else is down."""
    asyncio.run(fill(tmp_path))
    with inspecting(tmp_path, variables) as (_, link), browse(link) as browser:
        assert browser.get("/").status_code == 403
        assert "Lamps" in browser.get(link).text
        assert browser.get("/sessions/s1").status_code == 200
        maintenance = browser.get("/maintenance")
        assert maintenance.status_code == 200
        assert "Temporal" in maintenance.text
        forms = browser.get("/sessions/s1").text
        assert 'method="post"' not in forms


def test_an_action_without_temporal_is_told_to_have_come_to_nothing(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    """Instead of an error page, or of the belief that it was done."""
    asyncio.run(fill(tmp_path))
    with inspecting(tmp_path, variables, "--allow-actions") as (_, link), browse(link) as browser:
        browser.get(link)
        (csrf,) = [value for name, value in browser.cookies.items() if "form" in name]
        done = browser.post(
            "/sessions/s1/stop",
            data={"csrf": csrf, "run_id": "r1"},
            headers={"Origin": link.partition("/?")[0]},
        )
    assert done.status_code == 200
    assert "Temporal does not answer" in done.text


def test_two_starts_have_two_tokens(tmp_path: Path, variables: dict[str, str]) -> None:
    """A link of yesterday opens nothing."""
    with inspecting(tmp_path, variables) as (_, first):
        pass
    with inspecting(tmp_path, variables) as (_, second), browse(second) as browser:
        assert browser.get("/?" + urlsplit(first).query).status_code == 403


def test_ctrl_c_ends_it_at_once_also_while_somebody_follows(tmp_path: Path) -> None:
    """A stream has no end of its own; the server must not wait for it."""

    async def fill() -> None:
        async with helix_env(make_agents(), directory=tmp_path) as env:
            await env.sessions.ask("s1", "Hello?", agent="support")

    asyncio.run(fill())
    variables = {
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_COLD_DIRECTORY": str(tmp_path / "archive"),
        "HELIX_ALLOW_PLAINTEXT": "true",
    }
    with inspecting(tmp_path, variables) as (process, link), browse(link) as browser:
        browser.get(link)
        with browser.stream("GET", "/sessions/s1/live?shown=0") as live:
            lines = live.iter_lines()
            assert next(lines) == "retry: 1000"
            process.send_signal(signal.SIGINT)
            # It gets its end rather than a broken connection.
            list(lines)
        assert process.wait(timeout=20) == 0


def test_a_port_in_use_is_told_in_a_line(tmp_path: Path, variables: dict[str, str]) -> None:
    """With another one to choose."""
    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, variables, "--port", port)
    assert done.returncode == ExitStatus.USAGE
    assert port in done.stdout
    assert "--port" in done.stdout
    assert "Traceback" not in done.stdout


def test_it_does_not_listen_to_others(tmp_path: Path, variables: dict[str, str]) -> None:
    """A container's habit of 0.0.0.0 would show conversations to the network."""
    done = run(tmp_path, variables, "--host", "0.0.0.0")
    assert done.returncode == ExitStatus.USAGE
    assert "this machine alone" in done.stdout


@pytest.mark.parametrize(
    "option", [("--temporal-ui", "javascript:alert(1)"), ("--allow-host", "a b")], ids=["link", "host"]
)
def test_an_address_that_is_none_is_told_before_anything_is_served(
    tmp_path: Path, variables: dict[str, str], option: tuple[str, str]
) -> None:
    """Later it would be a link that does nothing, or a tunnel that is refused."""
    done = run(tmp_path, variables, "--port", "0", *option)
    assert done.returncode == ExitStatus.USAGE
    assert option[1] in done.stdout
    assert "Traceback" not in done.stdout


def test_stores_in_memory_have_nothing_to_show(tmp_path: Path) -> None:
    """Another process's memory can't be read; the page would be empty without a reason."""
    done = run(tmp_path, {})
    assert done.returncode == ExitStatus.USAGE
    assert "HELIX_DATA_DIRECTORY" in done.stdout


def test_agents_are_found_beside_it(tmp_path: Path, variables: dict[str, str]) -> None:
    """As `helix-temporal worker` finds them; a wrong name is told before anything is served."""
    (tmp_path / "desk.py").write_text(AGENTS)
    with inspecting(tmp_path, variables, "--agents", "desk") as (_, link), browse(link) as browser:
        assert browser.get(link).status_code == 200
    done = run(tmp_path, variables, "--agents", "desk:cook")
    assert done.returncode == ExitStatus.USAGE
    assert "cook" in done.stdout


def test_a_tunnels_name_is_answered_if_it_is_told(tmp_path: Path, variables: dict[str, str]) -> None:
    """``ssh -L`` with another port: the browser asks for the tunnel's."""
    with (
        inspecting(tmp_path, variables, "--allow-host", "localhost:9000") as (_, link),
        browse(link) as browser,
    ):
        path = f"/?{urlsplit(link).query}"
        tunnel = browser.get(path, headers={"Host": "localhost:9000"}, follow_redirects=False)
        assert tunnel.status_code == 303
        assert browser.get(path, headers={"Host": "localhost:9001"}).status_code == 421
        assert browser.get(link).status_code == 200


def test_its_help_names_no_token_and_all_options(tmp_path: Path) -> None:
    """What somebody reads first."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, "inspect", "--help"],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    for option in (
        "--open",
        "--allow-actions",
        "--agents",
        "--temporal-ui",
        "--allow-host",
        "--port",
        "--host",
    ):
        assert option in done.stdout
