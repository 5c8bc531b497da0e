"""Sizes above which content travels by reference, and above which it is refused, in bytes.

Clients, workflows and activities share them.  Where the settings of a worker change one, it is the default.
"""

from typing import Final

INLINE_TEXT: Final = 8 * 1024
"""A text that is in workflow history as it is: messages of users, answers, texts that hooks have changed."""
INLINE_RESULT: Final = 2 * 1024
"""A tool's result, the arguments of a call, or the answer in a session's result, that is there as it is."""
MAX_UPDATE_TEXT: Final = 256 * 1024
"""A text that an update takes as it is; our clients send it by reference long before."""
MAX_TURN: Final = 512 * 1024
"""All messages of one turn, as JSON: they are in the input of one activity, which has 2 MB at most."""
MAX_CARRIED: Final = 768 * 1024
"""Messages and answers that wait, as JSON, when an execution continues as new: it carries on what it knows in
one input.
"""
MAX_INLINE_RESULTS: Final = 1024 * 1024
"""Results of one step that were not put aside, as JSON: together they are in the input of the next one."""
MAX_PAYLOAD: Final = 2_000_000
"""What one payload of Temporal's may have, as JSON: servers refuse more than 2 MiB by default."""
MAX_TEXT: Final = 1024 * 1024
"""A message, or the result of a call."""

MAX_CUT: Final = 200
"""Messages that are taken back in one operation, which keeps them for a repetition."""
MAX_CUT_TEXT: Final = 4 * 1024 * 1024
"""All messages that are taken back in one operation, as they are stored; one alone may be larger."""

MAX_METADATA: Final = 64 * 1024
"""A session's metadata, as JSON: every list shows them."""
MAX_TITLE: Final = 300
"""Characters of a session's title, not bytes."""


def largest_result(message_bytes: int) -> int:
    """What a tool's result may have that is put aside, as JSON; what a workflow carries has closer bounds."""
    return 64 * message_bytes
