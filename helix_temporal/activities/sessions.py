"""Activities ``helix.sessions.*``: what the session workflow asks of the stores and the model."""

import contextlib
from dataclasses import replace
from typing import Any, NoReturn

from temporalio import activity

from helix_temporal.activities._runtime import (
    application_code,
    as_reopen,
    heartbeat_with_progress,
    limited_as,
    lost_state_is_passing,
    raise_application_errors,
    scheduled_epoch,
    workflow_run,
)
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.payloads import FAR, Payloads
from helix_temporal.activities.record_store import (
    OpenedRecord,
    StoredRecord,
    reopen_if_carried_out,
    rewrite_record,
    save_opened_record,
    save_synced_record,
    update_record,
)
from helix_temporal.activities.session_sync import OpenedState, SessionSync, has_whole_turn
from helix_temporal.activities.steps import Stepper
from helix_temporal.activities.sub_agents import (
    open_calls,
    recover_sub_agent_calls,
    refuse_sub_agent_id,
    restrict_sub_agent_id,
)
from helix_temporal.activities.suspended_turns import (
    read_messages_under_way,
    read_suspended_turn,
    save_suspension,
    usage_before_turn,
)
from helix_temporal.agents import Agent, AgentRegistry, InstructionsContext
from helix_temporal.errors import (
    AgentNotServedError,
    HelixError,
    InvalidRequestError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.base import canonical_json, only_set, only_truthy
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.deployments import deployment_name
from helix_temporal.models.limits import INLINE_RESULT, INLINE_TEXT, MAX_TEXT
from helix_temporal.models.messages import check_size, decode_message
from helix_temporal.models.sessions import CallPolicy, SetPropertiesInput, SetPropertiesResult, SuspendedTurn
from helix_temporal.models.states import SessionState
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    LoadAnswerInput,
    LoadAnswerResult,
    OpenSessionInput,
    OpenSessionResult,
    PutTextInput,
    PutTextResult,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    SaveValuesResult,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import Suspension
from helix_temporal.session.record import (
    SessionRecord,
    apply_save,
    check_values,
    encode_record,
    find_kept_head,
    find_suspension,
    list_answered_calls,
    parse_record,
)
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import (
    Create,
    ForkThread,
    OpenedThread,
    OpenThread,
    Progress,
    ReadPage,
    Reopen,
    ThreadStore,
)
from helix_temporal.telemetry import metrics

_CREATE = {"auto": Create.AUTO, "new": Create.NEW, "continue": Create.NEVER, "fork": Create.NEVER}


def _pending_call_fields(suspended: SuspendedTurn | None, record: SessionRecord) -> dict[str, Any]:
    """What is known of calls that wait or waited; only what is there: histories stay small."""
    return only_truthy(suspended=suspended, answered=record.answered)


def _state_fields(state: OpenedState | SessionState) -> dict[str, Any]:
    """What a running session has to know of its state; only what is there: histories stay small."""
    return only_set(expires_at=state.expires_at, tracing_context=state.tracing_context)


def _differing_fields(asked: OpenSessionInput, thread_id: str, record: SessionRecord) -> dict[str, Any]:
    """Metadata and thread of the session, where they are others than it was asked to be opened with."""
    found: dict[str, Any] = {} if thread_id == asked.thread_id else {"thread_id": thread_id}
    if record.metadata and record.metadata != asked.metadata:
        found["metadata"] = dict(record.metadata)
    return found


def _refuse_properties(session_id: str) -> NoReturn:
    raise InvalidRequestError(
        f"session {session_id!r}: the workers have no session store, which would keep its properties"
    )


def _as_open(
    request: OpenSessionInput,
    epoch: int,
    agent: Agent,
    record: SessionRecord,
    found_suspension: Suspension | None,
) -> OpenThread:
    def kept(data: bytes) -> Head | None:
        return find_kept_head(data) or (None if found_suspension is None else found_suspension.head)

    return OpenThread(
        request.thread_id,
        epoch,
        request.owner,
        create=_CREATE[request.mode],
        reopen=as_reopen(request.reopen),
        rewind_to=request.rewind_to,
        slice=encode_record(record),
        begun_with=agent.adapter,
        keeps=kept if request.reopen is None else None,
        rewrites=rewrite_record(request, epoch),
    )


class SessionActivities:
    """Open a session's thread, run its steps.  Knows protocols only.

    Args:
        beat_every: Seconds between background heartbeats.
        inline_text: Texts of answers up to so many bytes travel in results.
        inline_arguments: Arguments of calls that wait up to so many bytes do.
        states: Keeps the session store in step; None where there is none.
        streams: Where sessions are shown live.
    """

    def __init__(
        self,
        threads: ThreadStore,
        agents: AgentRegistry,
        stepper: Stepper,
        policy: CallPolicy,
        payloads: Payloads,
        *,
        beat_every: float = 1.0,
        inline_text: int = INLINE_TEXT,
        inline_arguments: int = INLINE_RESULT,
        states: SessionSync | None = None,
        streams: Streaming | None = None,
    ) -> None:
        self._threads, self._agents, self._stepper, self._policy = threads, agents, stepper, policy
        self._payloads, self._states, self._streams = payloads, states, streams or Streaming()
        self._beat_every = beat_every
        self._inline_text, self._inline_arguments = inline_text, inline_arguments
        self._deployment = deployment_name(policy.deployment)

    @activity.defn(name="helix.sessions.open")
    @raise_application_errors
    @lost_state_is_passing
    @limited_as("heartbeat")
    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """Create, continue, fork, rewind or re-open: take the epoch, make the thread hot, load its state."""
        agent = self._find_agent(request)
        restrict_sub_agent_id(request)  # refused before anything is made
        epoch = scheduled_epoch()
        async with heartbeat_with_progress(self._beat_every) as progress:
            asked, request = request, await self._admit_request(request)
            request = await reopen_if_carried_out(self._threads, request, epoch)
            new_record = await self._new_record(request)
            if request.mode == "fork" and request.reopen is None:
                await self._fork_thread(request, epoch, new_record, progress)
            found_suspension = await self._recover_sub_agent_calls(agent, request)
            opens = _as_open(restrict_sub_agent_id(request), epoch, agent, new_record, found_suspension)
            opened = await self._open_thread(request, opens, progress)
            header = opened.header
            found_record = parse_record(header.slice) if header.slice else new_record
            opened_record = await save_opened_record(
                self._threads, request, header, found_record, found_suspension
            )
            record = opened_record.record
            state = await self._open_state(request, header, record)
            opened_record = await save_synced_record(self._threads, opened_record)
            suspended = await self._sync_suspended_turn(request, header, record)
            await self._update_child_refs(request, agent, opened)
            left = await self._left_behind(request, opened, found_record) if state.left is None else None
            await self._streams.tell_opened(request, header, record, left)
            reset = await self._describe_reset(request, opened, opened_record, suspended)
            self._count_open(request, header, left)
        return OpenSessionResult(
            handle=opened_record.build_handle(None if suspended is not None else opened.at),
            facts=agent.build_facts(),
            policy=self._policy,
            created=opened.created,
            cut=opened.cut,
            turns=record.turns,
            usage=record.usage if suspended is None else usage_before_turn(record, suspended),
            values=dict(state.values) or None,
            stale_values=dict(state.values) != record.values,
            notes=state.notes,
            **reset,
            **opened_record.option_fields(request),
            **_pending_call_fields(suspended, record),
            **_state_fields(state),
            **_differing_fields(asked, request.thread_id, record),
        )

    def _find_agent(self, request: OpenSessionInput) -> Agent:
        try:
            return self._agents.get_agent(request.agent)
        except AgentNotServedError as unserved:
            if request.waits_for_agent:
                unserved.facts["attempts"] = 1
            raise

    def _count_open(self, request: OpenSessionInput, header: HotHeader, left: str | None) -> None:
        """Count what an open did; `SessionSync` counts the turns that it ended, where there is one."""
        if request.reopen is not None:
            metrics.REOPENED.add()
        is_cut = request.abandoned is not None and not has_whole_turn(request, header)
        if self._states is None and is_cut:
            metrics.record_turn(request.agent, RunStatus.ABORTED.value, 0)
        if self._states is None and left is not None:
            metrics.record_turn(request.agent, RunStatus.SUPERSEDED.value, 0)

    async def _describe_reset(
        self,
        request: OpenSessionInput,
        opened: OpenedThread,
        opened_record: OpenedRecord,
        suspended: SuspendedTurn | None,
    ) -> dict[str, Any]:
        """What a workflow is told that was reset, and does not know how its thread went on."""
        told: dict[str, Any] = opened_record.reset_fields(request, opened.at)
        if suspended is not None:
            return told
        messages = await read_messages_under_way(self._threads, self._payloads, opened.header, opened.at)
        under_way = {"under_way": messages} if messages else {}
        if told or request.reopen is None:
            return told | under_way
        heads = request.reopen
        if heads.inputs[: len(messages)] != tuple(each.id for each in messages):
            return {"reset": True} | under_way
        goes_on = heads.reset and heads.head == opened.at != opened.header.head
        return {"goes_on": True} if goes_on else {}

    async def _admit_request(self, request: OpenSessionInput) -> OpenSessionInput:
        if self._states is not None:
            return await self._states.admit_request(request)
        if request.properties is not None and request.parent is None:
            _refuse_properties(request.session_id)
        return request

    @activity.defn(name="helix.sessions.set_properties")
    @raise_application_errors
    async def set_properties(self, request: SetPropertiesInput) -> SetPropertiesResult:
        """Set properties of a session that exists; a repeat finds them set."""
        if self._states is None:
            _refuse_properties(request.session_id)
        state = await self._states.set_properties(request.session_id, request.properties, request.epoch)
        return SetPropertiesResult(**_state_fields(state), version=state.version)

    async def _open_thread(
        self, request: OpenSessionInput, opens: OpenThread, progress: Progress
    ) -> OpenedThread:
        if request.again:
            # Another execution's would refuse it; where there is none, the first open had not come so far.
            again = replace(opens, reopen=Reopen(None, EMPTY), rewind_to=None, create=Create.NEVER)
            with contextlib.suppress(ThreadNotFoundError):
                return await self._threads.open(again, progress)
        try:
            return await self._threads.open(opens, progress)
        except ThreadNotFoundError:
            if restrict_sub_agent_id(request) is not request:
                refuse_sub_agent_id(request)
            raise

    async def _left_behind(
        self, request: OpenSessionInput, opened: OpenedThread, found_record: SessionRecord
    ) -> str | None:
        """The run of a turn that an earlier execution left behind: the thread knows of it, or its stream."""
        header = opened.header
        if request.reopen is not None:
            return None  # the run under way is this execution's own
        if opened.cut:
            return found_record.run
        if header.head.position != header.committed:
            return None  # it waits for people, and goes on
        return await self._streams.find_run_at_work(request.session_id, header.epoch, found_record)

    async def _recover_sub_agent_calls(self, agent: Agent, request: OpenSessionInput) -> Suspension | None:
        limit, deployment = self._inline_arguments, self._deployment
        return await recover_sub_agent_calls(self._threads, agent, request, limit, deployment)

    async def _sync_suspended_turn(
        self, request: OpenSessionInput, header: HotHeader, record: SessionRecord
    ) -> SuspendedTurn | None:
        """The turn that waits for answers, and is gone on with; the session store follows the thread."""
        if request.reopen is not None and find_suspension(record, header.head):
            return None  # the workflow knows
        states = None if self._states is None else self._states.suspended
        waits = states is not None and find_suspension(record, header.head) is not None
        answers = await states.list_answers(request.session_id) if states is not None and waits else {}
        suspended = await read_suspended_turn(
            self._threads, self._payloads, header, record, answers, self._inline_arguments
        )
        if states is not None and suspended is not None:
            await states.restore_waiting(
                request.session_id, header.epoch, suspended, list_answered_calls(record, header.head)
            )
        elif states is not None:
            await states.drop_waiting(request.session_id, header.epoch, record.answered)
        return suspended

    @activity.defn(name="helix.sessions.save")
    @raise_application_errors
    @lost_state_is_passing
    async def save(self, request: SaveValuesInput) -> SaveValuesResult:
        """Save the application's values, and how the session ended; a repeat finds it saved."""
        version = 0 if request.values is None else await self._save_values(request, request.values)
        if request.outcomes is not None or request.suspended is not None or request.answered:
            version = await save_suspension(self._threads, request)
        if self._states is not None and request.suspended is not None and request.session_id is not None:
            await self._states.suspended.save_suspension(request.session_id, request.epoch, request.suspended)
        if request.ends_run and request.session_id is not None:
            cut = await self._cut_run(request, request.session_id)
            await self._streams.tell_closed(request, cut)
            if cut is not None and (
                self._states is None or await self._states.lacks_run(request.session_id, cut)
            ):
                await self._count_cut_turn(request)
        if self._states is not None:
            outcomes = request.outcomes or (
                request.suspended.outcomes if request.suspended is not None else ()
            )
            if outcomes and request.session_id is not None:
                await self._states.suspended.save_answers(request.session_id, request.epoch, outcomes)
            await self._states.save_end(request)
        return SaveValuesResult(version=version)

    async def _cut_run(self, request: SaveValuesInput, session_id: str) -> str | None:
        """The run of the turn that comes to no end of its own; None if it has ended, or may go on."""
        if self._states is not None:
            return await self._states.run_under_way(session_id, request.run_id)
        if request.run_id is None:
            return None
        facts = await self._threads.read_facts(request.thread_id)
        whole = facts.head.position == facts.committed and parse_record(facts.slice).run == request.run_id
        return None if whole else request.run_id

    async def _count_cut_turn(self, request: SaveValuesInput) -> None:
        """Count a turn that came to no end of its own, where no session store knows of its run."""
        if metrics.find_meter() is None:
            return
        try:
            record = parse_record((await self._threads.read_facts(request.thread_id)).slice)
        except HelixError as error:
            activity.logger.warning("a turn that came to no end is not counted: %s", error)
            return
        failed = request.status == RunStatus.FAILED.value
        ended = RunStatus.FAILED if failed else RunStatus.INTERRUPTED
        metrics.record_turn(record.agent, ended.value, 0)

    async def _save_values(self, request: SaveValuesInput, values: dict[str, Any]) -> int:
        check_values(values)

        def change(stored: StoredRecord) -> SessionRecord:
            return apply_save(stored.record, values, request.changed or (), stored.head)

        saved = await update_record(
            self._threads, request.thread_id, request.epoch, change, "the session's values were saved"
        )
        return saved.version

    async def _open_state(
        self, request: OpenSessionInput, header: HotHeader, record: SessionRecord
    ) -> OpenedState:
        if self._states is None:
            return OpenedState(record.values)
        source = await self._states.find_fork_source(request, header) if request.mode == "fork" else None

        async def tell(run_id: str) -> None:
            await self._streams.tell_left_behind(
                request.session_id, run_id, header.epoch, record.stream_reached
            )

        return await self._states.open(request, header, record, source, tell)

    async def _update_child_refs(self, request: OpenSessionInput, agent: Agent, opened: OpenedThread) -> None:
        """References to sub-agents whose calls are in the thread no more say so, whatever cut them."""
        header, session_id = opened.header, request.session_id
        if self._states is None or opened.created:
            return

        async def called() -> set[str]:
            found = await open_calls(self._threads, agent, session_id, header)
            return {each.session_id for each in found}

        await self._states.children.follow_thread(session_id, header.epoch, called)

    async def _new_record(self, request: OpenSessionInput) -> SessionRecord:
        agent = self._agents.get_agent(request.agent)
        instructions = None
        if agent.instructions_mode == "pinned":
            who = InstructionsContext(
                agent=agent.name,
                session_id=request.session_id,
                thread_id=request.thread_id,
                metadata=dict(request.metadata),
            )
            with application_code(f"instructions of agent {agent.name!r}"):
                instructions = await agent.instructions_for(who)
        return SessionRecord(
            agent=agent.name,
            metadata=dict(request.metadata),
            instructions=instructions,
            options=request.options,
            writer=workflow_run(),
        )

    async def _fork_thread(
        self, request: OpenSessionInput, epoch: int, record: SessionRecord, progress: Progress
    ) -> None:
        if request.fork_from is None:
            raise InvalidRequestError(f"session {request.session_id!r}: mode 'fork' needs fork_from")
        source = await self._threads.read_facts(request.fork_from.thread_id)
        source_record = parse_record(source.slice)
        inherited = record.model_copy(
            update={
                "values": source_record.values,
                "instructions": source_record.instructions,
                "summary": source_record.summary,
            }
        )
        if request.parent is not None:
            # Another agent, with its own.
            inherited = inherited.model_copy(update={"instructions": record.instructions})
        else:
            options = (
                source_record.options
                if request.options is None
                else request.options.over(source_record.options)
            )
            metadata = record.metadata or source_record.metadata
            inherited = inherited.model_copy(update={"options": options, "metadata": metadata})
        fork = ForkThread(
            source_id=request.fork_from.thread_id,
            target_id=request.thread_id,
            epoch=epoch,
            owner=request.owner,
            at=request.fork_from.at,
            slice=encode_record(inherited),
        )
        try:
            await self._threads.fork(fork, progress=progress)
        except ThreadExistsError:
            # A sub-agent's thread serves one call alone: an earlier execution for it has made the copy.  A
            # workflow that was reset to before it has made it itself.
            if request.parent is None and not request.again:
                raise

    @activity.defn(name="helix.sessions.run_step")
    @raise_application_errors
    @lost_state_is_passing
    @limited_as("model")
    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """One model call: look, ask, append, archive.  Answers with the stored step if it stands."""
        async with heartbeat_with_progress(self._beat_every):
            return await self._stepper.run(request)

    @activity.defn(name="helix.sessions.end_turn")
    @raise_application_errors
    @lost_state_is_passing
    @limited_as("model")
    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """Commit tool results without a further model call."""
        async with heartbeat_with_progress(self._beat_every):
            return await self._stepper.end_turn(request)

    @activity.defn(name="helix.sessions.agent_facts")
    @raise_application_errors
    async def agent_facts(self, request: AgentFactsInput) -> AgentFacts:
        """What a workflow must know of an agent, from a worker where it has the tools that are named.

        Raises:
            NotServedError: This worker has another version of it; another worker is tried.
        """
        return self._agents.with_tools(request.agent, request.tools).build_facts()

    @activity.defn(name="helix.sessions.put_text")
    @raise_application_errors
    async def put_text(self, request: PutTextInput) -> PutTextResult:
        """Put a long text, or parts, aside; the same message again overwrites it with itself."""
        content = request.text if request.parts is None else request.parts
        size = len(content.encode()) if isinstance(content, str) else len(canonical_json(content))
        check_size(size, MAX_TEXT, "text" if request.parts is None else "parts")
        # No position is known yet: kept until the expiry or the deletion that follows its step.
        ref = await self._payloads.put(request.thread_id, FAR, f"text/{request.message_id}", content)
        return PutTextResult(ref=ref)

    @activity.defn(name="helix.sessions.load_answer")
    @raise_application_errors
    async def load_answer(self, request: LoadAnswerInput) -> LoadAnswerResult:
        """Read an answer that was given before."""
        position = request.answer.position
        page = await self._threads.read(ReadPage.of_message(request.thread_id, position))
        if not page.messages or page.messages[0].id != request.answer.id:
            raise ThreadNotFoundError(f"thread {request.thread_id!r}: no such answer at {position}")
        text = decode_message(page.messages[0]).text
        return LoadAnswerResult(text=text if len(text.encode()) <= self._inline_text else None)
