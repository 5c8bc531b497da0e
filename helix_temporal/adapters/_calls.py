"""Tool calls as several providers need them: ids for those that give none, names that all take."""

import hashlib
import re
from typing import Final

from helix_temporal.models.agents import ModelRequest

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64


def made_id(request: ModelRequest, place: int) -> str:
    """An id for the call at this place of the answer; the same for each attempt of the step.

    It is no other call's in the thread: a late answer to a call must not be taken for another's.
    """
    digest = hashlib.sha256(f"{request.thread_id}\0{request.step_key}\0{place}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def sent_name(name: str) -> str:
    """The name of a tool that a model, maybe another provider's, has made up, as every provider takes it."""
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "unnamed"
