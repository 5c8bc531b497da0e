"""Kill points: each activity, each I/O boundary, each thing that can happen there."""

import asyncio
import contextlib
import difflib
import itertools
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.exceptions import ApplicationError

from helix_temporal.errors import ThreadNotFoundError
from tests.chaos._agent import token_of
from tests.chaos._all_scenes import SCENES
from tests.chaos._boundaries import At, Boundaries, Killed, Place, places_of
from tests.chaos._oracle import Findings, check_books
from tests.chaos._paid import check_paid, read_tree
from tests.chaos._people import read_thread
from tests.chaos._report import Progress, Report
from tests.chaos._scenes import kind_of
from tests.chaos._stage import Stage, Task

ATTEMPTS: Final = 6
_NUMBERS = itertools.count()
REFUSALS: Final = frozenset(
    {
        "FencedError", "HeadMovedError", "StaleStateError", "ThreadNotFoundError", "ThreadExistsError",
        "StoreUnavailableError", "InvalidRequestError",
    }
)  # fmt: skip
"""What a late attempt may be told; its successor has finished."""

READS: Final = frozenset(
    f"helix.{each}"
    for each in (
        "threads.read", "threads.read_body", "threads.describe", "threads.load_state", "threads.fork",
        "threads.hydrate", "sessions.show", "sessions.usage", "sessions.turns", "sessions.find_turn",
        "sessions.checkpoints", "sessions.plan_take_back", "sessions.children", "sessions.load",
        "sessions.get_messages",
        "sessions.current_run", "sessions.list_runs", "sessions.request_stop", "sessions.get_stop_request",
        "sessions.list_sub_session_refs", "sessions.list", "sessions.list_expired", "checkpoints.list_staged",
        "checkpoints.get", "checkpoints.latest", "checkpoints.list", "checkpoints.snapshot",
        "usage.entries", "usage.rollup", "usage.query", "sessions.find",
    )
)  # fmt: skip
"""Say where the thread stands now: a late attempt may see more than its successor did."""

COUNTS: Final = frozenset(
    {
        "helix.checkpoints.discard",
        "helix.checkpoints.prune",
        "helix.maintenance.sweep",
        "helix.maintenance.keep_part",
    }
)
"""Answer with what this very attempt did, or saw."""

BESIDE: Final = frozenset({"streams", "writer", "usage"})
"""Stores that are written behind a step's back: it goes on without them, and does not hang where they do."""


@dataclass(slots=True)
class Points:
    """What was found at the boundaries of one activity, or at some of them.

    Attributes:
        missed: Cases whose boundary did not come: what runs side by side is not always written in as many
            calls.
    """

    cases: int = 0
    missed: int = 0
    found: list[str] = field(default_factory=list)


