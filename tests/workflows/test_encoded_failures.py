"""Failures whose texts are encoded, also by a codec with a key for each workflow, are told as others are."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
from temporalio.client import Client
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    SerializationContext,
)

from helix_temporal.client import SessionClient, _diagnosis, workflow_id
from helix_temporal.errors import ForeignDeploymentError
from helix_temporal.workflows.runners import TASK_NOT_DONE, TaskMarkers, TaskNotDoneError
from tests.workflows import _users_own as own
from tests.workflows._guests import served_with
from tests.workflows._ways import left_unserved

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENCODED = DataConverter(failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
KEYED = dataclasses.replace(ENCODED, payload_codec=own.KeyedByWorkflow())
CONVERTERS = {"default": DataConverter.default, "encoded": ENCODED, "keyed": KEYED}
SAID = "ConnectionError: model of agent 'away': ConnectionError: the secret was refused"


@pytest.fixture
async def sid(temporal_address: str) -> AsyncIterator[str]:
    """A session whose run is terminated at the end."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    yield session_id
    client = await Client.connect(temporal_address)
    await client.get_workflow_handle(workflow_id(session_id)).terminate()


async def failing_of(sessions: SessionClient, session_id: str) -> str:
    """What the first failing call of a session says, once there is one."""
    async with asyncio.timeout(20):
        while not (found := (await sessions.session(session_id).get_status()).failing):  # noqa: ASYNC110 (a server tells)
            await asyncio.sleep(0.05)
    return found[0].error


@pytest.mark.usefixtures("patient_causes")
@pytest.mark.parametrize("converter", CONVERTERS)
async def test_a_failing_call_is_told(temporal_address: str, sid: str, converter: str) -> None:
    """By the status and by the time-out of who asks; they raised the codec's own error."""
    async with served_with(temporal_address, CONVERTERS[converter]) as served:
        await served.sessions.send(sid, "hello", agent="away")
        assert await failing_of(served.sessions, sid) == SAID
        with pytest.raises(TimeoutError) as caught:
            await served.sessions.ask(sid, "hello", agent="away", timeout=1)
        assert SAID in str(caught.value)


class NoKeyForActivities(own.KeyedByWorkflow):
    """Of a client that may read what workflows say and nothing of their activities."""

    def with_context(self, context: SerializationContext) -> Self:
        """Without a key where it is for an activity."""
        if isinstance(context, ActivitySerializationContext):
            return type(self)()
        return super().with_context(context)


async def test_a_failure_that_a_client_cannot_read_is_told_without_its_text(
    temporal_address: str, sid: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By its type, which is not encoded, and by the type of what the codec raised; nothing of its texts."""
    # More than one: on a busy machine nothing has failed yet when somebody looks first.
    for look in ("_FIRST_LOOK", "_NEXT_LOOK"):
        monkeypatch.setattr(_diagnosis, look, 0.5)
    said = "ConnectionError: its text cannot be read here: the client's data converter raised ValueError"
    async with served_with(temporal_address, KEYED) as served:
        await served.sessions.send(sid, "hello", agent="away")
        blind = await served.another(dataclasses.replace(KEYED, payload_codec=NoKeyForActivities()))
        assert await failing_of(blind, sid) == said
        with pytest.raises(TimeoutError) as caught:
            await blind.ask(sid, "hello", agent="away", timeout=4)
        assert said in str(caught.value)
        assert ": helix.sessions.run_step fails" in caplog.text
        assert said in caplog.text
        assert "not the key" not in caplog.text + str(caught.value)


@pytest.mark.usefixtures("patient_causes")
@pytest.mark.parametrize("converter", CONVERTERS)
async def test_a_failing_workflow_task_is_told(
    temporal_address: str, sid: str, converter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure is encoded for the workflow, not for an activity."""
    activate = TaskMarkers.activate

    def broken(markers: TaskMarkers, inner: Any, activation: Any) -> Any:
        if any(each.HasField("remove_from_cache") for each in activation.jobs):
            return activate(markers, inner, activation)
        raise RuntimeError("a bug of the workflow")

    monkeypatch.setattr(TaskMarkers, "activate", broken)
    async with served_with(temporal_address, CONVERTERS[converter]) as served:
        await left_unserved(served.sessions, sid)
        handle = served.client.get_workflow_handle(workflow_id(sid))
        async with asyncio.timeout(30):
            while (await handle.describe()).raw_description.pending_workflow_task.attempt < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError) as caught:
            await served.sessions.ask(sid, "hello", agent="main", timeout=2)
        assert "workflow task of helix.session fails" in str(caught.value)
        assert "RuntimeError: a bug of the workflow" in str(caught.value)


@pytest.mark.parametrize("converter", CONVERTERS)
async def test_a_query_that_came_too_early_is_made_again(
    temporal_address: str,
    sid: str,
    converter: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker fails it once, after another one was lost; who asks notices nothing, nor does the log."""
    left = 1
    activate = TaskMarkers.activate

    def fails_once(markers: TaskMarkers, inner: Any, activation: Any) -> Any:
        nonlocal left
        if left and any(each.HasField("query_workflow") for each in activation.jobs):
            left -= 1
            raise TaskNotDoneError(TASK_NOT_DONE)
        return activate(markers, inner, activation)

    async with served_with(temporal_address, CONVERTERS[converter]) as served:
        await served.sessions.ask(sid, "hello", agent="main", timeout=20)
        monkeypatch.setattr(TaskMarkers, "activate", fails_once)
        assert (await served.sessions.session(sid).get_status()).turns == 1
        assert left == 0
    assert [each for each in caplog.records if "Failed handling activation" in each.getMessage()] == []


@pytest.mark.parametrize("converter", CONVERTERS)
async def test_another_deployment_is_refused_by_its_error(
    temporal_address: str, sid: str, converter: str, tmp_path: Path
) -> None:
    """With the settings to compare; the type of a query's failure was not seen."""
    places = [tmp_path / "a", tmp_path / "b"]
    for each in places:
        each.mkdir()
    async with served_with(temporal_address, CONVERTERS[converter], cold_directory=places[0]) as served:
        await served.sessions.ask(sid, "hello", agent="main", timeout=20)
        other = await served.another(CONVERTERS[converter], cold_directory=places[1])
        with pytest.raises(ForeignDeploymentError, match=r"^what belongs .*HELIX_COLD_DIRECTORY"):
            await other.session(sid).get_status()
