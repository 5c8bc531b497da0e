"""A workflow of one's own that keeps its conversation in a thread; the model is an activity of one's own."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError

from helix_temporal import Head, Message
from helix_temporal.activities import ThreadActivities
from helix_temporal.models.messages import decode_message
from helix_temporal.models.threads import (
    AppendMessagesInput,
    FlushThreadInput,
    OpenThreadInput,
    SaveStateInput,
    ThreadEpochInput,
    ThreadInput,
)
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.workflows import call


class Lesson(BaseModel):
    """What a lesson starts with; ``idle`` seconds without a question end it."""

    pupil: str
    idle: float = 3600.0


class Question(BaseModel):
    """What the model is asked: its activity reads what was said before in the thread."""

    thread_id: str
    text: str


class Teacher:
    """The model, as an activity: put the call of your provider here."""

    def __init__(self, threads: ThreadStore) -> None:
        self._threads = threads

    @activity.defn(name="lessons.answer")
    async def answer(self, question: Question) -> str:
        """Answer a question, knowing the newest 50 messages before it."""
        page = await self._threads.read(ReadPage(question.thread_id, limit=50, backward=True))
        messages = [decode_message(stored) for stored in page.messages]
        asked = " ".join(message.text for message in messages if message.role == "user")
        before = f" Before that you asked: {asked}" if asked else ""
        return f"About {question.text!r}: look it up.{before}"


@workflow.defn
class LessonWorkflow:
    """Opens the pupil's thread, answers questions, and saves and archives on every way out."""

    @workflow.init
    def __init__(self, lesson: Lesson) -> None:
        self._thread_id = f"lesson-{lesson.pupil}"
        self._waiting: list[Message] = []
        self._answers: dict[str, str] = {}
        self._epoch, self._head = 0, Head(position=0, last_id="")
        self._state: dict[str, Any] = {}
        self._version = 0
        self._is_over = False

    @workflow.run
    async def run(self, lesson: Lesson) -> int:
        """Serve until nobody asks any more; the number of all questions so far."""
        await self._open()
        try:
            while await self._next_question(lesson.idle):
                await self._answer(self._waiting[0])
                if workflow.info().is_continue_as_new_suggested():
                    workflow.continue_as_new(lesson)
        finally:
            # On success, failure, cancel and continue-as-new; not on terminate.
            self._is_over = True
            await self._save_and_archive()
            await workflow.wait_condition(workflow.all_handlers_finished)
        count: int = self._state.get("questions", 0)
        return count

    @workflow.update
    async def ask(self, text: str) -> str:
        """Ask something.  An update that is sent again under its id is the same question."""
        info = workflow.current_update_info()
        assert info is not None
        self._waiting.append(Message(id=info.id, role="user", content=text))
        await workflow.wait_condition(lambda: info.id in self._answers or self._is_over)
        if info.id not in self._answers:
            raise ApplicationError("the lesson ends; ask in the next one", type="LessonOver")
        return self._answers.pop(info.id)

    async def _open(self) -> None:
        opened = await call(ThreadActivities.open, OpenThreadInput(thread_id=self._thread_id))
        self._epoch, self._head = opened.epoch, opened.head
        thread = ThreadEpochInput(thread_id=self._thread_id, epoch=self._epoch)
        await call(ThreadActivities.hydrate, thread)
        loaded = await call(ThreadActivities.load_state, ThreadInput(thread_id=self._thread_id))
        self._state, self._version = loaded.state, loaded.version

    async def _next_question(self, idle: float) -> bool:
        try:
            await workflow.wait_condition(lambda: bool(self._waiting), timeout=timedelta(seconds=idle))
        except TimeoutError:
            return False
        return True

    async def _answer(self, question: Message) -> None:
        text = await workflow.execute_activity_method(
            Teacher.answer,
            Question(thread_id=self._thread_id, text=question.text),
            start_to_close_timeout=timedelta(minutes=2),
        )
        answer = Message(id=f"{question.id}-answer", role="assistant", content=text)
        appended = await call(
            ThreadActivities.append,
            AppendMessagesInput(
                thread_id=self._thread_id, epoch=self._epoch, head=self._head, messages=(question, answer)
            ),
        )
        # Only now is it answered: both messages are in the thread, or neither.
        self._head = appended.head
        self._state["questions"] = self._state.get("questions", 0) + 1
        self._answers[question.id] = text
        self._waiting.remove(question)

    async def _save_and_archive(self) -> None:
        # Shielded: a cancel that comes now ends none of these.
        thread = ThreadEpochInput(thread_id=self._thread_id, epoch=self._epoch)
        try:
            save = SaveStateInput(**thread.model_dump(), state=self._state, expected_version=self._version)
            self._version = (await call(ThreadActivities.save_state, save, shielded=True)).version
        finally:
            flush = FlushThreadInput(**thread.model_dump(), closes=True, slice_version=self._version)
            await call(ThreadActivities.flush, flush, shielded=True)
        await call(ThreadActivities.evict, thread, shielded=True)
