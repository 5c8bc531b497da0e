"""`HelixArtifactService`: the files of ADK's agents as records beside sessions."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.platform.time import get_time
from google.genai import types

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import (
    SessionNotFoundError,
    StaleStateError,
    StoreCorruptError,
    StoreUnavailableError,
    TooLargeError,
)
from helix_temporal.frameworks.given_stores import check_records
from helix_temporal.frameworks.google_adk.keys import Scope, UserSessionKey
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import (
    Record,
    RecordChange,
    RecordName,
    Records,
    RecordView,
    WantedRecords,
)

MAX_ARTIFACT: Final = 64 * 1024 * 1024
"""Bytes of one version: they are written at once."""
_CHUNK: Final = 8 * 1024 * 1024
_VERSION: Final = "artifact"
"""A record for each version, in a group for each file."""
_CONTENT: Final = "artifact-content"
"""A record for each piece of a version's content."""
_USER: Final = "user:"
_TRIES: Final = 100
_REFERENCES: Final = 5
"""How many references one after the other are followed, as by ADK's own services."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file is.

    Attributes:
        key: Who asks for it.
        store_id: The session whose records it is.
        parent_id: The session that the file goes with; None for a file of the user.
        group: The file's name, with ``user:`` if it is the user's.
    """

    key: UserSessionKey
    store_id: str
    parent_id: str | None
    group: str

    @staticmethod
    def of(app: str, user: str, session: str | None, name: str) -> "_Place":
        key = UserSessionKey.of(app, user, session or "")
        if session is None or name.startswith(_USER):
            return _Place(key, Scope(app, user).files_id, None, _USER + name.removeprefix(_USER))
        return _Place(key, key.files_id, key.store_id, name)

    def make_uri(self, version: int) -> str:
        """What names a version, also in references of ADK."""
        uri: str = artifact_util.get_artifact_uri(
            self.key.app, self.key.user, self.group, version, self.key.session if self.parent_id else None
        )
        return uri

    def make_options(self) -> CreateSession:
        """What the session with the files begins with."""
        return CreateSession(
            agent_type="google-adk/files",
            user_id=self.key.user,
            parent_session_id=self.parent_id,
            metadata=self.key.metadata | ({} if self.parent_id else {"session_id": None}),
        )


