"""The examples run as their pages say, on real servers, each in processes of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from helix_temporal.cli.statuses import ExitStatus
from tests.docs._pages import ROOT

pytestmark = pytest.mark.slow  # each starts processes

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is order 7?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "at your door"},
    {"role": "assistant", "content": "At your door. 祝好"},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You're welcome."},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "Bye."},
]


@pytest.fixture
def variables(
    temporal_address: str, redis_url: str, s3_variables: dict[str, str], unique: str
) -> dict[str, str]:
    """What `helix-temporal dev` prints, with names of the test's own."""
    return {
        "HELIX_TEMPORAL_ADDRESS": temporal_address,
        "HELIX_REDIS_URL": redis_url,
        **s3_variables,
        "HELIX_REDIS_PREFIX": f"{unique}:",
        "HELIX_TASK_QUEUE": unique,
    }


ALL_FINISHED = ("Stopped: no activity was running", "Stopped: what was running has finished")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The test's own, with nothing of the package's but these variables."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
    return {**own, **variables, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def run(command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program of the project from its directory."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def complaints(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """See `complaints_in`."""
    return complaints_in(ran.stderr)


def complaints_in(stderr: str) -> list[str]:
    """What a program wrote to stderr, but for the client's lines about a worker that it waits for.

    On a busy machine one may take longer than the client's patience to start, or to follow one that died.
    """
    return [line for line in stderr.splitlines() if "waiting for " not in line]


@contextmanager
def running(script: str, variables: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A worker for as long as the block runs; it must then stop by itself when told to."""
    process = subprocess.Popen(
        [sys.executable, script],
        cwd=ROOT,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith(ALL_FINISHED)


def test_the_client_gets_an_answer_from_the_worker(variables: dict[str, str], unique: str) -> None:
    """The three terminals of the quickstart; short programs must also end well."""
    with running("workers/session_worker.py", variables):
        asked = run(["examples/quickstart/client.py", unique], variables)
        again = run(["examples/quickstart/client.py", unique, "hello"], variables)
    assert (asked.returncode, complaints(asked)) == (0, [])
    assert "shipped" in asked.stdout
    assert (again.returncode, complaints(again)) == (0, [])
    assert again.stdout.startswith("I remember 4 messages")


def test_the_maintenance_worker_starts_and_stops(variables: dict[str, str]) -> None:
    """It says where what is kept, which task queue it serves, and which schedules it keeps."""
    name = variables["HELIX_TASK_QUEUE"]
    with running("workers/maintenance_worker.py", variables) as process:
        assert process.stdout is not None
        stores, queue, schedules = (process.stdout.readline() for _ in range(3))
    assert f"threads: {variables['HELIX_REDIS_URL']} (keys {name}:*)" in stores
    assert f"archive: s3://{variables['HELIX_S3_BUCKET']}/{name};" in stores
    assert f"'{name}-maintenance'" in queue
    assert schedules.count("helix-maintenance/") == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"HELIX_AGENTS": "nowhere:agent"}, "InvalidConfigError: agents: 'nowhere:agent': No module"),
        ({"HELIX_AGENTS": "agent:ORDERS"}, "'agent:ORDERS' is dict; an Agent or a list of agents expected"),
        ({"HELIX_FLUSH": "never"}, "InvalidConfigError: flush (HELIX_FLUSH):"),
    ],
)
def test_a_worker_that_is_set_up_wrongly_says_what_is_wrong(changes: dict[str, str], message: str) -> None:
    """One line, no traceback."""
    ran = run(["workers/session_worker.py"], changes)
    assert ran.returncode == ExitStatus.USAGE
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_model_of_ones_own_answers_once_it_is_no_longer_busy(variables: dict[str, str]) -> None:
    """The rate limit is kept, and the answer to the first question is in the second one's context."""
    ran = run(["examples/own_model/own_model.py"], variables)
    assert (ran.returncode, complaints(ran)) == (0, [])
    assert ran.stdout.count("busy") == 1
    assert "You said 'And the sea.', and 1 things before." in ran.stdout


def test_a_refund_waits_for_its_approval_in_a_session_that_is_open_and_in_one_that_has_ended(
    variables: dict[str, str],
) -> None:
    """Whoever comes second is told so, whoever asks again gets the answer, and each refund is paid once."""
    ran = run(["examples/support_approval/support_approval.py"], variables)
    assert (ran.returncode, complaints(ran)) == (0, [])
    waits, leaves, comes_back, paid = ran.stdout.split("\n\n")
    assert "Mara:      I approve refund(order_id='NL-20417')." in waits
    assert waits.endswith("agent:     You get your money back: 189 euros for the tent (NL-20417).")
    assert "[the session has ended: suspended; nothing runs]" in leaves
    assert "[Redis has forgotten the session" in leaves
    assert comes_back.count("submitted") == comes_back.count("already_completed") == 1
    assert comes_back.endswith("agent:     You get your money back: 54 euros for the stove (NL-20433).")
    assert len(paid.splitlines()) == 3
    assert max(len(line) for line in ran.stdout.splitlines()) <= 100


