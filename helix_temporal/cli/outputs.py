"""What commands about a deployment print with ``--json``: a model each.

Those about sessions print `helix_temporal.views.models`; its package brings Temporal's SDK, which a probe
must not.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Output(BaseModel):
    """Base of what is printed; written with every field, so that its schema says what comes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---- thread verify ----------------------------------------------------------------------------------


class ThreadVerdict(Output):
    """What was found of one thread.

    Attributes:
        outcome: ``unread``: a store did not answer for it; ``not_found``: there is no such thread.
        messages: In the thread.
        unarchived: Of these, those that the hot store alone has.
        bytes_read: Of its data; 0 where only its structure was looked at.
        problems: What is wrong, or why it could not be read.
    """

    thread_id: str
    outcome: Literal["sound", "damaged", "unread", "not_found"]
    messages: int = 0
    unarchived: int = 0
    bytes_read: int = 0
    problems: tuple[str, ...] = ()


class Verification(Output):
    """What ``thread verify`` has found.

    Attributes:
        threads: Those that were named; with ``--all`` those that are not sound.
        seen: How many were looked at; ``read`` with their data.
    """

    threads: tuple[ThreadVerdict, ...] = ()
    seen: int = 0
    sound: int = 0
    damaged: int = 0
    unread: int = 0
    read: int = 0
    messages: int = 0
    unarchived: int = 0
    bytes_read: int = 0
