"""SIGKILL, and a Redis that is wiped, under trees of sessions that end while a sub-agent waits for people."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helix_temporal.devstack import Valkey
from helix_temporal.settings import Settings
from tests.chaos._children import ChildKillCampaign
from tests.chaos._wipes import Wiping


class TreeKills(Wiping, ChildKillCampaign):
    """Sessions whose sub-agents ask people, and which end, all of them, until somebody answers."""

    name = "kills in trees that end"
    _manner: Mapping[str, Any] = MappingProxyType(
        {"texts": ("asking agents=1", "asking agents=3", "deep agents=2", "hello")}
    )

    def __init__(
        self, settings: Settings, directory: Path, *, seed: int,
        valkey: Valkey | None = None,
        sessions: int = 3,
    ) -> None:  # fmt: skip
        if valkey is not None:
            settings = settings.model_copy(update={"redis_url": valkey.url})
        super().__init__(settings, directory, seed=seed, sessions=sessions, askers=1)
        self._options = self._options.model_copy(update={"suspend": "exit"})
        self._valkey = valkey

    @property
    def _keeps_usage(self) -> bool:
        """What a wiped Redis knew of usage is gone with it."""
        return not self._wipes
