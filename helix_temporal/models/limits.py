"""Sizes above which content travels by reference, and above which it is refused or left out, in bytes.

Clients, workflows, activities and stores share them.  Where the settings of a worker change one, it is the
default.  How many entries a page or a list may have stands with these.
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

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""A message must fit one segment; what passes through a workflow is bounded much lower (settings)."""
MAX_VALUES_BYTES: Final = 64 * 1024
"""The application's values travel through workflows: as JSON they may not be larger."""
MAX_ERROR_TEXT: Final = 8 * 1024
"""What a caller tells of an error, or as a reason."""

MAX_CHANGED_BYTES: Final = 4 * 1024
"""Keys of the values that changed, and where, as JSON, about: they are in the record, which goes with every
step.  The oldest are left out.
"""
MAX_CHANGED_KEYS: Final = 256
"""So many of them."""

MAX_STATE: Final = 16 * 1024 * 1024
"""A session's state, and any row of a session, as JSON."""
MAX_PATCH_OPERATIONS: Final = 10_000
"""Operations of one change of the custom state."""
MAX_PATCH_PATH: Final = 4096
"""Characters of a path in it."""
MAX_PATCH_MOVED: Final = 64 * 1024 * 1024
"""Bytes of JSON that its operations may copy or move, all together."""

DEDUP_WINDOW: Final = 200
"""A message whose id is among so many messages before the head counts as sent again."""


def largest_result(message_bytes: int) -> int:
    """What a tool's result may have that is put aside, as JSON; what a workflow carries has closer bounds."""
    return 64 * message_bytes
