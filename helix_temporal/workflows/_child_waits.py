"""Calls of sub-agents that wait for somebody: told up to the root, and answered from there."""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import FailureError

from helix_temporal.models.children import ChildPending, PayloadRef, RoutedReply, RoutedSubmit, payload_ref
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.states import Submission
from helix_temporal.models.suspensions import (
    REMEMBERED_CALLS,
    AnsweredCall,
    CallKind,
    ChildWait,
    PendingCall,
    SubmitInput,
)
from helix_temporal.workflows._sleepers import Sleepers

_HOP_BY_HOP: Final = "hop-by-hop"
_SLEEP: Final = "sub-agents-sleep"


@dataclass(slots=True)
class ChildWaits:
    """What the sub-agents below one session wait for.

    Attributes:
        workflow_id: The workflow id of a session of the same deployment.
        rounds: How often one of them began to wait.
        on_wait: Told of each once.
        sleepers: Those whose sessions have ended meanwhile.
    """

    workflow_id: Callable[[str], str] = workflow_id
    rounds: int = 0
    on_wait: Callable[[], None] | None = None
    sleepers: Sleepers = field(default_factory=lambda: Sleepers(lambda: 0))
    _told: dict[str, ChildPending] = field(default_factory=dict)
    _tells_again: bool = False
    _over: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _sent: OrderedDict[str, SubmitInput] = field(default_factory=OrderedDict)
    _replies: dict[str, RoutedReply] = field(default_factory=dict)

    # -- from below

    def hear(self, told: ChildPending) -> None:
        """A child says what it waits for."""
        before = self._told.get(told.session_id)
        if told.run in self._over or (before is not None and before.number >= told.number):
            return  # late
        known = {each.id for each in self.pending()}
        self._told[told.session_id] = told
        self._announce(known)

    def sleeps(self, wait: ChildWait) -> None:
        """A child has ended, since it waits."""
        known = {each.id for each in self.pending()}
        self.sleepers.sleep(wait)
        self._announce(known)

    def woke(self, wait: ChildWait) -> None:
        """Until it speaks again, it waits for what it waited for."""
        self._told[wait.session_id] = ChildPending(
            session_id=wait.session_id, run="", number=0, calls=wait.calls
        )

    def _announce(self, known: Collection[str]) -> None:
        if any(each.id not in known for each in self.pending()):
            self.rounds += 1
            if self.on_wait is not None:
                self.on_wait()

    def gone(self, session_id: str, run: str | None) -> None:
        """A child has ended."""
        self._told.pop(session_id, None)
        if run is not None:
            self._over[run] = None
            while len(self._over) > REMEMBERED_CALLS:
                self._over.popitem(last=False)

    async def ask(self, session_id: str) -> None:
        """Let whoever has a session say whether it is our child."""
        await signal(self.workflow_id(session_id), "tell_parent")

    def hears(self, session_id: str) -> bool:
        """Whether an execution of ours that has this session spoke."""
        return self.heard(session_id) > 0

    def heard(self, session_id: str) -> int:
        """What it said last."""
        return self._told[session_id].number if session_id in self._told else 0

    def pending(self) -> tuple[PendingCall, ...]:
        """All that they wait for, with the way to each."""
        awake = tuple(
            call.model_copy(update={"route": (session_id, *call.route)})
            for session_id, told in self._told.items()
            for call in told.calls
        )
        return (*awake, *self.sleepers.pending())

    # -- to the parent

    async def tell(
        self,
        session_id: str,
        pending: Callable[[], tuple[PendingCall, ...]],
        expired: Callable[[], tuple[AnsweredCall, ...]],
        *,
        woken: bool = False,
    ) -> None:
        """Tell the parent of every change of what is ``pending``, as long as the session serves.

        Of one that was ``woken`` it believes that it waits for all that it waited for.
        """
        parent, number = workflow.info().parent, 0
        if parent is None:
            return
        told: tuple[PendingCall, ...] | None = None if woken else ()
        while True:
            await workflow.wait_condition(
                lambda told=told: self._tells_again or pending() != told  # type: ignore[misc]
            )
            self._tells_again = False
            told, number = pending(), max(number + 1, int(workflow.now().timestamp() * 1_000_000))
            what: dict[str, Any] = {"calls": told, "expired": expired()}
            change = ChildPending(
                session_id=session_id,
                run=workflow.info().first_execution_run_id,
                number=number,
                **{name: each for name, each in what.items() if each},
            )
            await signal(parent.workflow_id, "child_pending", change)

    def tell_again(self) -> None:
        """The parent does not know us."""
        self._tells_again = True

    # -- answers

    def has(self, call: str) -> bool:
        """Whether a call is one of a sub-agent."""
        return any(each.id == call for each in self.pending())

    def kind_wanted(self, call: str) -> CallKind | None:
        """Of the answer that a call of a sub-agent takes; None if it is none of one."""
        return next((each.kind for each in self.pending() if each.id == call), None)

    async def submit(
        self, request: SubmitInput, thread_id: str, closing: Callable[[], bool]
    ) -> Submission | None:
        """Give an answer to the session whose call it is, once it has taken it; None while that ends.

        ``thread_id`` is where the client has put aside what is long.
        """
        route = next(each.route for each in self.pending() if each.id == request.call)
        if request.ref is not None and payload_ref(request.ref) is None:
            ref = PayloadRef(thread_id=thread_id, name=request.ref).named()
            request = request.model_copy(update={"ref": ref})
        name = self._send(request)
        routed = RoutedSubmit(
            id=name,
            reply_to=workflow.info().workflow_id,
            request=request.model_copy(update={"wait": False}),
        )
        if not await self._pass_on(route, routed):
            return None
        await workflow.wait_condition(
            lambda: (
                name in self._replies
                or not (route[0] in self._told or self.sleepers.is_asleep(route[0]))
                or closing()
            )
        )
        reply = self._replies.pop(name, None)
        return None if reply is None else reply.submission

    def take_reply(self, reply: RoutedReply) -> AnsweredCall | None:
        """The owner of a call answers; what is to be remembered of it."""
        request, submission = self._sent.get(reply.id), reply.submission
        if request is None:
            return None
        self._replies[reply.id] = reply
        if submission is None or submission.status not in {"submitted", "already_completed"}:
            return None
        self._answered(request.call)
        when = submission.completed_at or 0
        if submission.status == "submitted":
            return AnsweredCall(id=request.call, when=when, by=request.by)
        return AnsweredCall(id=request.call, when=when)

    def wake_all(self, request: SubmitInput) -> None:
        """Let all that sleep look whether they can go on."""
        for session_id in dict.fromkeys(each.session_id for each in self.sleepers.waits()):
            name = workflow.uuid4().hex
            letter = RoutedSubmit(id=name, reply_to=workflow.info().workflow_id, request=request)
            self.sleepers.send(session_id, letter)

    async def _pass_on(self, route: tuple[str, ...], routed: RoutedSubmit) -> bool:
        """To the owner; where that sleeps, to the first above it that does not, which wakes the next."""
        if self.sleepers.send(route[0], routed):
            return True
        if await signal(self.workflow_id(route[-1]), "submit_for", routed):
            return True
        if len(route) == 1 or not workflow.patched(_HOP_BY_HOP):
            return False
        for session_id in route[-2::-1]:
            if await signal(self.workflow_id(session_id), "submit_for", routed):
                return True
        return False

    def _send(self, request: SubmitInput) -> str:
        name = workflow.uuid4().hex
        self._sent[name] = request
        while len(self._sent) > REMEMBERED_CALLS:
            gone, _ = self._sent.popitem(last=False)
            self._replies.pop(gone, None)
        return name

    def _answered(self, call: str) -> None:
        """It waits no more, whenever its session comes to say so."""
        for session_id, told in self._told.items():
            left = tuple(each for each in told.calls if each.id != call)
            self._told[session_id] = told.model_copy(update={"calls": left})


def may_sleep(suspend: str) -> bool:
    """Whether sessions of sub-agents end while they wait; histories of before have them stay."""
    return suspend == "exit" and workflow.patched(_SLEEP)


async def reply_to(routed: RoutedSubmit, submission: Submission | None) -> None:
    """Say what became of an answer."""
    reply = RoutedReply(id=routed.id, **({} if submission is None else {"submission": submission}))
    await signal(routed.reply_to, "submitted", reply)


async def signal(to: str, name: str, *arguments: object) -> bool:
    """Signal a workflow; false if it has ended."""
    try:
        await workflow.get_external_workflow_handle(to).signal(name, args=arguments)
    except FailureError:
        return False
    return True
