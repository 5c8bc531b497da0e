"""SessionHandle: all that can be asked of one session."""

from typing import TYPE_CHECKING, Any

from helix_temporal.models.records import Head
from helix_temporal.models.sessions import AskResult, SessionResult
from helix_temporal.models.threads import ReadMessagesResult

if TYPE_CHECKING:
    from helix_temporal.client import SessionClient


class SessionHandle:
    """One session of a `SessionClient`."""

    def __init__(self, client: "SessionClient", session_id: str, agent: str | None) -> None:
        self.client, self.session_id, self.agent = client, session_id, agent

    async def ask(self, text: str, **options: Any) -> AskResult:
        """As `SessionClient.ask`."""
        return await self.client.ask(self.session_id, text, agent=self.agent, **options)

    async def send(self, text: str, **options: Any) -> str:
        """As `SessionClient.send`."""
        return await self.client.send(self.session_id, text, agent=self.agent, **options)

    async def history(self, **options: Any) -> ReadMessagesResult:
        """As `SessionClient.history`."""
        return await self.client.history(self.session_id, **options)

    async def fork(self, target_id: str, **options: Any) -> Head:
        """As `SessionClient.fork`."""
        return await self.client.fork(self.session_id, target_id, **options)

    async def interrupt(self) -> bool:
        """Stop the turn after its present step."""
        return await self.client.stop(self.session_id)

    async def abort(self) -> bool:
        """Stop the turn at once, without a trace of it."""
        return await self.client.stop(self.session_id, abort=True)

    async def result(self) -> SessionResult:
        """As `SessionClient.result`."""
        return await self.client.result(self.session_id)

    async def close(self) -> None:
        """As `SessionClient.close`."""
        await self.client.close(self.session_id)
