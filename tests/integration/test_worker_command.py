"""``helix-temporal worker`` and ``maintenance`` as processes, and the health check of their image."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from helix_temporal.cli.outputs import HealthAnswer
from helix_temporal.client import SessionClient
from helix_temporal.devstack.programs import free_port
from helix_temporal.settings import Settings
from helix_temporal.testing.proxy import FaultProxy
from helix_temporal.worker import connect, startup_line
from tests._commands import RUN, environment, read_until, running, start
from tests.docs._pages import ROOT
from tests.workflows._releases import build_of, make_current, until

pytestmark = pytest.mark.slow  # each starts processes

SHOP = """
from helix_temporal.agents import Agent, ScriptedModel

clerk = Agent(name="clerk", model=ScriptedModel(["I am the clerk."]))
_others = [Agent(name="cook", model=ScriptedModel(["I am the cook."]))]
NUMBER = 7
"""
FROZEN = """
import gc

from helix_temporal.agents import Agent, ModelRequest, ModelResponse


class Counts:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(str(gc.get_freeze_count()))


frozen = Agent(name="frozen", model=Counts())
"""
SLOW = """
import asyncio
from pathlib import Path

from helix_temporal.agents import Agent, ModelRequest, ModelResponse


class Waits:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        Path("called").touch()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass  # as a library does that is not to be stopped


slow = Agent(name="slow", model=Waits())
"""
HANGING = """
import asyncio
from pathlib import Path

from helix_temporal.agents import Agent, ModelRequest, ModelResponse


class Hangs:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        Path("called").touch()
        await asyncio.sleep(3600)
        return ModelResponse("")


hanging = Agent(name="hanging", model=Hangs())
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with a module of agents, and nothing of the project."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("import no_such_library")
    (tmp_path / "archive").mkdir()
    return tmp_path


@pytest.fixture
def variables(temporal_address: str, unique: str, shop: Path) -> dict[str, str]:
    return {
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_TASK_QUEUE": unique,
        "HELIX_COLD_DIRECTORY": str(shop / "archive"),
        "HELIX_HEALTH_PORT": str(free_port()),
    }


