"""Object keys of the cold tier.

::

    {prefix}/v2/{2 hex of sha256(id)}/{encoded id}/manifest
    {prefix}/v2/{2 hex of sha256(id)}/{encoded id}/seg/{first}-{last}.g{gen}.{sha256, 32 digits}
    {prefix}/v2/{2 hex of sha256(id)}/{encoded id}/idx/{first}-{last}.g{gen}.{sha256, 32 digits}
    {prefix}/v2/{2 hex of sha256(id)}/{encoded id}/state/g{gen}.{sha256}
    {prefix}/v2/{2 hex of sha256(id)}/{encoded id}/payload/{position}/{key}
"""

import hashlib
import re
from typing import Final

from helix_temporal.coldtier._manifest import SegmentRef
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.ids import decode_id, encode_id

PARTS: Final = 256
"""How many parts the objects of all threads are spread over."""
_POSITION_DIGITS = 20


class Layout:
    """Names every object below one prefix.

    Raises:
        InvalidConfigError: The prefix has an empty, ``.`` or ``..`` segment or a control character.
    """

    def __init__(self, prefix: str = "") -> None:
        parts = prefix.split("/") if prefix else []
        if any(part in {"", ".", ".."} for part in parts) or re.search(r"[\x00-\x1f\x7f]", prefix):
            raise InvalidConfigError(
                f"object prefix {prefix[:80]!r}: no empty, '.' or '..' segments or control characters"
            )
        self._root = "/".join([*parts, "v2"])

    def thread(self, thread_id: str) -> str:
        """The common prefix of a thread's objects, ending in a slash."""
        spread = hashlib.sha256(thread_id.encode()).hexdigest()[:2]
        return f"{self._root}/{spread}/{encode_id(thread_id)}/"

    @staticmethod
    def tells(thread_id: str) -> bool:
        """Whether a thread's keys say whose they are; those of a long id hold a hash."""
        return decode_id(encode_id(thread_id)) is not None

    def part(self, number: int) -> str:
        """The common prefix of the threads in one of `PARTS` parts of the archive."""
        return f"{self._root}/{number:02x}/"

    def manifest(self, thread_id: str) -> str:
        """The one object that is ever replaced."""
        return f"{self.thread(thread_id)}manifest"

    def segment(self, thread_id: str, ref: SegmentRef) -> str:
        """An immutable run of messages."""
        return f"{self.thread(thread_id)}seg/{_name(ref)}"

    def index(self, thread_id: str, ref: SegmentRef) -> str:
        """An immutable list of the oldest segments."""
        return f"{self.thread(thread_id)}idx/{_name(ref)}"

    def state(self, thread_id: str, name: str) -> str:
        """A state slice too large for the manifest; ``name`` is its generation and SHA-256."""
        return f"{self.thread(thread_id)}state/{name}"

    def payloads(self, thread_id: str) -> str:
        """The common prefix of a thread's payloads on their way."""
        return f"{self.thread(thread_id)}payload/"

    def probe(self) -> str:
        """Prefix of the objects that the start-up probe writes."""
        return f"{self._root}/probe/"


def payload_position(key: str) -> int | None:
    """The position of a payload key, or None if it is none."""
    found = re.search(r"/payload/(\d{20})/[^/]+$", key)
    return int(found[1]) if found else None


def _name(ref: SegmentRef) -> str:
    return f"{ref.first:0{_POSITION_DIGITS}}-{ref.last:0{_POSITION_DIGITS}}.g{ref.gen}.{ref.sha256[:32]}"
