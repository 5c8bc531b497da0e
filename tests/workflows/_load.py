"""People who talk with sessions while workers are replaced, and what they may expect of it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import AskResult, AskStatus
from helix_temporal.models.waiting import ToolApproval
from tests.workflows._releases import until

WORDS = ("say", "act", "helper", "sign")


@dataclass
class Talk:
    """One person and one session: a turn after the other, each of which must be answered once.

    Attributes:
        sessions: Of any client.
        session_id: Whose.
        word: What the turns are of; see `_releases.agents`.
        agrees: Calls that wait for this person are approved once it is set.
        pause: Seconds that this person thinks between two turns.
        said: The texts so far, one a turn.
    """

    sessions: SessionClient
    session_id: str
    word: str
    agrees: asyncio.Event
    pause: float = 0.0
    said: list[str] = field(default_factory=list)

    async def turn(self) -> None:
        """Ask, approve what is to be, and look at the answer."""
        text = f"{self.word} {len(self.said)}"
        self.said.append(text)
        result: AskResult | None = await self.sessions.ask(self.session_id, text, agent="main", timeout=120)
        if result is not None and result.status is AskStatus.SUSPENDED:
            approval = ToolApproval(approval_id=result.pending[0].id, approved=True)
            await self.agrees.wait()
            reply = await self.sessions.session(self.session_id).submit_approval(
                approval, wait=True, timeout=120
            )
            result = reply.result
        assert result is not None
        assert (result.status, result.text) == (AskStatus.ANSWERED, f"done: {text}")

    async def go_on(self, stop: asyncio.Event) -> None:
        """One turn after the other until that is set; people begin at different times."""
        await asyncio.sleep(random.random() * self.pause)
        while not stop.is_set():
            await self.turn()
            await asyncio.sleep(self.pause)

    async def check_thread(self) -> None:
        """Each message is there once, and each answer behind it."""
        messages = await self.sessions.session(self.session_id).get_messages()
        asked = [each.text for each in messages if each.role == "user"]
        answers = [each.text for each in messages if each.role == "assistant" and each.text]
        assert asked == self.said
        assert answers == [f"done: {each}" for each in self.said]


async def all_go_on(talks: Sequence[Talk], load: "asyncio.Future[Any]", turns: int = 1) -> None:
    """Come back once each of them has begun so many further turns; raise what ends the load before."""
    wanted = {talk.session_id: len(talk.said) + turns for talk in talks}

    async def is_so() -> bool:
        if load.done():
            load.result()
        return all(len(talk.said) >= wanted[talk.session_id] for talk in talks)

    await until(is_so, within=600)