def end_before_it_serves(process: "subprocess.Popen[str]") -> None:
    """SIGTERM ends it, and it says that it has not served."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, "before it served" in output) == (143, True), output


def ask_health(variables: dict[str, str], *probe: str) -> "subprocess.CompletedProcess[str]":
    """What Docker asks: the command of the image's health check."""
    image = (ROOT / "workers" / "Dockerfile").read_text()
    (said,) = re.findall(r"^HEALTHCHECK .*? CMD helix-temporal (.*) \|\| exit 1$", image, re.MULTILINE)
    command, *asks = said.split()
    return subprocess.run(
        [sys.executable, "-c", RUN, command, *(probe or asks)],
        env=environment(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def is_healthy(variables: dict[str, str], *probe: str) -> bool:
    """What Docker would say."""
    return ask_health(variables, *probe).returncode == 0


def wait_until_healthy(variables: dict[str, str], *probe: str) -> None:
    """And until it serves: it answers earlier, and is then ended at once by SIGTERM."""
    for each in [(), ("started",), *([probe] if probe else [])]:
        for _ in range(300):
            if is_healthy(variables, *each):
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"the worker does not become healthy: {each}")


async def test_the_agents_of_a_module_are_served(variables: dict[str, str], shop: Path) -> None:
    """Without a name: all that are there, in lists as well."""
    with running(shop, variables, "worker", "shop", until="Starting a worker for clerk, cook") as process:
        assert process.poll() is None
        client, _ = await connect(Settings.from_env(variables))
        sessions = SessionClient(client, task_queue=variables["HELIX_TASK_QUEUE"])
        queue = variables["HELIX_TASK_QUEUE"]
        assert (await sessions.ask(f"{queue}-clerk", "Who?", agent="clerk")).text == "I am the clerk."
        assert (await sessions.ask(f"{queue}-cook", "Who?", agent="cook")).text == "I am the cook."


async def test_workers_have_the_version_that_the_settings_name(variables: dict[str, str], shop: Path) -> None:
    """Those of sessions and of maintenance are of one Worker Deployment: one command makes both current."""
    name = variables["HELIX_TASK_QUEUE"]
    of_sessions = {**variables, "HELIX_BUILD_ID": "abc123"}
    of_maintenance = {**of_sessions, "HELIX_HEALTH_PORT": str(free_port())}
    said = f"build 'abc123' of Worker Deployment '{name}'"
    client, _ = await connect(Settings.from_env(variables))
    with (
        running(shop, of_sessions, "worker", "shop", until=said),
        running(shop, of_maintenance, "maintenance", "--sweep", "1", until=said),
    ):
        await make_current(client, name, "abc123")
        sessions = SessionClient(client, task_queue=name)
        # Another test's session may still be there, on its own queue.
        session_id = f"{name}-clerk"
        assert (await sessions.ask(session_id, "Who?", agent="clerk")).text == "I am the clerk."
        assert await build_of(client, session_id) == "abc123"
        await until(lambda: _has_completed(client, f"{name}-maintenance"))


async def _has_completed(client: Client, task_queue: str) -> bool:
    found = [each async for each in client.list_workflows(f"TaskQueue = '{task_queue}'")]
    return any(each.status is WorkflowExecutionStatus.COMPLETED for each in found)


async def test_the_collector_leaves_out_what_a_worker_has_loaded(
    variables: dict[str, str], shop: Path
) -> None:
    """A full collection walks a hundred thousand objects that stay, and stops all sessions for that long."""
    (shop / "frozen.py").write_text(FROZEN)
    with running(shop, variables, "worker", "frozen", until="Starting a worker for"):
        client, _ = await connect(Settings.from_env(variables))
        sessions = SessionClient(client, task_queue=variables["HELIX_TASK_QUEUE"])
        answer = await sessions.ask(f"{variables['HELIX_TASK_QUEUE']}-frozen", "How many?", agent="frozen")
        assert int(answer.text or 0) > 50_000


async def test_a_store_that_is_away_is_a_few_lines_of_the_log(
    variables: dict[str, str], shop: Path, redis_url: str
) -> None:
    """Each attempt of an activity was a traceback of thirty lines, and none said what had happened."""
    redis, queue = urlsplit(redis_url), variables["HELIX_TASK_QUEUE"]
    async with FaultProxy.start(f"{redis.hostname}:{redis.port}") as proxy:
        url = redis._replace(netloc=proxy.address).geturl()
        named = {**variables, "HELIX_REDIS_URL": url, "HELIX_REDIS_PREFIX": f"{queue}:"}
        process = start(shop, named, "worker", "shop")
        output = ""
        try:
            # Serving, not merely alive: without its stores a worker waits, and asks for no work.
            output += await asyncio.to_thread(read_until, process, ": namespace ")
            client, _ = await connect(Settings.from_env(variables))
            sessions = SessionClient(client, task_queue=queue)
            proxy.refuse()
            asking = asyncio.create_task(sessions.ask(f"{queue}-clerk", "Who?", agent="clerk", timeout=60))
            both = ("helix.sessions.open failed, attempt 1, of ", "store away: ")
            output += await asyncio.to_thread(read_until, process, *both)
            proxy.refuse(False)
            assert (await asking).text == "I am the clerk."
            output += await asyncio.to_thread(read_until, process, "store back: ")
        finally:
            process.send_signal(signal.SIGTERM)
            output += (await asyncio.to_thread(process.communicate, timeout=30))[0]
    # On a busy machine one of the two stores may be late, not refused, and then it has a line of its own.
    assert output.count("store away: ") <= 2
    assert output.count("store back: ") <= 2
    assert "in redis: StoreUnavailableError: Redis at" in output
    assert "Traceback" not in output, output


def test_a_name_picks_one_and_helix_agents_is_the_default(variables: dict[str, str], shop: Path) -> None:
    """A container is told by its environment."""
    with running(shop, variables, "worker", "shop:clerk", until="Starting a worker for clerk:"):
        wait_until_healthy(variables)
    named = {**variables, "HELIX_AGENTS": "shop:_others"}
    with running(shop, named, "worker", until="Starting a worker for cook:"):
        wait_until_healthy(variables)


def test_a_worker_is_healthy_while_its_loop_turns(variables: dict[str, str], shop: Path) -> None:
    """One that is frozen is not, nor one that has ended."""
    assert not is_healthy(variables)
    with running(shop, variables, "worker", "shop", until="Starting a worker for") as process:
        wait_until_healthy(variables)
        assert is_healthy(variables, "live")
        process.send_signal(signal.SIGSTOP)
        frozen = ask_health(variables, "live")
        assert (frozen.returncode, "TimeoutError" in frozen.stdout) == (1, True)
        process.send_signal(signal.SIGCONT)
        wait_until_healthy(variables)
    assert not is_healthy(variables)


def test_with_json_a_probe_s_answer_is_data(variables: dict[str, str], shop: Path) -> None:
    """A worker that is away answers in the same form as one that is there."""
    away = HealthAnswer.model_validate_json(ask_health(variables, "live", "--json").stdout)
    assert (away.probe, away.ok, list(away.wrong)) == ("live", False, ["worker"])
    with running(shop, variables, "worker", "shop", until="Starting a worker for"):
        wait_until_healthy(variables, "ready")
        there = HealthAnswer.model_validate_json(ask_health(variables, "ready", "--json").stdout)
    assert (there.probe, there.ok, there.wrong) == ("ready", True, {})


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "0.0.0.0", "::", "localhost"])
def test_the_health_command_asks_where_the_worker_listens(
    host: str, variables: dict[str, str], shop: Path
) -> None:
    """As `HELIX_HEALTH_HOST` says: it asked 127.0.0.1 whatever that was."""
    named = {**variables, "HELIX_HEALTH_HOST": host}
    with running(shop, named, "worker", "shop", until="Starting a worker for"):
        wait_until_healthy(named)


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        (["worker", "dozy"], "importing agents"),
        (["worker", "shop"], "Starting a worker"),
        (["maintenance"], None),
    ],
)
def test_sigterm_ends_a_process_that_does_not_serve_yet(
    command: list[str], waits: str | None, variables: dict[str, str], shop: Path
) -> None:
    """By a handler: the kernel drops what the first process of a container has none for.

    Such a worker went on, took work, and was killed in the middle of it.
    """
    (shop / "dozy.py").write_text("import time\nprint('importing agents', flush=True)\ntime.sleep(60)")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It accepts, and answers nothing: the connection to Temporal waits.
        named = {**variables, "HELIX_TEMPORAL_ADDRESS": f"127.0.0.1:{silent.getsockname()[1]}"}
        process = start(shop, named, *command)
        try:
            if waits is not None:
                assert process.stdout is not None
                assert waits in process.stdout.readline()
            with silent.accept()[0] if "dozy" not in command else nullcontext():
                end_before_it_serves(process)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("command", [["worker", "shop"], ["maintenance"]])
