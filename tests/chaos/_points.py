"""Kill points: each activity, each I/O boundary, each thing that can happen there."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.exceptions import ApplicationError

from helix_temporal.errors import ThreadNotFoundError
from tests.chaos._boundaries import At, Boundaries, Killed
from tests.chaos._oracle import Findings, check_books
from tests.chaos._people import read_thread
from tests.chaos._report import Progress, Report
from tests.chaos._stage import Stage, Task
from tests.chaos._thread_scenes import SCENES

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
    f"helix.threads.{each}" for each in ("read", "read_body", "describe", "load_state", "fork", "hydrate")
)
"""Say where the thread stands now: a late attempt may see more than its successor did."""


@dataclass(slots=True)
class Points:
    """What was found at the boundaries of one activity."""

    cases: int = 0
    found: list[str] = field(default_factory=list)


class KillPoints:
    """One scene, played once undisturbed and then once for each boundary and each thing that happens."""

    def __init__(self, stage: Stage, scene: str) -> None:
        self._stage, self._scene, self._play = stage, scene, SCENES[scene]

    async def run(self, what: At) -> Points:
        """Let it happen at every boundary."""
        points = Points()
        calm = Boundaries()
        session = self._name()
        await self._stage.worker(calm).attempt(await self._play(self._stage, session))
        await self._go_on(session, what)
        expected = await self._stage.shape(session)
        for place in range(1, len(calm.names) + 1):
            points.cases += 1
            case = f"{self._scene}: {what} at {place} ({calm.names[place - 1]})"
            points.found += [f"{case}: {problem}" for problem in await self._case(place, what, expected)]
        return points

    def _name(self) -> str:
        return f"point-{next(_NUMBERS):06}"

    async def _case(self, place: int, what: At, expected: str) -> list[str]:
        session, boundaries = self._name(), Boundaries(place, what)
        task = await self._play(self._stage, session)
        if what.is_late:
            problems = await self._late(task, session, boundaries)
        else:
            problems = await self._retried(task, boundaries, what)
            await self._go_on(session, what)
        found = await self._stage.shape(session)
        if found != expected:
            problems.append(f"stands {found}, expected {expected}")
        books = await self._books(session)
        if what.is_late:
            # Whoever took over has cut the step that asked for the tool.
            books.effects_twice.clear()
        if what.is_late and _looked(boundaries, place, what):
            # It had seen that nothing stands: only the provider could know better, by the step's key.
            books.paid_twice.clear()
        return problems + books.all

    async def _retried(self, task: Task, boundaries: Boundaries, what: At) -> list[str]:
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
        return again if not answers else again + _differ(answers[0], await self._answer(task))

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
        await self._go_on(session, At.LATE_BEFORE)
        before = await self._stage.shape(session)
        boundaries.release()
        try:
            theirs = await late
        except ApplicationError as error:
            problems = [] if error.type in REFUSALS else [f"the late attempt was told {error.type}"]
        else:
            problems = [] if task.activity in READS else _differ(answer, theirs)
        after = await self._stage.shape(session)
        return problems if after == before else [*problems, f"the late attempt made {after} of {before}"]

    async def _go_on(self, session: str, what: At) -> None:
        """Late attempts meet a session that another execution has opened and talked in since."""
        if not what.is_late:
            return
        with contextlib.suppress(ApplicationError, ThreadNotFoundError):
            opened = await self._stage.opened(session, run="run-later", mode="continue")
            await self._stage.turn(session, opened, message_id="later")

    async def _books(self, session: str) -> Findings:
        try:
            messages = await read_thread(self._stage.backends, session)
        except ThreadNotFoundError:
            messages = []
        events = [each for each in self._stage.ledger.read() if each.facts.get("session", session) == session]
        return check_books(events, {session: messages})


async def all_points(stage: Stage, kinds: Sequence[At], seed: int, progress: Progress) -> Report:
    """All scenes, all boundaries, all of ``kinds``."""
    cases, found = 0, Findings()
    for number, (scene, what) in enumerate(itertools.product(SCENES, kinds)):
        points = await KillPoints(stage, scene).run(what)
        cases += points.cases
        found.others += points.found
        progress(f"scenes {number // len(kinds)}/{len(SCENES)}, cases {cases}, found {len(found.others)}")
    report = Report("points", seed, found, {"scenes": len(SCENES), "cases": cases})
    progress(report.line(), final=True)
    return report


def _looked(boundaries: Boundaries, place: int, what: At) -> bool:
    """Whether the late attempt hung after its look at the thread, on its way to the model."""
    return "hot.step_view" in boundaries.names[: place - (what is At.LATE_BEFORE)]


def _differ(first: Any, again: Any) -> list[str]:
    """The same answer, apart from what an attempt did itself."""
    if again is None or _answer_of(first) == _answer_of(again):
        return []
    return [f"answered {_answer_of(first)}, then {_answer_of(again)}"]


_OWN: Final = {
    "puts", "gets", "uploaded", "version", "reason", "pending_bytes", "archived", "backlog", "repeated",
    "usage", "outcome", "detail", "thread_ids", "hot", "segments_before", "segments_after",
    "objects_deleted", "bytes_deleted", "more", "after", "size", "slice_version",
}  # fmt: skip
"""Fields that say what this attempt did or saw, not what became of the task."""


def _answer_of(result: Any) -> Any:
    return result.model_dump(exclude=_OWN, exclude_unset=True) if hasattr(result, "model_dump") else result
