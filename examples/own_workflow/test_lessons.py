"""A workflow of one's own, on a server that skips time: no other server runs, and hours pass at once."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from lessons import Lesson, LessonWorkflow, Question, Teacher
from temporalio import activity
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError

from helix_temporal import Backends
from helix_temporal.testing import HelixEnv, helix_env


class FlakyTeacher(Teacher):
    """Fails at the first attempt of each question."""

    @activity.defn(name="lessons.answer")
    async def answer(self, question: Question) -> str:
        if activity.info().attempt == 1:
            raise ConnectionError("the provider is busy")
        return await super().answer(question)


def teachers(stores: Backends) -> list[Callable[..., Any]]:
    return [FlakyTeacher(stores.threads).answer]


@pytest.fixture
async def env() -> AsyncIterator[HelixEnv]:
    async with helix_env(workflows=[LessonWorkflow], activities=teachers) as env:
        yield env


async def start(env: HelixEnv, pupil: str, number: int = 1) -> WorkflowHandle[LessonWorkflow, int]:
    return await env.client.start_workflow(
        LessonWorkflow.run, Lesson(pupil=pupil), id=f"{pupil}-{number}", task_queue=env.task_queue
    )


async def test_a_question_is_answered_once_although_the_model_failed_first(env: HelixEnv) -> None:
    lesson = await start(env, "mara")
    answer = await lesson.execute_update(LessonWorkflow.ask, "Rain?", id="q1")
    assert await lesson.execute_update(LessonWorkflow.ask, "Rain?", id="q1") == answer
    assert [message.text for message in await env.get_messages("lesson-mara")] == ["Rain?", answer]


async def test_the_next_lesson_knows_the_last_one(env: HelixEnv) -> None:
    """An idle hour ends the first lesson; its thread is in the archive alone, until the next one opens it."""
    first = await start(env, "mara")
    await first.execute_update(LessonWorkflow.ask, "Rain?")
    assert await first.result() == 1
    assert await env.backends.hot.read_header("lesson-mara") is None
    second = await start(env, "mara", 2)
    assert "asked: Rain?" in await second.execute_update(LessonWorkflow.ask, "Snow?")
    assert await second.result() == 2


async def test_a_cancelled_lesson_is_saved_and_archived(env: HelixEnv) -> None:
    lesson = await start(env, "mara")
    await lesson.execute_update(LessonWorkflow.ask, "Rain?")
    await lesson.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await lesson.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert await env.backends.hot.read_header("lesson-mara") is None
    assert len(await env.get_messages("lesson-mara")) == 2
    assert await (await start(env, "mara", 2)).result() == 1


async def test_of_two_lessons_with_one_thread_the_later_goes_on(env: HelixEnv) -> None:
    """The one that opened the thread first is fenced: it can change nothing any more, and says so."""
    first = await start(env, "mara")
    await first.execute_update(LessonWorkflow.ask, "Rain?")
    second = await start(env, "mara", 2)
    await second.execute_update(LessonWorkflow.ask, "Snow?")
    with pytest.raises(WorkflowUpdateFailedError):
        await first.execute_update(LessonWorkflow.ask, "Hail?")
    with pytest.raises(WorkflowFailureError) as failed:
        await first.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "FencedError"
    assert [message.role for message in await env.get_messages("lesson-mara")] == ["user", "assistant"] * 2