@pytest.mark.parametrize("away", ["HELIX_TEMPORAL_ADDRESS", "HELIX_REDIS_URL"])
def test_a_command_waits_for_what_is_away(
    command: list[str], away: str, variables: dict[str, str], shop: Path
) -> None:
    """It ended with status 1; its probes answer meanwhile, and SIGTERM ends the wait."""
    nobody = f"127.0.0.1:{free_port()}"
    named = {**variables, away: f"redis://{nobody}/0" if "REDIS" in away else nobody}
    process = start(shop, named, *command)
    try:
        assert process.stdout is not None
        line = ""
        while "waiting for" not in line:
            line = process.stdout.readline()
            assert line, "it ended"
        assert nobody in line
        assert is_healthy(named, "live")
        started = ask_health(named, "started")
        assert (started.returncode, nobody in started.stdout) == (1, True)
        end_before_it_serves(process)
    finally:
        process.kill()
        process.communicate()


def test_all_that_is_away_is_named(variables: dict[str, str], shop: Path) -> None:
    """Stores as well while Temporal is away: whoever starts it once more mends all of it first."""
    nobody, no_redis = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    named = {
        **variables,
        "HELIX_TEMPORAL_ADDRESS": nobody,
        "HELIX_REDIS_URL": f"redis://{no_redis}/0",
    }
    process = start(shop, named, "worker", "shop")
    try:
        assert process.stdout is not None
        said = ""
        while not (nobody in said and no_redis in said):
            line = process.stdout.readline()
            assert line, "it ended"
            said += line if "waiting for" in line else ""
        started = ask_health(named, "started")
        assert (started.returncode, nobody in started.stdout, no_redis in started.stdout) == (1, True, True)
        end_before_it_serves(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_second_signal_ends_a_worker_that_drains(
    number: signal.Signals, status: int, variables: dict[str, str], shop: Path
) -> None:
    """Whoever presses Ctrl-C twice does not want to wait for ten minutes."""
    (shop / "slow.py").write_text(SLOW)
    process = start(shop, variables, "worker", "slow")
    try:
        client, _ = await connect(Settings.from_env(variables))
        sessions = SessionClient(client, task_queue=variables["HELIX_TASK_QUEUE"])
        asked = asyncio.create_task(
            sessions.ask(f"{variables['HELIX_TASK_QUEUE']}-slow", "Go.", agent="slow")
        )
        await until(lambda: _is_there(shop / "called"))
        process.send_signal(number)
        await until(lambda: _says(variables, "drains"))
        process.send_signal(number)
        output, _ = await asyncio.to_thread(process.communicate, timeout=30)
        assert process.returncode == status, output
        assert "second signal" in output
        asked.cancel()
    finally:
        process.kill()
        process.communicate()


async def test_a_worker_tells_what_it_cut_off_when_it_stopped(variables: dict[str, str], shop: Path) -> None:
    """A roll-out that repeats model calls is seen in the log: it said that all had finished."""
    (shop / "hanging.py").write_text(HANGING)
    limits = dict.fromkeys(("HELIX_TIMEOUT_MODEL_START_TO_CLOSE", "HELIX_TIMEOUT_TOOL_START_TO_CLOSE"), "8")
    process = start(shop, variables | limits, "worker", "hanging")
    try:
        client, _ = await connect(Settings.from_env(variables))
        sessions = SessionClient(client, task_queue=variables["HELIX_TASK_QUEUE"])
        session_id = f"{variables['HELIX_TASK_QUEUE']}-hanging"
        asked = asyncio.create_task(sessions.ask(session_id, "Go.", agent="hanging"))
        await until(lambda: _is_there(shop / "called"))
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.to_thread(process.communicate, timeout=60)
        asked.cancel()
        last = output.splitlines()[-1]
        assert (process.returncode, "finished: 0, failed: 0, cut off: 1;" in last) == (0, True), output
        assert re.search("stopping: 1 activity may still end, within .* s at most: 1 helix", output), output
    finally:
        process.kill()
        process.communicate()


async def _is_there(file: Path) -> bool:
    return await asyncio.to_thread(file.exists)


async def _says(variables: dict[str, str], text: str) -> bool:
    found = await asyncio.to_thread(ask_health, variables, "ready")
    return text in found.stdout


def test_maintenance_serves_its_schedules_and_is_healthy(variables: dict[str, str], shop: Path) -> None:
    """It must be restarted like any worker: without it nobody archives what was terminated."""
    with running(shop, variables, "maintenance", "--sweep", "30", until="schedules: ") as process:
        assert process.poll() is None
        wait_until_healthy(variables)


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["worker"], {}, "no agents are named; give MODULE[:NAME], or set HELIX_AGENTS"),
        (["worker", "nowhere"], {}, "agents: 'nowhere': No module named 'nowhere'"),
        (["worker", "broken"], {}, "agents: 'broken': No module named 'no_such_library', which "),
        (["worker", "shop.py"], {}, "agents: 'shop.py' is a path; name the module, which is 'shop'"),
        (["worker", "./inner/shop.py:baker"], {}, "is a path; name the module, which is 'inner.shop'"),
        (["worker", "shop:"], {}, "agents: 'shop:' is not MODULE or MODULE:NAME"),
        (["worker", "shop:baker"], {}, "agents: 'shop:baker': module 'shop' has no attribute 'baker'"),
        (["worker", "shop:NUMBER"], {}, "'shop:NUMBER' is int; an Agent or a list of agents expected"),
        (["worker", "json"], {}, "agents: 'json' has no Agent"),
        (["worker", "shop"], {"HELIX_HEALTH_HOST": "192.0.2.1"}, "health_port: cannot listen on 192.0.2.1:"),
        (["worker", "shop"], {"HELIX_TEMPORAL_NAMESPACE": "nope"}, "InvalidConfigError: namespace 'nope'"),
        (["maintenance", "--sweep", "0.1"], {}, "InvalidConfigError: "),
        (["maintenance"], {"HELIX_COLD_DIRECTORY": ""}, "there is no store of threads that this command"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    arguments: list[str], changes: dict[str, str], message: str, variables: dict[str, str], shop: Path
) -> None:
    """Whoever starts a container reads its last line."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        cwd=shop,
        env=environment({**variables, **changes}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_worker_says_which_store_keeps_what(
    variables: dict[str, str], shop: Path, redis_url: str, unique: str
) -> None:
    """Whoever reads the log sees where the data are, and no password."""
    address = redis_url.replace("redis://", "redis://default:hunter2@")
    told = startup_line(Settings.from_env({**variables, "HELIX_REDIS_URL": address}))
    assert "hunter2" not in told
    assert f"threads: {redis_url.replace('redis://', 'redis://***@')} (keys helix:*)" in told
    line = f"task queue '{unique}'; threads: {redis_url}"
    with running(shop, {**variables, "HELIX_REDIS_URL": redis_url}, "worker", "shop", until=line):
        wait_until_healthy(variables)


def test_a_worker_that_serves_from_memory_says_what_that_means(variables: dict[str, str], shop: Path) -> None:
    """A variable was forgotten: it must not be found out by the loss."""
    del variables["HELIX_COLD_DIRECTORY"]
    said = "Served from memory: EVERYTHING IS LOST WHEN THIS PROCESS ENDS"
    with running(shop, variables, "worker", "shop", until=said):
        wait_until_healthy(variables)


def test_a_worker_with_a_misspelt_variable_does_not_start(variables: dict[str, str], shop: Path) -> None:
    """It would serve from memory, and seem to work."""
    found = subprocess.run(
        [sys.executable, "-c", RUN, "worker", "shop"],
        cwd=shop,
        env=environment({**variables, "HELIX_REDIS_URI": "redis://user:hunter2@localhost"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert "HELIX_REDIS_URI is no setting: perhaps HELIX_REDIS_URL is meant" in found.stderr
    assert "hunter2" not in found.stderr
