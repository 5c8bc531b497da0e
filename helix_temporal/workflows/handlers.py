"""What clients ask of a session: ask, send, close, take back, set properties, move, status."""

from collections.abc import Awaitable, Callable

from temporalio import workflow

from helix_temporal.errors import AgentMismatchError, HelixError, InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.base import check_text, json_size
from helix_temporal.models.handles import TakeBackRequest
from helix_temporal.models.limits import MAX_UPDATE_TEXT
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import (
    AnswerRef,
    AskResult,
    AskStatus,
    RewindResult,
    SessionInfo,
    SessionInput,
    SetPropertiesInput,
    UserMessage,
)
from helix_temporal.models.states import SessionProperties, check_thread
from helix_temporal.models.waiting import is_foreign_ref
from helix_temporal.session.inbox import AskAgain
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.execution import Execution, ask_again, update_refusal


def accept_update() -> None:
    """Accept it: interceptors, which refuse other deployments, are asked only where there is a validator."""


def accept_request(_request: object) -> None:
    """As `accept_update`; without its one argument an update is refused, and not the workflow's task."""


class Handlers:
    """Updates, a signal and the query of a session; registered before its ``run`` begins."""

    def __init__(
        self,
        input: SessionInput,
        execution: Execution,
        calls: TemporalCalls,
        supersede_below: Callable[[], Awaitable[None]],
    ) -> None:
        self._input, self._execution, self._calls = input, execution, calls
        self._supersede_below = supersede_below
        self._set_last = (0, 0)
        """Epoch and version of the state that the properties are of."""

    def register(self) -> None:
        """Make them known to the workflow."""
        workflow.set_update_handler("ask", self._on_ask, validator=self._check_message)
        workflow.set_update_handler("send_message", self._on_send, validator=self._check_message)
        workflow.set_update_handler("close", self._on_close, validator=accept_update)
        workflow.set_update_handler("set_properties", self._on_set_properties, validator=accept_request)
        workflow.set_update_handler("take_back", self._on_take_back, validator=accept_request)
        workflow.set_signal_handler("move", self._on_move)
        workflow.set_query_handler("status", self._on_status)

    def _check_message(self, message: UserMessage) -> None:
        check_size(len(message.text.encode(errors="surrogatepass")), MAX_UPDATE_TEXT, "text of an update")
        check_size(json_size(message.metadata), MAX_UPDATE_TEXT, "metadata of a message")
        if not message.text and message.ref is None:
            raise InvalidRequestError("text is empty")
        if message.agent not in {None, self._input.agent}:
            if self._execution.close or self._execution.closing:
                raise ask_again()
            raise AgentMismatchError(
                f"session {self._input.session_id!r} runs with agent {self._input.agent!r}, not with "
                f"{message.agent!r}; close it first, then ask again, or leave the agent out"
            )
        if self._execution.thread is not None:
            self._check_thread(message)
        check_text(message.text, "text")
        if message.ref is not None and is_foreign_ref(message.ref):
            raise InvalidRequestError("ref: the name of a payload expected, not that of a message")

    async def _on_ask(self, message: UserMessage) -> AskResult:
        if self._execution.closing:
            raise ask_again()
        before = self._execution.inbox.find_answer(message.id)
        if before is not None and (again := await self._load_earlier_answer(message.id, before)) is not None:
            return self._execution.with_place(again, self._input)
        entry_before = self._execution.inbox.find(message.id)
        if entry_before is None:
            await self._admit_message(message)
        if (
            self._execution.waits_for_people
            and self._execution.exits_while_waiting
            and not self._execution.supersedes
        ):
            return self._execution.build_suspended_result(
                in_thread=entry_before is not None and entry_before.in_thread
            )
        entry = entry_before or self._execution.inbox.put(message.without_properties(), asked=True)
        self._execution.inbox.try_again()
        await self._supersede_below()
        seen = entry.interim_result
        self._execution.askers += 1
        try:
            await workflow.wait_condition(
                lambda: entry.result is not None or entry.interim_result is not seen
            )
        finally:
            self._execution.askers -= 1
        told = entry.result or entry.interim_result
        assert told is not None
        if isinstance(told, AskAgain):
            raise ask_again()
        return self._execution.with_place(told, self._input)

    async def _load_earlier_answer(self, message_id: str, answer: AnswerRef) -> AskResult | None:
        """The answer that was given before; None if the stores have lost it."""
        try:
            text = await self._calls.load_answer(self._execution.thread_of(self._input), answer)
        except ThreadNotFoundError:
            self._execution.inbox.forget_answer(message_id)
            return None
        result = AskResult(status=AskStatus.ANSWERED, in_thread=True, text=text, answer=answer)
        return self._execution.finish_result(result)

    async def _on_send(self, message: UserMessage) -> None:
        if self._execution.closing:
            raise ask_again()
        if self._execution.inbox.find_answer(message.id) is None:
            if self._execution.inbox.find(message.id) is None:
                await self._admit_message(message)
            self._execution.inbox.put(message.without_properties())
            await self._supersede_below()
            await self._wait_until_open()

    async def _wait_until_open(self) -> None:
        """Wait until the session is open, for what came with the start.

        Raises:
            ApplicationError: It could not be opened, as where it has expired; or it ended before, and the
                update is to be sent again.
        """
        execution = self._execution
        if execution.thread is None:
            await workflow.wait_condition(lambda: execution.thread is not None or execution.closing)
        if execution.thread is None:
            raise execution.build_refusal()

    async def _admit_message(self, message: UserMessage) -> None:
        """Let a new message come in, once the properties that it names are set.

        The run may have begun to end since the message came: what came in then would have no turn anywhere.

        Raises:
            ApplicationError: The session has expired, has another thread, or no store for its properties;
                or the run ends, and the message is to be sent again.
        """
        if message.thread_id not in {None, self._input.thread_id} and self._execution.thread is None:
            # The session may have another thread than it is opened with, as the open finds.
            await self._wait_until_open()
            try:
                self._check_thread(message)
            except InvalidRequestError as error:
                raise update_refusal(error) from error
        if message.properties is not None and not await self._set_properties(message.properties):
            raise ask_again()
        self._execution.check_not_expired(self._input.session_id)
        if self._execution.closing:
            raise ask_again()

    def _check_thread(self, message: UserMessage) -> None:
        if message.thread_id is not None:
            check_thread(self._input.session_id, self._execution.thread_of(self._input), message.thread_id)

    async def _set_properties(self, properties: SessionProperties) -> bool:
        """Set properties of the session; false where the run ends.

        Raises:
            ApplicationError: As `_wait_until_open`; or there is no store for them.
        """
        execution, opens = self._execution, self._execution.thread is None and self._input.carried is None
        await self._wait_until_open()
        if execution.closing:
            return False
        if opens and properties == self._input.properties:
            return True  # the open has set them
        request = SetPropertiesInput(
            session_id=self._input.session_id,
            properties=properties,
            epoch=execution.opened_thread.handle.epoch,
        )
        try:
            kept = await self._calls.set_properties(request)
        except HelixError as error:
            if self._execution.closing:
                return False  # this run's end has shut its epoch; the next run sets them
            raise update_refusal(error) from error
        written = (request.epoch or 0, kept.version)
        if written >= self._set_last:
            # Results of two may come in another order than they were written in.
            self._set_last = written
            execution.expires_at, execution.opened_thread.tracing_context = (
                kept.expires_at,
                kept.tracing_context,
            )
        return True

    async def _on_set_properties(self, properties: SessionProperties) -> None:
        # The store has them: the next open finds them there, and only a run that goes on as new has none.
        if not await self._set_properties(properties) and self._execution.finalised:
            raise ask_again()

    async def _on_close(self) -> None:
        self._execution.close = True
        self._execution.tell_askers_if_exiting()

    async def _on_take_back(self, request: TakeBackRequest) -> RewindResult:
        self._execution.refuse_if_closing()
        rewind = self._execution.rewinds.add_request(
            request, None if self._execution.is_reset else workflow.random_seed()
        )
        await workflow.wait_condition(lambda: rewind.result is not None)
        if isinstance(rewind.result, RewindResult):
            return rewind.result
        raise self._execution.build_refusal()

    def _on_move(self, *_: object) -> None:
        """Nothing: its workflow task tells an idle session that another worker version is to serve it."""

    def _on_status(self) -> SessionInfo:
        info, failing = self._execution.status_of(self._input), self._calls.roll_outs.failing
        return info.model_copy(update={"failing": failing}) if failing else info
