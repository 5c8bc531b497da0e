"""What an execution of a session does next.  Pure."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Work(StrEnum):
    """What there is to do."""

    REWIND = "rewind"
    RESUME = "resume"
    SERVE = "serve"
    WAIT = "wait"
    END = "end"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that decides what an execution does next, while no turn runs.

    Attributes:
        rewind: Turns are to be taken back now: no message that came before waits, or a turn is suspended.
        suspended: A turn waits for answers.
        can_resume: The suspended turn can go on, or is to be ended.
        messages: Messages wait for a turn.
        archive_behind: They are not to be tried now, since the archive is too far behind.
        exits: The execution does not wait for answers.
        ends: Somebody closed the session, or it was idle for long enough.
        persistent: The execution waits for further messages.
    """

    rewind: bool = False
    suspended: bool = False
    can_resume: bool = False
    messages: bool = False
    archive_behind: bool = False
    exits: bool = False
    ends: bool = False
    persistent: bool = True


def next_work(now: Situation) -> Work:
    """What to do in this situation."""
    if now.rewind:
        return Work.REWIND
    if now.suspended and now.can_resume:
        return Work.RESUME
    if now.suspended:
        # Ending now would lose the messages that the execution has accepted.
        return Work.END if now.exits and not now.messages else Work.WAIT
    if now.messages:
        return Work.WAIT if now.archive_behind else Work.SERVE
    return Work.END if now.ends or not now.persistent else Work.WAIT


def may_end(now: Situation) -> bool:
    """Whether the execution may end once nobody wants it any longer: nothing is left to do or to wait for."""
    return next_work(replace(now, ends=True)) is Work.END
