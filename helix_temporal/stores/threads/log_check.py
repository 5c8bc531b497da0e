"""What is wrong with the messages of a thread, as they come."""

from collections.abc import Iterable

from helix_temporal.models.foreign_rows import is_foreign
from helix_temporal.models.stored_messages import Kind, StoredMessage


class LogCheck:
    """Finds doubled ids, calls without results, and stray results, in messages from the first one on.

    Calls and results among foreign rows are as their framework wrote them.  Of the messages only the ids are
    kept.

    Args:
        committed: Where the finished turns end.

    Attributes:
        count: Messages so far.
        last: The newest one.
    """

    def __init__(self, committed: int) -> None:
        self._committed = committed
        self._ids: set[str] = set()
        self._problems: list[str] = []
        self.count = 0
        self.last: StoredMessage | None = None

    def add_messages(self, messages: Iterable[StoredMessage]) -> None:
        """Go on with the messages that follow."""
        for each in messages:
            self._add_message(each)

    def _add_message(self, message: StoredMessage) -> None:
        ours = not is_foreign(message)
        before = None if self.last is None else self.last.kind
        if message.kind == Kind.RESULT and ours and before not in {Kind.CALLS, Kind.RESULT}:
            self._problems.append(f"message {self.count} is a tool result without a call before it")
        if self.count + 1 == self._committed and message.kind == Kind.CALLS and ours:
            self._problems.append(
                f"the finished turns end at {self._committed} with a tool call without results"
            )
        self._ids.add(message.id)
        self.count, self.last = self.count + 1, message

    def find_problems(self) -> tuple[str, ...]:
        """What is wrong with the messages so far."""
        doubled = self.count - len(self._ids)
        said = [f"{doubled} messages are there twice"] if doubled else []
        return (*said, *self._problems)


def check_log(messages: Iterable[StoredMessage], committed: int) -> list[str]:
    """What is wrong with a thread's messages, all at once."""
    log = LogCheck(committed)
    log.add_messages(messages)
    return list(log.find_problems())
