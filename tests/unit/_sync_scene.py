"""A session over memory stores, driven as the activities drive it."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any

from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.models.base import canonical_json
from helix_temporal.models.messages import Message, ToolCall, encode_message
from helix_temporal.models.sessions import Receipt
from helix_temporal.models.states import SessionState
from helix_temporal.models.steps import OpenSessionInput, ReopenHeads, RunStepInput, ToolInput
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.threads import Create, OpenThread, Reopen
from helix_temporal.stores.sessions.store import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

EPOCH = 1_800_000_000_000_000


class Scene:
    """A session over memory stores, driven as the activities drive it."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.store = RowSessions(self.backend.sessions)
        self.threads = HotThreads(self.backend.threads)
        self.keeper = SessionSync(self.store, self.threads)
        self.epoch = EPOCH
        self.head = EMPTY
        self.record = SessionRecord(agent="main")

    async def open(
        self,
        *,
        reopen: Head | None = None,
        abandoned: str | None = None,
        tell: Callable[[str], Awaitable[None]] | None = None,
        thread_then: dict[str, object] | None = None,
    ) -> tuple[Receipt, ...]:
        """Open, or open again and keep the thread up to ``reopen``; what had to be put right.

        The thread's store goes back to ``thread_then`` before the state is looked at.
        """
        self.epoch += 1
        heads = None if reopen is None else ReopenHeads(head=reopen, turn_start=reopen)
        request = OpenSessionInput(
            session_id="s", thread_id="s", agent="main", owner="o", reopen=heads, abandoned=abandoned
        )
        opened = await self.threads.open(
            OpenThread("s", self.epoch, "o", create=Create.AUTO, rewind_to=reopen, slice=self._slice())
        )
        self.head = opened.header.head
        if thread_then is not None:
            self.backend.threads.restore(thread_then)
        return (await self.keeper.open(request, opened.header, self.record, None, tell)).notes

    async def open_again(self, *, turn_start: Head, abandoned: str) -> None:
        """Open again to cut a turn that began there: of it stays what is committed."""
        self.epoch += 1
        request = OpenSessionInput(
            session_id="s", thread_id="s", agent="main", owner="o", abandoned=abandoned,
            reopen=ReopenHeads(head=turn_start, turn_start=turn_start),
        )  # fmt: skip
        reopen = Reopen(turn_start, turn_start)
        opened = await self.threads.open(OpenThread("s", self.epoch, "o", reopen=reopen, slice=self._slice()))
        self.head = opened.header.head
        await self.keeper.open(request, opened.header, self.record, None)

    def backup(self) -> dict[str, Any]:
        """The session store as it is now; the thread's store has none."""
        return deepcopy(vars(self.backend.sessions)["_sessions"])

    def restore(self, backup: dict[str, Any]) -> None:
        """The session store as it was then."""
        vars(self.backend.sessions)["_sessions"] = deepcopy(backup)

    def _slice(self) -> bytes:
        return canonical_json(self.record.model_dump(mode="json", exclude_defaults=True))

    def request(self, run_id: str) -> RunStepInput:
        """A step's request at the present head."""
        return RunStepInput(
            session_id="s", agent="main", epoch=self.epoch, head=self.head, inputs=(), run_id=run_id
        )

    async def append(self, run_id: str, text: str = "answer", **slice_: Any) -> Appended:
        """A whole turn, in the thread alone."""
        self.record = self.record.model_copy(
            update={"turns": self.record.turns + 1, "steps": 1, "run": run_id, "turn_steps": 1, **slice_}
        )
        header = (await self.threads.read_facts("s")).slice_version
        inputs = (encode_message(Message(id=f"{run_id}-q", role="user", content="q")),)
        answer = encode_message(Message(id=f"{run_id}-{text}", role="assistant", content=text))
        step = StepAppend("s", self.epoch, self.head, inputs, answer, True, self._slice(), header)
        appended = await self.threads.append(step)
        self.head = appended.head
        return appended

    async def turn(self, run_id: str, **slice_: Any) -> Appended:
        """A whole turn, in the thread and in the state."""
        request = self.request(run_id)
        await self.keeper.begin_run(request, self.record)
        appended = await self.append(run_id, **slice_)
        await self.keeper.finish_turn(request, appended, self.record)
        return appended

    def tool(self, run_id: str, position: int, answer: str = "a", epoch: int | None = None) -> ToolInput:
        """A tool call of a step whose answer ends at ``position``."""
        return ToolInput(
            session_id="s",
            thread_id="s",
            agent="main",
            tool="t",
            call=ToolCall(id="c", name="t", arguments={}),
            key=f"s/{answer}/0",
            turn=1,
            position=position,
            run_id=run_id,
            epoch=epoch,
        )

    async def state(self) -> SessionState:
        """The stored state."""
        state = await self.store.load_state("s")
        assert state is not None
        return state
