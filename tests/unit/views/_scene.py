"""Sessions as workers write them, without workers: threads, runs and usage in real stores."""

from dataclasses import dataclass, field

from helix_temporal.client import SessionStores
from helix_temporal.models.checkpoints import NewRun, Run, RunChange, RunRecorded, RunStatus
from helix_temporal.models.ids import make_result_id
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.models.turns import encode_messages
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry, ToolUsageEntry
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadPage
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import EPOCH
from helix_temporal.views.models import ConversationPage, ConversationTurn
from helix_temporal.views.sessions import SessionViews
from tests._sessions import Place


class CountedThreads(HotThreads):
    """Remembers how many messages and bytes were read."""

    messages_read = 0
    bytes_read = 0

    async def read(self, request: ReadPage) -> ThreadPage:
        """Counted."""
        page = await super().read(request)
        self.messages_read += len(page.messages)
        self.bytes_read += sum(len(each.body) for each in page.messages)
        return page


@dataclass
class Scene:
    """Stores, and what is written to them."""

    stores: SessionStores
    threads: CountedThreads
    sessions: RowSessions

    @property
    def views(self) -> SessionViews:
        """Of somebody who may see everything."""
        return SessionViews(self.stores)

    async def begin(self, session_id: str = "s1", **fields: object) -> "Writer":
        """A new session without messages."""
        await self.sessions.create_session(session_id, CreateSession.model_validate(fields))
        writer = Writer(self, session_id)
        await writer.open()
        return writer


def scene_over(place: Place, usage: UsageStore) -> Scene:
    """The stores of a place."""
    threads = CountedThreads(place.threads)
    sessions = RowSessions(place.rows, threads)
    stores = SessionStores(threads=threads, usage=usage, sessions=sessions)
    return Scene(stores, threads, sessions)


@dataclass
class Writer:
    """One session, written as its workflow does."""

    scene: Scene
    session_id: str
    epoch: int = EPOCH
    head: Head = EMPTY
    runs: list[Run] = field(default_factory=list)

    async def open(self) -> None:
        """Take the thread; what was not committed is cut."""
        opened = await self.scene.threads.open(OpenThread(self.session_id, self.epoch, "run"))
        self.head = opened.at

    async def rewind(self, position: int, last_id: str) -> None:
        """Cut the thread back."""
        self.epoch += 1_000_000
        head = Head(position=position, last_id=last_id)
        opened = await self.scene.threads.open(OpenThread(self.session_id, self.epoch, "run", rewind_to=head))
        self.head = opened.at

    async def append_stored(self, stored: tuple[StoredMessage, ...], *, commits: bool = True) -> None:
        """Messages as they are stored."""
        step = StepAppend(self.session_id, self.epoch, self.head, stored, None, commits)
        self.head = (await self.scene.threads.append(step)).head

    async def append(self, *messages: Message, commits: bool = True) -> None:
        """Messages of a turn."""
        await self.append_stored(encode_messages(messages), commits=commits)

    async def start(self) -> Run:
        """The run of the next turn."""
        number = len(self.runs) + 1
        run = NewRun(run_id=f"run-{number}", start_head=self.head)
        recorded = await self.scene.sessions.start_run(self.session_id, run)
        assert isinstance(recorded, RunRecorded)
        self.runs.append(recorded.run)
        return recorded.run

    async def end(self, status: RunStatus = RunStatus.COMPLETED) -> None:
        """The run is over."""
        change = RunChange(status=status, step_count=1, completion_reason=status.value)
        await self.scene.sessions.update_run(self.session_id, self.runs[-1].run_id, change)

    async def turn(self, *messages: Message) -> Run:
        """A whole turn that was completed."""
        run = await self.start()
        await self.append(*messages)
        await self.end()
        return run

    async def record_model_call(self, answer_id: str, run: Run, *, input_tokens: int = 10) -> None:
        """What usage tells of a step."""
        await self.scene.stores.usage.record_entry(
            TokenUsageEntry(
                id=f"step/{answer_id}",
                session_id=self.session_id,
                timestamp=run.started_at,
                run_id=run.run_id,
                step_count=1,
                model="m-1",
                tokens=TokenCounts(prompt=input_tokens, completion=2),
                duration_ms=7,
            )
        )

    async def record_tool_call(
        self,
        answer_id: str,
        run: Run,
        *,
        at: int = 0,
        success: bool = True,
        name: str = "look",
        attempts: int = 1,
    ) -> None:
        """What usage tells of a tool call."""
        await self.scene.stores.usage.record_entry(
            ToolUsageEntry(
                id=f"tool/{make_result_id(answer_id, at)}",
                session_id=self.session_id,
                timestamp=run.started_at,
                run_id=run.run_id,
                step_count=1,
                tool_name=name,
                tool_call_id=f"call_{at}",
                success=success,
                duration_ms=5,
                attempts=attempts,
                error="" if success else "it was closed",
            )
        )


def user(message_id: str, text: str = "hello") -> Message:
    """What a user says."""
    return Message(id=message_id, role="user", content=text)


def answer(message_id: str, text: str = "hi", *calls: ToolCall) -> Message:
    """What a model answers, with the calls that it asks for."""
    usage = Usage(input_tokens=10, output_tokens=2)
    return Message(id=message_id, role="assistant", content=text, tool_calls=calls, usage=usage)


def call(at: int = 0, name: str = "look", **arguments: str) -> ToolCall:
    """A call with an id as a careless provider gives it: the same in every turn."""
    return ToolCall(id=f"call_{at}", name=name, arguments=dict(arguments))


def result(answer_id: str, at: int = 0, text: str = "seen", *, is_error: bool = False) -> Message:
    """The result of a call."""
    return Message(
        id=make_result_id(answer_id, at),
        role="tool",
        content=text,
        tool_call_id=f"call_{at}",
        name="look",
        is_error=is_error,
    )


def texts(turn: ConversationTurn) -> list[str]:
    """What is said in a turn."""
    return [each.text for each in turn.messages]


def places(page: ConversationPage) -> list[tuple[int | None, int, int]]:
    """The turns of a page: number, start, stop."""
    return [(each.number, each.start, each.stop) for each in page.turns]