class KillPoints:
    """One scene, played once undisturbed and then once for each boundary and each thing that happens."""

    def __init__(self, stage: Stage, scene: str) -> None:
        self._stage, self._name_of, self._scene = stage, scene, SCENES[scene]
        self._expected: dict[bool, str] = {}

    async def run(self, kinds: Sequence[At], *, at_most: int | None = None, seed: int = 0) -> Points:
        """Let these happen at every boundary, or so many of them at random."""
        places = await self._undisturbed(late=False)
        if any(what.is_late for what in kinds):
            await self._undisturbed(late=True)
        cases = list(itertools.product(places, kinds))
        if at_most is not None and len(cases) > at_most:
            cases = random.Random(f"{seed} {self._name_of}").sample(cases, at_most)
        points = Points(cases=len(cases))
        for place, what in cases:
            boundaries = Boundaries(place, what)
            problems = await self._case(boundaries, what, place)
            points.missed += not boundaries.reached.is_set()
            points.found += [f"{self._name_of}: {what} at {place}: {each}" for each in problems]
        return points

    async def _undisturbed(self, *, late: bool) -> list[Place]:
        """What is expected, and all boundaries."""
        calm, session = Boundaries(), self._name()
        task = await self._scene.play(self._stage, session)
        assert kind_of(task.activity) == self._scene.activity, f"{self._name_of}: {task.activity}"
        await self._stage.worker(calm).attempt(task)
        if late:
            await self._go_on(session)
        self._expected[late] = await self._stage.shape(session)
        return places_of(calm.names)

    def _name(self) -> str:
        return f"point-{next(_NUMBERS):06}"

    async def _case(self, boundaries: Boundaries, what: At, place: Place) -> list[str]:
        session, began = self._name(), self._stage.ledger.size
        task = await self._scene.play(self._stage, session)
        if what.is_late:
            problems = await self._late(task, session, boundaries)
        else:
            problems = await self._retried(task, boundaries)
        found, expected = await self._stage.shape(session), self._expected[what.is_late]
        if found != expected:
            problems.append(f"stands {_changed(expected, found)}")
        books = await self._books(session, began)
        await self._stage.leave()
        if what.is_late:
            # Whoever took over has cut the step that asked for the tool.
            books.effects_twice.clear()
        if what.is_late and (_looked(boundaries, what) or place.call.split(".")[0] in BESIDE):
            # It had seen that nothing stands: only the provider could know better, by the step's key.
            books.paid_twice.clear()
        return problems + books.all

    async def _retried(self, task: Task, boundaries: Boundaries) -> list[str]:
        """Attempts as the server makes them: on the same worker, or on another if that one died."""
        worker = self._stage.worker(boundaries)
        answers: list[Any] = []
        for number in range(1, ATTEMPTS + 1):
            try:
                answers.append(await worker.attempt(task, number))
                break
            except Killed:
                worker = self._stage.worker()
            except ApplicationError as error:
                if error.non_retryable:
                    return [f"attempt {number} ended with {error.type}: {error.message}"]
        else:
            return [f"not done in {ATTEMPTS} attempts"]
        again = await self._repeat(task)
        if not answers or task.activity in COUNTS:
            return again
        return again + _differ(answers[0], await self._answer(task))

    async def _answer(self, task: Task) -> Any:
        with contextlib.suppress(ApplicationError):
            return await self._stage.worker().attempt(task, ATTEMPTS + 2)
        return None

    async def _repeat(self, task: Task) -> list[str]:
        """The completion was lost: one more attempt, which must not fail for good."""
        try:
            await self._stage.worker().attempt(task, ATTEMPTS + 1)
        except ApplicationError as error:
            if error.non_retryable:
                return [f"a repeat ended with {error.type}: {error.message}"]
        return []

    async def _late(self, task: Task, session: str, boundaries: Boundaries) -> list[str]:
        """The first attempt hangs, the second finishes, the session goes on, then the first goes on."""
        late = asyncio.create_task(self._stage.worker(boundaries).attempt(task))
        reached = asyncio.create_task(boundaries.reached.wait())
        await asyncio.wait({late, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        answer = await self._stage.worker().attempt(task, 2)
        await self._go_on(session)
        before = await self._stage.shape(session)
        boundaries.release()
        try:
            theirs = await late
        except ApplicationError as error:
            problems = [] if error.type in REFUSALS else [f"the late attempt was told {error.type}"]
        else:
            problems = [] if task.activity in READS | COUNTS else _differ(answer, theirs)
        after = await self._stage.shape(session)
        return problems if after == before else [*problems, f"it was late and made {_changed(before, after)}"]

    async def _go_on(self, session: str) -> None:
        """Late attempts meet a session that another execution has opened and talked in since."""
        with contextlib.suppress(ApplicationError, ThreadNotFoundError):
            opened = await self._stage.opened(session, run="run-later", mode="continue")
            await self._stage.turn(session, opened, message_id="later")

    async def _books(self, session: str, began: int) -> Findings:
        try:
            messages = await read_thread(self._stage.backends, session)
        except ThreadNotFoundError:
            messages = []
        events = [
            each for each in self._stage.ledger.read(began) if each.facts.get("session", session) == session
        ]
        own = {each.facts["token"] for each in events if each.kind == "paid"}
        # What was copied from another thread is counted there.
        given = [each for each in messages if token_of(each.text.encode()) in own]
        tree = await read_tree(self._stage.backends, session, {session: given})
        # Any attempt may have been the one that died.
        findings = check_paid(tree, events, {os.getpid()}) if tree.rollup or own else Findings()
        return findings + check_books(events, {session: messages})


async def all_points(
    stage: Stage, kinds: Sequence[At], seed: int, progress: Progress, *, at_most: int
) -> Report:
    """All scenes, with so many of all cases of boundaries and ``kinds`` each."""
    cases, missed, found = 0, 0, Findings()
    for number, scene in enumerate(SCENES):
        points = await KillPoints(stage, scene).run(kinds, at_most=at_most, seed=seed)
        cases, missed = cases + points.cases, missed + points.missed
        found.others += points.found
        progress(f"scenes {number + 1}/{len(SCENES)}, cases {cases}, found {len(found.others)}")
    figures = {"scenes": len(SCENES), "activities": len({each.activity for each in SCENES.values()})}
    report = Report("points", seed, found, {**figures, "cases": cases, "cases_missed": missed})
    progress(report.line(), final=True)
    return report


def _looked(boundaries: Boundaries, what: At) -> bool:
    """Whether the late attempt hung after its look at the thread, on its way to the model."""
    return "hot.step_view" in boundaries.names[: boundaries.before + (what is At.LATE_AFTER)]


def _changed(expected: str, found: str) -> str:
    """The lines that are others."""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), lineterm="", n=1)
    return " | ".join(list(lines)[2:40])


def _differ(first: Any, again: Any) -> list[str]:
    """The same answer, apart from what an attempt did itself."""
    if again is None or _answer_of(first) == _answer_of(again):
        return []
    return [f"answered {_answer_of(first)}, then {_answer_of(again)}"]


_OWN: Final = {
    "puts", "gets", "uploaded", "version", "reason", "pending_bytes", "archived", "backlog", "repeated",
    "recorded", "deleted",
    "usage", "outcome", "detail", "thread_ids", "hot", "segments_before", "segments_after",
    "objects_deleted", "bytes_deleted", "more", "after", "size", "slice_version",
}  # fmt: skip
"""Fields that say what this attempt did or saw, not what became of the task."""


def _answer_of(result: Any) -> Any:
    return result.model_dump(exclude=_OWN) if hasattr(result, "model_dump") else result
