"""Failures of every provider, through every adapter: typed, told once, and never half an answer."""

import asyncio

import pytest

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelStreamEndedError,
    ModelUnavailableError,
)
from helix_temporal.models.messages import Finish, why_not_run
from tests.adapters._standin import Reply, StandIn
from tests.adapters._talk import WEATHER, answer_of, asking, goes_on
from tests.adapters._wires import CHAT, RESPONSES, WIRES, Wire

EVERY = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
OPENAI = pytest.mark.parametrize("wire", [CHAT, RESPONSES], ids=["chat", "responses"])
ALONE = pytest.mark.parametrize("name", [name for name, wire in WIRES.items() if wire.key])


def each(of: str) -> pytest.MarkDecorator:
    """Every wire with each of its cases of a kind."""
    cases = [(name, wire, case) for name, wire in WIRES.items() for case in getattr(wire, of)]
    found = [pytest.param(wire, case, id=f"{name}-{case}") for name, wire, case in cases]
    return pytest.mark.parametrize(("wire", "case"), found)


async def failure(wire: Wire, standin: StandIn, reply: Reply) -> HelixError:
    """The error of a call that is answered so; it quotes nothing, and the client asks once."""
    standin.will(reply)
    async with wire.made(standin) as model:
        with pytest.raises(HelixError) as raised:
            await answer_of(model, asking("Grüezi"))
    error = raised.value
    assert "secret" not in str(error)
    assert "Grüezi" not in str(error)
    assert error.__cause__ is None
    assert len(standin.asked) == 1
    return error


@EVERY
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ModelRequestError),
        (401, ModelRequestError),
        (403, ModelRequestError),
        (404, ModelRequestError),
        (413, ModelRequestError),
        (408, ModelUnavailableError),
        (429, ModelRateLimitedError),
        (500, ModelUnavailableError),
        (503, ModelUnavailableError),
        (529, ModelUnavailableError),
    ],
)
async def test_failures_are_typed(
    standin: StandIn, wire: Wire, status: int, expected: type[HelixError]
) -> None:
    """A wrong key is not tried for an hour, an overload not given up; histories are read by others."""
    error = await failure(wire, standin, wire.refused(status, retry_after="3"))
    assert type(error) is expected
    assert (error.facts["status"], error.facts["retry_after_ms"]) == (status, 3000)
    assert str(status) in str(error)
    assert "some_code" in str(error).lower()


@EVERY
async def test_a_failure_without_a_word_is_one(standin: StandIn, wire: Wire) -> None:
    """Some servers say no more than the status."""
    assert type(await failure(wire, standin, wire.refused(503, None))) is ModelUnavailableError


@OPENAI
async def test_an_account_without_money_is_not_asked_again(standin: StandIn, wire: Wire) -> None:
    """It comes with the status of a limit of rate, and no waiting mends it."""
    assert type(await failure(wire, standin, wire.refused(429, "insufficient_quota"))) is ModelRequestError


@OPENAI
async def test_a_prompt_that_a_filter_refuses_is_a_withheld_answer(standin: StandIn, wire: Wire) -> None:
    """Azure tells so with a status of failure; trying again would not help."""
    standin.will(wire.refused(400, "content_filter"))
    async with wire.made(standin) as model:
        answer = await answer_of(model, asking("bad"))
    assert (answer.content, answer.finish) == ("", Finish.CONTENT_FILTER)


@each("limits")
async def test_a_rate_limit_says_when_to_come_again(standin: StandIn, wire: Wire, case: str) -> None:
    """Temporal waits so long, and not at all in the worker."""
    reply, after = wire.limits[case]
    error = await failure(wire, standin, reply)
    assert isinstance(error, ModelRateLimitedError)
    assert error.facts.get("retry_after_ms") == after


@each("cuts")
async def test_a_stream_that_is_cut_is_no_answer(standin: StandIn, wire: Wire, case: str) -> None:
    """Half an answer in the thread would be taken for a whole one."""
    assert type(await failure(wire, standin, wire.cuts[case])) is ModelStreamEndedError


@each("within")
async def test_a_failure_within_a_stream_is_the_same_failure(standin: StandIn, wire: Wire, case: str) -> None:
    """The status was sent long before."""
    reply, expected = wire.within[case]
    assert type(await failure(wire, standin, reply)) is expected


@each("malformed")
async def test_arguments_that_cannot_be_read_are_told_to_the_model(
    standin: StandIn, wire: Wire, case: str
) -> None:
    """A model's slip costs a step, never the turn; it sees its own words again, and its other calls run."""
    given = wire.malformed[case]
    standin.will(wire.calls(given), wire.text)
    async with wire.made(standin) as model:
        answer = await answer_of(model, asking("go", tools=[WEATHER]))
        await goes_on(model, answer)
    first, *others = [why_not_run(call) for call in answer.tool_calls]
    assert "not run" in (first or "")
    assert not any(others)
    sent, expected = wire.again
    assert sent(standin.bodies[1]) == expected(given)


@EVERY
async def test_nobody_there_is_worth_another_attempt(wire: Wire) -> None:
    """Networks fail and come back; a refused connection is no fault of the request."""
    async with wire.made(StandIn("http://127.0.0.1:9")) as model:
        with pytest.raises(ModelUnavailableError, match="did not answer"):
            await answer_of(model, asking("go"))


@EVERY
async def test_a_call_that_is_given_up_ends_at_once(standin: StandIn, wire: Wire) -> None:
    """A turn that is stopped does not wait for its model, nor goes on paying for tokens."""
    reached, hanging = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await hanging.wait()

    standin.will(Reply((b"x" * 100_000,) * 100, before=wait))
    async with wire.made(standin) as model:
        task = asyncio.create_task(answer_of(model, asking("go")))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    hanging.set()


@ALONE
async def test_without_a_key_the_worker_says_so(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Keys come from the worker's environment; a missing one is named."""
    wire = WIRES[name]
    for each in (wire.key, *wire.others):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv(wire.address, standin.url)
    model = wire.alone()
    with pytest.raises(InvalidConfigError, match=wire.key):
        await answer_of(model, asking("go"))
    await model.aclose()


@ALONE
async def test_a_client_is_made_from_the_workers_environment(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It says where, and with which key, which is nowhere but in a header; the adapter closes it."""
    wire = WIRES[name]
    for each in wire.others:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(wire.key, "k-from-env")
    monkeypatch.setenv(wire.address, standin.url)
    standin.will(wire.text)
    model = wire.alone()
    await answer_of(model, asking("go"))
    await model.aclose()
    (asked,) = standin.asked
    assert "k-from-env" in " ".join(asked.headers.values())
    assert b"k-from-env" not in asked.data
