"""SIGKILL, and a Redis that is wiped, under sessions that wait for people."""

from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from temporalio.client import Client

from helix_temporal.devstack import Valkey
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import Status
from helix_temporal.settings import Settings
from tests.chaos._answers import Answerers, check_given
from tests.chaos._kills import RECOVERY_SECONDS
from tests.chaos._ledger import Ledger
from tests.chaos._oracle import Findings
from tests.chaos._people import People
from tests.chaos._report import Report
from tests.chaos._wipes import Wiping
from tests.chaos._workers import WorkerProcess

Suspend = Literal["wait", "exit"]
TEXTS: Final = ("waits=1", "waits=2 tools=1", "pays=1 tools=1", "waits=1 pays=2", "people=1", "hello")


class WaitKills(Wiping):
    """Sessions whose turns wait for client tools and approvals, and several who answer at once.

    Args:
        suspend: Whether executions wait, or end and are started again by the answer.
        valkey: Where hot threads are; wiped at every second kill.
        cold: Workers replay each workflow task from the start.
    """

    _manner: Mapping[str, Any] = MappingProxyType({"texts": TEXTS})

    def __init__(
        self, settings: Settings, directory: Path, *, seed: int, suspend: Suspend,
        valkey: Valkey | None = None,
        sessions: int = 3,
        cold: bool = False,
    ) -> None:  # fmt: skip
        self.name = f"kills in waits, {suspend}{', cold' if cold else ''}"
        if valkey is not None:
            settings = settings.model_copy(update={"redis_url": valkey.url})
        super().__init__(settings, directory, seed=seed, sessions=sessions)
        self._options = self._options.model_copy(update={"suspend": suspend})
        self._valkey, self._instants, self._cold = valkey, Counter[str](), cold
        self._answerers: Answerers

    def _worker(self) -> WorkerProcess:
        return WorkerProcess(self._settings, self.books, cold=self._cold)

    def _along(self, client: Client, people: People) -> list[Coroutine[Any, Any, None]]:
        self._answerers = Answerers(people.sessions, seed=self._seed)
        return [self._answerers.keep_answering(name, who) for name in self.session_ids for who in range(2)]

    async def _instant(self, people: People) -> bool:
        """In a wait, between a submission and the next step, or whenever somebody has an answer."""
        instant = self._random.choice(("waiting", "submitted", "answered"))
        self._instants[instant] += 1
        answerers = self._answerers
        if instant == "answered":
            return await super()._instant(people)
        waiting = instant == "waiting"
        return await answerers.until(
            lambda: answerers.seen if waiting else answerers.counted, RECOVERY_SECONDS
        )

    async def _judge(self, people: People, seconds: float) -> Report:
        await self._answerers.stop()
        return await super()._judge(people, seconds)

    async def _further(self, threads: Mapping[str, Sequence[Message]]) -> Findings:
        book = self._answerers.given
        findings = check_given(book, threads, list(Ledger(self.books).read()))
        for name in self.session_ids:
            info = await self._answerers.sessions.session(name).get_status()
            if info.pending or info.status not in {Status.COMPLETED, Status.IDLE}:
                findings.others.append(
                    f"{name}: {info.status}, waits for {[each.id for each in info.pending]}"
                )
        if not any(each.counts for each in book):
            findings.others.append("nothing was submitted")
        return findings

    def _counts(self) -> dict[str, Any]:
        given = self._answerers.given
        return {
            "wipes": self._wipes,
            **{f"kills_{name}": count for name, count in sorted(self._instants.items())},
            "calls_answered": len({(each.owner, each.call.id) for each in given}),
            "submissions": sum(len(each.told) for each in given),
            "submissions_counted": sum(each.counts for each in given),
        }