class HelixArtifactService(BaseArtifactService):
    """A `BaseArtifactService` of ADK over records; several processes may share one.

    Each version stands for good until its file is deleted; of two that are saved at once each gets a number
    of its own.  The files of a session go when `HelixSessionService` deletes it.

    Args:
        records: `Backends.records`, or other records.
    """

    def __init__(self, records: Records) -> None:
        check_records(records)
        self._records = records

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a version of a file, and return its number; the first one is 0.

        Without a session, or with ``user:`` before the name, it is a file of the user.

        Raises:
            InputValidationError: ADK's: there is nothing in it, or it refers to what is not in its scope.
            SessionNotFoundError: Its session was deleted.
            TooLargeError: It has more than `MAX_ARTIFACT` bytes.
            StoreUnavailableError: The store did not answer; the version may be there or not.
        """
        part = ensure_part(artifact)
        place = _Place.of(app_name, user_id, session_id, filename)
        mime_type, content = _find_mime_type(part, place), _encode_part(part)
        for _ in range(_TRIES):
            view = await self._read_newest(place)
            if not view.exists:
                await self._check_parent(place)
            number = _next_number(view, place)
            version = ArtifactVersion(
                version=number,
                canonical_uri=place.make_uri(number),
                custom_metadata=custom_metadata or {},
                create_time=get_time(),
                mime_type=mime_type,
            )
            try:
                await self._write(place, view.revision, _encode_version(place, version, content))
            except StaleStateError:
                continue  # another one was saved meanwhile
            return number
        raise StoreUnavailableError(f"artifact {filename!r}: was overtaken {_TRIES} times")

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """A version of a file, or the newest one; None if there is none, or a rewind has taken it away.

        Raises:
            InputValidationError: ADK's: it refers to what is not in its scope, or to itself.
        """
        place = _Place.of(app_name, user_id, session_id, filename)
        for _ in range(_REFERENCES + 1):
            part = await self._load(place, version)
            if part is None or part == types.Part() or _is_taken_away(part):
                return None
            if not artifact_util.is_artifact_ref(part):
                return part
            place, version = _follow_reference(part, place)
        raise InputValidationError("Exceeded maximum recursion depth resolving artifact reference.")

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """The names of the user's files, with ``user:``, and of the session's if one is named."""
        places = [_Place.of(app_name, user_id, None, "")]
        if session_id is not None:
            places.append(_Place.of(app_name, user_id, session_id, ""))
        found = [await self._records.list_groups(each.store_id, _VERSION) for each in places]
        return sorted(name for names in found for name in names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete a file with all its versions; nothing if there is none."""
        place = _Place.of(app_name, user_id, session_id, filename)
        change = RecordChange(clears=((_VERSION, place.group), (_CONTENT, place.group)))
        try:
            await repeat_unanswered(lambda: self._records.write(place.store_id, change))
        except SessionNotFoundError:
            return

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of a file's versions."""
        place = _Place.of(app_name, user_id, session_id, filename)
        return [int(each.key) for each in await self._read_versions(place)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """What is known of a file's versions."""
        place = _Place.of(app_name, user_id, session_id, filename)
        return [_decode_version(each)[0] for each in await self._read_versions(place)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """What is known of a version, or of the newest one."""
        found = await self._find_version(_Place.of(app_name, user_id, session_id, filename), version)
        return None if found is None else _decode_version(found)[0]

    # -- inside

    async def _read_newest(self, place: _Place) -> RecordView:
        return await self._records.read(place.store_id, WantedRecords(newest=((_VERSION, place.group),)))

    async def _write(self, place: _Place, revision: int, change: RecordChange) -> None:
        operation = secrets.token_hex(12)
        await repeat_unanswered(
            lambda: self._records.write(
                place.store_id,
                change,
                revision=revision,
                create=place.make_options(),
                revive=True,
                operation_id=operation,
            )
        )

    async def _check_parent(self, place: _Place) -> None:
        """Refuse a file of a session that was deleted; one that another service keeps is not known here."""
        if place.parent_id is None:
            return
        parent = await self._records.read(place.parent_id)
        if parent.revision and not parent.exists:
            raise SessionNotFoundError(f"Session not found: {place.key.session!r} was deleted")

    async def _read_versions(self, place: _Place) -> list[Record]:
        found: list[Record] = []
        while True:
            after = found[-1].key if found else None
            page = await self._records.read_page(
                place.store_id, _VERSION, place.group, limit=_PAGE, after=after
            )
            found += page
            if len(page) < _PAGE:
                return found

    async def _find_version(self, place: _Place, version: int | None) -> Record | None:
        wanted = WantedRecords(newest=((_VERSION, place.group),))
        if version is not None:
            if version < 0:
                return None
            wanted = WantedRecords(names=(RecordName(_VERSION, _key_of(version), place.group),))
        view = await self._records.read(place.store_id, wanted)
        return view.records[0] if view.records else None

    async def _load(self, place: _Place, version: int | None) -> types.Part | None:
        found = await self._find_version(place, version)
        if found is None:
            return None
        known, pieces = _decode_version(found)
        names = _name_pieces(place, known.version, pieces)
        view = await self._records.read(place.store_id, WantedRecords(names=names))
        if len(view.records) < pieces:
            return None  # deleted between the two reads
        return _decode_part(place, b"".join(each.body for each in view.records))


def _key_of(version: int) -> str:
    return f"{version:010}"


def _name_pieces(place: _Place, version: int, pieces: int) -> tuple[RecordName, ...]:
    return tuple(RecordName(_CONTENT, f"{_key_of(version)}/{at:04}", place.group) for at in range(pieces))


def _next_number(view: RecordView, place: _Place) -> int:
    newest = view.list_records(_VERSION, place.group)
    return int(newest[-1].key) + 1 if newest else 0


def _encode_version(place: _Place, version: ArtifactVersion, content: Sequence[bytes]) -> RecordChange:
    known = version.model_dump(mode="json", exclude_none=True)
    try:
        body = json.dumps({"version": known, "pieces": len(content)}).encode()
    except (TypeError, ValueError) as error:
        raise InputValidationError(f"The metadata is no JSON ({type(error).__name__}).") from None
    names = _name_pieces(place, version.version, len(content))
    pieces = (
        Record(*name[:2], body=piece, group=name.group) for name, piece in zip(names, content, strict=True)
    )
    return RecordChange(puts=(Record(_VERSION, _key_of(version.version), body, place.group), *pieces))


def _decode_version(record: Record) -> tuple[ArtifactVersion, int]:
    try:
        found = json.loads(record.body)
        return ArtifactVersion.model_validate(found["version"]), int(found["pieces"])
    except (KeyError, TypeError, ValueError):
        raise StoreCorruptError(f"artifact {record.group!r}: version {record.key} cannot be read") from None


def _encode_part(part: types.Part) -> list[bytes]:
    """The part in pieces: the length of its JSON, its JSON without the data, and the data as it is."""
    data = b""
    if part.inline_data is not None:
        data = part.inline_data.data or b""
        part = part.model_copy(update={"inline_data": part.inline_data.model_copy(update={"data": None})})
    plain = json.dumps(part.model_dump(mode="json", exclude_none=True)).encode()
    whole = len(plain).to_bytes(4, "big") + plain + data
    if len(whole) > MAX_ARTIFACT:
        raise TooLargeError(f"an artifact has {len(whole)} bytes, and at most {MAX_ARTIFACT} are allowed")
    return [whole[at : at + _CHUNK] for at in range(0, len(whole), _CHUNK)]


def _decode_part(place: _Place, whole: bytes) -> types.Part:
    try:
        end = 4 + int.from_bytes(whole[:4], "big")
        part = types.Part.model_validate(json.loads(whole[4:end]))
    except ValueError:
        raise StoreCorruptError(f"artifact {place.group!r}: the content cannot be read") from None
    if part.inline_data is not None:
        part.inline_data.data = whole[end:]
    return part


def _find_mime_type(part: types.Part, place: _Place) -> str | None:
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError("Not supported artifact type.")
    if artifact_util.is_artifact_ref(part):
        _follow_reference(part, place)
        return None
    return part.file_data.mime_type


def _follow_reference(part: types.Part, place: _Place) -> tuple[_Place, int]:
    assert part.file_data is not None
    uri = part.file_data.file_uri
    found = artifact_util.parse_artifact_uri(uri)
    if not found:
        raise InputValidationError(f"Invalid artifact reference URI: {uri}")
    artifact_util.validate_artifact_reference_scope(
        app_name=place.key.app,
        user_id=place.key.user,
        session_id=place.key.session or None,
        parsed_uri=found,
    )
    session = found.session_id if found.session_id is not None else place.key.session or None
    name = found.filename if found.session_id is not None else _USER + found.filename.removeprefix(_USER)
    return _Place.of(found.app_name, found.user_id, session, name), found.version


def _is_taken_away(part: types.Part) -> bool:
    # A rewind cannot delete a version that came later; it saves this one behind it.
    blob = part.inline_data
    return blob is not None and part == types.Part(
        inline_data=types.Blob(mime_type="application/octet-stream", data=b"")
    )
