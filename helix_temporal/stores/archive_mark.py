"""The hot store remembers which archive its threads go to; who has none, or another one, is refused.

A conversation that is archived and evicted is in its archive alone.  A process without it, on the same hot
store, would find no messages and begin the conversation anew.
"""

import inspect
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from helix_temporal.errors import ForeignDeploymentError
from helix_temporal.models.deployments import SETTINGS, Deployment
from helix_temporal.stores.protocols.hot import HotTier, PayloadStore

_PLACE: Final = "helix/archive"
"""A thread id, of no thread: the mark lies with the texts that are on their way to threads."""
_KEY: Final = "mark"
_KIND: Final = "archive"
_SECONDS: Final = 10 * 365 * 86400.0
"""How long the mark is kept; each process that has the archive begins the time anew."""
_CHECK_EVERY: Final = 60.0
"""Seconds: a wiped hot store forgets its mark, and an archive may be added while processes run."""
_UNCHECKED: Final = frozenset({"check", "close"})


def _mark_of(deployment: Deployment) -> str:
    """Where its archive is, as a digest; empty where it has none."""
    return dict(deployment.marks).get(_KIND, "")


class ArchiveMark:
    """Checked by a process before its first call on threads, and once a minute from then on.

    Args:
        payloads: Of the hot store.
        own: The archive of this process, with the deployment's name.
        also: Identities that are the same deployment: of an archive that was moved.
    """

    def __init__(self, payloads: PayloadStore, own: Deployment, also: Sequence[str] = ()) -> None:
        self._payloads, self._own = payloads, own
        self._accepted = {_mark_of(own), *(_mark_of(Deployment.parse(each)) for each in also)} - {""}
        self._good_until = self._compared_until = 0.0

    async def compare(self) -> None:
        """Compare the archive with the one that is remembered; changes nothing.

        Raises:
            ForeignDeploymentError, StoreUnavailableError: As `check`.
        """
        now = time.monotonic()
        if now < max(self._good_until, self._compared_until):
            return
        await self._refuse_other()
        self._compared_until = now + _CHECK_EVERY

    async def check(self) -> None:
        """As `compare`; whoever has an archive is remembered with it.

        Raises:
            ForeignDeploymentError: The threads go to another archive.
            StoreUnavailableError: The hot store did not answer.
        """
        now = time.monotonic()
        if now < self._good_until:
            return
        mine = await self._refuse_other()
        if mine:
            await self._payloads.put_payload(_PLACE, _KEY, mine.encode(), _SECONDS)
        self._good_until = now + _CHECK_EVERY

    async def _refuse_other(self) -> str:
        """This process's archive; raises where the threads go to another one."""
        mine = _mark_of(self._own)
        found = (await self._payloads.get_payload(_PLACE, _KEY) or b"").decode()
        if found and found not in self._accepted:
            raise self._refusal(found, mine)
        return mine

    def _refusal(self, found: str, mine: str) -> ForeignDeploymentError:
        identity = f"{self._own.name}@{_KIND}:{found}"
        return ForeignDeploymentError(
            f"the threads of this store go to archive {found}, and this process has "
            f"{f'archive {mine}' if mine else 'no archive'}: what is archived would read as empty. Set "
            f"{SETTINGS[_KIND]} as the other processes have them. An archive that was moved, or given up, is "
            f"told by HELIX_ALSO_KNOWN_AS={identity}",
            asking=identity,
            own=str(self._own),
        )


class MarkedHotTier:
    """`HotTier` around another one, which compares archives before the first call.

    Args:
        remembers: The hot store is to remember this process's archive; not for who only reads.
    """

    def __init__(self, inner: HotTier, mark: ArchiveMark, *, remembers: bool = True) -> None:
        self._inner, self._mark = inner, mark
        self._check = mark.check if remembers else mark.compare

    def for_reading(self) -> HotTier:
        """The same hot tier, which remembers no archive."""
        return cast("HotTier", MarkedHotTier(self._inner, self._mark, remembers=False))

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name in _UNCHECKED or not inspect.iscoroutinefunction(call):
            return call

        async def checked(*arguments: Any, **named: Any) -> Any:
            await self._check()
            return await call(*arguments, **named)

        return checked


def hot_for_reading(hot: HotTier) -> HotTier:
    """The hot tier for who only reads: no call writes which archive this process has."""
    return hot.for_reading() if isinstance(hot, MarkedHotTier) else hot


def compare_archives(hot: HotTier, mark: ArchiveMark) -> HotTier:
    """The hot tier, for whoever may have another archive than its threads go to."""
    return cast("HotTier", MarkedHotTier(hot, mark))
