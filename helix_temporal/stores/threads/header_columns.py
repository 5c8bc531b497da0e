"""A hot thread's header as columns: plain values by name, for backends that store them one by one.

Each field of `HotHeader` is a column of the same name, and a head is two columns: position and id.  A backend
lists the columns in the order of its statements or scripts.
"""

from typing import Any, Final, Protocol

from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.protocols.hot import HotHeader

_OTHERS: Final = {"thread_id", "head", "base", "slice"}
_PLAIN: Final = tuple(name for name in HotHeader.__dataclass_fields__ if name not in _OTHERS)


class Columns(Protocol):
    """A dict, or a row of a database."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of one column."""
        ...


def header_to_columns(header: HotHeader) -> dict[str, Any]:
    """The columns of a header; the slice ends with its checksum."""
    return {
        **{name: getattr(header, name) for name in _PLAIN},
        "head": header.head.position,
        "last_id": header.head.last_id,
        "base": header.base.position,
        "base_id": header.base.last_id,
        "slice": with_checksum(header.slice, header.slice_version),
    }


def header_from_columns(thread_id: str, columns: Columns, slice_place: str) -> HotHeader:
    """Inverse of `header_to_columns`; ``slice_place`` names the slice in an error.

    Raises:
        StoreCorruptError: The slice is not what was stored.
    """
    fields = {name: columns[name] for name in _PLAIN}
    fields["head"] = _make_head(columns["head"], columns["last_id"])
    fields["base"] = _make_head(columns["base"], columns["base_id"])
    fields["slice"] = verify_checksum(columns["slice"], slice_place, fields["slice_version"])
    return HotHeader(thread_id, **fields)


def _make_head(position: int, last_id: str) -> Head:
    return Head(position=position, last_id=last_id) if position or last_id else EMPTY