def test_a_conversation_goes_on_from_s3_after_redis_was_wiped(variables: dict[str, str]) -> None:
    """All of it is there on another worker; an edit leaves the original alone, and a rewind the fork."""
    ran = run(["examples/resume_cold/resume_cold.py"], variables)
    assert (ran.returncode, complaints(ran)) == (0, [])
    monday, between, friday, ship, back, original, fork = ran.stdout.split("\n\n")
    assert "[Redis: the thread, " in monday
    assert "[Redis: no thread, " in between
    assert "[read from S3, without a session: 6 messages]" in friday
    assert "We have: I go to Norway; I go by train; I have five days." in friday
    assert "We have: I go to Norway; I go by ship." in ship
    assert "4. What have we planned?" in back
    assert [line.split("  ")[-3].strip()[3:] for line in original.splitlines()[1:]] == [
        "I go to Norway.",
        "I go by train.",
        "I have four days.",
    ]
    assert [line.split("  ")[-3].strip()[3:] for line in fork.splitlines()[1:]] == [
        "I go to Norway.",
        "I go by ship.",
        "What have we planned?",
    ]
    assert max(len(line) for line in ran.stdout.splitlines()) <= 100


def test_specialists_work_side_by_side_and_an_approval_is_given_at_the_root(
    variables: dict[str, str],
) -> None:
    """One of them remembers its tasks, the other knows what the lead wrote; the lead's bill is the sum."""
    ran = run(["examples/sub_agents/sub_agents.py"], variables)
    assert (ran.returncode, complaints(ran)) == (0, [])
    first, second, bill = ran.stdout.split("\n\n")
    assert [first.count(f"[{name} begins") for name in ("researcher", "critic")] == [1, 1]
    assert "[buy_report(topic='lighthouses') waits for an approval, in " in first
    assert first.count("submitted") == 1
    assert "critic:       Begin with a number." in first
    assert "(My task number 2.)" in second
    assert "critic:       Do not repeat what you wrote for 'Lighthouses in Norway'." in second
    assert "submitted" not in second
    *parts, whole = [int(line.split()[1]) for line in bill.splitlines()[1:]]
    assert (len(parts), sum(parts)) == (4, whole)
    assert max(len(line) for line in ran.stdout.splitlines()) <= 100


def test_a_shop_is_shown_by_the_inspector_until_it_is_told_to_end(variables: dict[str, str]) -> None:
    """The link that is printed shows the shop's sessions; Ctrl-C ends both without a complaint."""
    shop = subprocess.Popen(
        [sys.executable, "examples/lamp_shop/lamp_shop.py"],
        cwd=ROOT,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert shop.stdout is not None
        link = next(line.strip() for line in shop.stdout if "token=" in line)
        with httpx.Client(follow_redirects=True) as http:
            sessions = http.get(link).text
            waiting = http.get(urljoin(link, "waiting")).text
    finally:
        shop.send_signal(signal.SIGINT)
        _, complaints_of_shop = shop.communicate(timeout=60)
    assert "order-4711/returns" in sessions
    assert "refund" in waiting
    assert (shop.returncode, complaints_in(complaints_of_shop)) == (0, ["Ctrl-C stops it."])
    with pytest.raises(httpx.ConnectError):
        httpx.get(link)


@pytest.mark.slow
def test_the_demo_plays_any_conversation_and_every_number_is_right(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """The main job: two workers killed, Redis wiped, nothing lost, nothing doubled, nothing paid twice."""
    path = tmp_path / "short.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in CONVERSATION))
    ran = run(["examples/quickstart/demo.py", str(path)], variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert complaints(ran) == []
    assert ran.stdout.count("killed (SIGKILL)") == 2
    assert "All numbers are right" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines()) <= 100


def test_the_demo_says_in_one_line_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    """Nobody should read a traceback to learn that a path is wrong."""
    ran = run(["examples/quickstart/demo.py", str(tmp_path / "nothing.json")], {})
    assert ran.returncode == 1
    assert len(ran.stdout.splitlines()) == 1
    assert ran.stderr == ""


def test_workflows_of_ones_own_run_beside_the_packs(variables: dict[str, str]) -> None:
    """What was answered before the cancel is known in the next lesson; the order files its report."""
    ran = run(["examples/own_workflow/own_workflow.py"], variables)
    assert (ran.returncode, complaints(ran)) == (0, [])
    assert ran.stdout.count("[the lesson is canceled]") == 2
    assert "Before that you asked: Why does it rain?" in ran.stdout
    assert ran.stdout.rstrip().endswith(": 2 turns]")


def test_the_tests_of_an_example_pass_where_they_stand_alone(tmp_path: Path) -> None:
    """The folder is copied and run as its page says: nothing of the project's own tests is there to help."""
    folder = shutil.copytree(ROOT / "examples" / "own_workflow", tmp_path / "own_workflow")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:langsmith_plugin",
            "-p",
            "no:cacheprovider",
        ],
        cwd=folder,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout
