"""A Redis that is wiped at every second kill."""

import asyncio
from collections.abc import Mapping, Sequence

from helix_temporal.devstack import Valkey
from helix_temporal.models.messages import Message
from tests.chaos._agent import token_of
from tests.chaos._kills import KillCampaign
from tests.chaos._oracle import Findings


class Wiping(KillCampaign):
    """Kills, at every second of which hot threads are lost."""

    _valkey: Valkey | None = None
    _wipes = 0

    async def _after_kill(self) -> None:
        if self._valkey is not None and len(self._deaths) % 2:
            await asyncio.to_thread(self._valkey.ask, "FLUSHALL")
            self._wipes += 1

    def _excused(self, findings: Findings, threads: Mapping[str, Sequence[Message]]) -> Findings:
        """A step that was in a wiped Redis only, of a worker that could not archive it, is paid again."""
        if self._wipes:
            standing = {token_of(each.text.encode()) for messages in threads.values() for each in messages}
            findings.paid_twice = [
                each for each in findings.paid_twice if each.split(": ")[1].split()[0] in standing
            ]
        return findings
