"""SessionHandle: all that can be asked of one session."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from helix_temporal.client._streams import LiveAsk
from helix_temporal.models.checkpoints import CheckpointMeta, Run
from helix_temporal.models.handles import ChildInfo, DeleteResult, HistoryPage, SessionUsage, TurnInfo
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import AskResult, SessionInfo, SessionResult, SubmitReply
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import Page
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.waiting import PendingCall, ToolApproval

if TYPE_CHECKING:
    from helix_temporal.client import SessionClient


class SessionHandle:
    """One session of a `SessionClient`."""

    def __init__(self, client: "SessionClient", session_id: str, agent: str | None) -> None:
        self.client, self.session_id, self.agent = client, session_id, agent

    # -- talk

    async def ask(self, text: str, **options: Any) -> AskResult:
        """As `SessionClient.ask`."""
        return await self.client.ask(self.session_id, text, agent=self.agent, **options)

    def stream_ask(self, text: str, **options: Any) -> LiveAsk:
        """As `SessionClient.stream_ask`."""
        return self.client.stream_ask(self.session_id, text, agent=self.agent, **options)

    def stream(self, **options: Any) -> AsyncGenerator[StoredChunk]:
        """As `SessionClient.stream`."""
        return self.client.stream(self.session_id, **options)

    async def send(self, text: str, **options: Any) -> str:
        """As `SessionClient.send`."""
        return await self.client.send(self.session_id, text, agent=self.agent, **options)

    async def interrupt(self, *, run_id: str | None = None) -> bool:
        """Stop the turn after its present step; with ``run_id`` only if it is that one."""
        return await self.client.stop(self.session_id, run_id=run_id, agent=self.agent)

    async def abort(self, *, run_id: str | None = None) -> bool:
        """Stop the turn at once, without a trace of it; with ``run_id`` only if it is that one."""
        return await self.client.stop(self.session_id, abort=True, run_id=run_id, agent=self.agent)

    async def result(self) -> SessionResult:
        """As `SessionClient.result`."""
        return await self.client.result(self.session_id)

    async def close(self) -> None:
        """As `SessionClient.close`."""
        await self.client.close(self.session_id)

    async def pending(self) -> tuple[PendingCall, ...]:
        """As `SessionClient.pending`."""
        return await self.client.pending(self.session_id)

    async def submit_tool_result(
        self, call: str | PendingCall, result: Any = None, **options: Any
    ) -> SubmitReply:
        """As `SessionClient.submit_tool_result`."""
        options.setdefault("agent", self.agent)
        return await self.client.submit_tool_result(self.session_id, call, result, **options)

    async def submit_approval(self, approval: ToolApproval, **options: Any) -> SubmitReply:
        """As `SessionClient.submit_approval`."""
        options.setdefault("agent", self.agent)
        return await self.client.submit_approval(self.session_id, approval, **options)

    # -- look

    async def status(self) -> SessionInfo:
        """As `SessionClient.status`."""
        return await self.client.status(self.session_id)

    async def wait_for_change(self, version: int = 0, *, timeout: float = 60.0) -> SessionInfo:
        """As `SessionClient.wait_for_change`."""
        return await self.client.wait_for_change(self.session_id, version, timeout=timeout)

    async def state(self) -> SessionState | None:
        """As `SessionClient.state`."""
        return await self.client.state(self.session_id)

    async def run(self, run_id: str) -> Run | None:
        """As `SessionClient.run`."""
        return await self.client.run(self.session_id, run_id)

    async def usage(self) -> SessionUsage:
        """As `SessionClient.usage`."""
        return await self.client.usage(self.session_id)

    async def history(self, **options: Any) -> HistoryPage:
        """As `SessionClient.history`."""
        return await self.client.history(self.session_id, **options)

    async def messages(self) -> list[Message]:
        """As `SessionClient.messages`."""
        return await self.client.messages(self.session_id)

    async def turns(self, **options: Any) -> Page[TurnInfo]:
        """As `SessionClient.turns`."""
        return await self.client.turns(self.session_id, **options)

    async def checkpoints(self, **options: Any) -> Page[CheckpointMeta]:
        """As `SessionClient.checkpoints`."""
        return await self.client.checkpoints(self.session_id, **options)

    async def children(self, **options: Any) -> Page[ChildInfo]:
        """As `SessionClient.children`."""
        return await self.client.children(self.session_id, **options)

    # -- take back

    async def rewind(self, to: Head, **options: Any) -> Head:
        """As `SessionClient.rewind`."""
        return await self.client.rewind(self.session_id, to, agent=self.agent, **options)

    async def rewind_to_turn(self, turns: int, **options: Any) -> Head:
        """As `SessionClient.rewind_to_turn`."""
        return await self.client.rewind_to_turn(self.session_id, turns, agent=self.agent, **options)

    async def restore(self, checkpoint_id: str, **options: Any) -> Head:
        """As `SessionClient.restore`."""
        return await self.client.restore(self.session_id, checkpoint_id, agent=self.agent, **options)

    async def regenerate(self, **options: Any) -> AskResult:
        """As `SessionClient.regenerate`."""
        return await self.client.regenerate(self.session_id, agent=self.agent, **options)

    async def fork(self, target_id: str, **options: Any) -> Head:
        """As `SessionClient.fork`."""
        return await self.client.fork(self.session_id, target_id, **options)

    async def delete(self, **options: Any) -> DeleteResult:
        """As `SessionClient.delete`."""
        return await self.client.delete(self.session_id, **options)

    async def edit(self, message_id: str, text: str, target_id: str, **options: Any) -> AskResult:
        """As `SessionClient.edit`; ``agent`` is the handle's unless another is given."""
        options.setdefault("agent", self.agent)
        return await self.client.edit(self.session_id, message_id, text, target_id, **options)
