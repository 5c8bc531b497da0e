"""An open thread as the workflow knows it, and how it is opened, and opened again."""

from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.errors import FencedError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import OpenHandle
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, ReopenHeads, RunStepResult
from helix_temporal.workflows._calls import Calls, OpenedAllTheSame

OPEN_TRIES: Final = 5
"""Opens that meet another epoch before a session gives up: clocks of servers differ a little."""
OPEN_PAUSE: Final = 1.0


@dataclass(slots=True)
class Conversation:
    """An open thread as the workflow knows it; outlives turns, changed only here.

    Attributes:
        tried: Requests to take turns back whose open failed, and may all the same have cut the thread.
    """

    request: OpenSessionInput
    handle: OpenHandle
    facts: AgentFacts
    backlog: int = 0
    reopened: int = 0
    turns_run_again: int = 0
    repairs: int = 0
    tried: tuple[str, ...] = ()

    def opened(self, handle: OpenHandle) -> None:
        """It is open under another epoch, so that all that was done up to now is known."""
        self.handle, self.tried = handle, ()

    @property
    def head(self) -> Head:
        """Where the thread stands."""
        return self.handle.head

    def take(self, result: RunStepResult) -> None:
        """Remember what a step says of the thread."""
        if result.head == self.head:
            return  # answered before: nothing was added or archived
        self.backlog = result.backlog
        self.repairs += result.repairs
        self.handle = OpenHandle(
            epoch=self.handle.epoch,
            head=result.head,
            slice_version=result.slice_version,
            archived=result.archived,
        )


async def open_conversation(calls: Calls, request: OpenSessionInput) -> OpenSessionResult:
    """Open a thread; one that meets another epoch tries again, as a new open with a higher one.

    Raises:
        FencedError: Another execution took the thread over, or every try met another epoch.
    """
    for attempt in range(OPEN_TRIES):
        try:
            return await calls.open(request)
        except FencedError as fenced:
            if "owner" in fenced.facts or attempt == OPEN_TRIES - 1:
                raise
            await calls.pause(OPEN_PAUSE)
    raise AssertionError("unreachable")  # pragma: no cover


async def reopen(
    calls: Calls, talk: Conversation, heads: ReopenHeads, *, abandoned: str | None = None
) -> OpenSessionResult:
    """Open again under a new epoch, keeping what this execution knows and nothing beyond it.

    ``abandoned`` is the run of a turn that is given up.

    Raises:
        FencedError: Another execution took the thread over.
    """
    talk.reopened += 1
    request = talk.request.model_copy(
        update={
            "reopen": heads,
            "mode": "continue",
            "rewind_to": None,
            "abandoned": abandoned,
            "known_epoch": talk.handle.epoch,
            **({"tried": talk.tried} if talk.tried else {}),
        }
    )
    try:
        opened = await open_conversation(calls, request)
    except OpenedAllTheSame as cancelled:
        talk.opened(cancelled.opened.handle)
        raise
    talk.opened(opened.handle)
    return opened


def thread_of(request: OpenSessionInput) -> dict[str, Any]:
    """The thread's id where it is not the session's."""
    return {} if request.thread_id == request.session_id else {"thread_id": request.thread_id}


def present(**fields: Any) -> dict[str, Any]:
    """Only what is there: histories stay small."""
    return {name: value for name, value in fields.items() if value is not None}
