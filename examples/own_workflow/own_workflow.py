"""Workflows of one's own beside the pack's: ``make example NAME=own_workflow``."""

import asyncio
import logging
import os
import uuid

from lessons import Lesson, LessonWorkflow, Teacher
from orders import OrderWorkflow, clerk, file_report
from temporalio.client import Client

from helix_temporal import HelixWorker, SessionClient, SessionInput, Settings, connect, workflow_id


async def learn(client: Client, queue: str, pupil: str, *questions: str) -> None:
    """A lesson that is cancelled after its questions: what was answered stays."""
    lesson = await client.start_workflow(
        LessonWorkflow.run, Lesson(pupil=pupil), id=f"lesson-of-{pupil}", task_queue=queue
    )
    for question in questions:
        print(f"pupil:    {question}")
        print(f"teacher:  {await lesson.execute_update(LessonWorkflow.ask, question)}")
    await lesson.cancel()
    async for _ in lesson.fetch_history_events(wait_new_event=True):
        pass  # until its last event: it has saved and archived by then
    print(f"[the lesson is {(await lesson.describe()).status.name.lower()}]")  # type: ignore[union-attr]


async def buy(client: Client, queue: str, order: str) -> None:
    """An order: its workflow runs a session, and files a report when the customer has gone."""
    handle = await client.start_workflow(
        OrderWorkflow.run,
        SessionInput(session_id=order, agent="clerk"),
        id=workflow_id(order),
        task_queue=queue,
    )
    customer = SessionClient(client, task_queue=queue).session(order)
    for text in ("Where is it?", "And now?"):
        answer = await customer.ask(text)
        print(f"customer: {text}\nclerk:    {answer.text or answer.error or answer.status}")
    await customer.close()
    print(f"[report: {await handle.result()}]")


async def main() -> None:
    """One worker for all: the plugin on its client adds the pack's activities and workflows."""
    client, plugin = await connect(Settings.from_env(os.environ), [clerk])
    queue, name = plugin.settings.task_queue, uuid.uuid4().hex[:6]
    teacher = Teacher(plugin.backends.threads)
    workflows, activities = [LessonWorkflow, OrderWorkflow], [teacher.answer, file_report]
    async with HelixWorker(client, plugin, workflows=workflows, activities=activities):
        await learn(client, queue, name, "Why does it rain?")
        await learn(client, queue, name, "And why does it snow?")
        await buy(client, queue, f"order-{name}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main())
