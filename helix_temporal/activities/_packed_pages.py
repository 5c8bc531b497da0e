"""Pages of messages as compressed bytes: of threads that are read whole, through workflows."""

import base64

from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import pack, unpack
from helix_temporal.models.threads import ReadMessagesResult
from helix_temporal.stores.protocols.threads import Page

_PART, _WHOLE = 9, 10


def pack_page(page: Page, limit: int) -> ReadMessagesResult | None:
    """As much of a page as fits into one result; None if not even its first message does."""
    count = len(page.records)
    while count:
        text = base64.b64encode(_compressed(pack(page.records[:count]))).decode()
        if len(text) <= limit:
            after = page.after if count == len(page.records) else page.first + count
            return ReadMessagesResult(
                first=page.first,
                messages=(),
                before=page.before,
                after=after,
                head=page.head,
                committed=page.committed,
                packed=text,
            )
        count = min(count - 1, count * limit * _PART // (len(text) * _WHOLE))
    return None


def unpack_page(page: ReadMessagesResult) -> list[Message]:
    """The messages of a page, packed or not.

    Raises:
        ArchiveCorruptError: A body is not a message of ours.
    """
    if not page.packed:
        return list(page.messages)
    return [from_record(each) for each in unpack(_inflated(base64.b64decode(page.packed)))]


def _compressed(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 (workflows import activities, and never come here)

    return zstandard.ZstdCompressor(level=3).compress(data)


def _inflated(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 (as above)

    return zstandard.ZstdDecompressor().decompress(data)
