"""What workers keep of the contents of model calls in workflows: `ContentLanes`, over `Records`."""

import json
import logging
from collections.abc import Sequence
from typing import Final

from google.adk.models.llm_response import LlmResponse
from google.genai import types
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import HelixError, SessionNotFoundError, TooLargeError
from helix_temporal.frameworks.google_adk.lanes import CONTENTS_LOST, ContentsPlace, digest_contents
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import (
    Record,
    RecordChange,
    RecordName,
    Records,
    WantedRecords,
)
from helix_temporal.stores.protocols.sessions import SessionStore

logger = logging.getLogger(__name__)

KIND: Final = "contents"
ANSWERS: Final = "answers"
_NEWEST: Final = "newest"
KEPT: Final = 8
"""So many lanes of a session are kept: of workflows that have ended nobody needs theirs."""


class ContentLanes:
    """Contents by lanes, beside the sessions of ADK; they go when the session is deleted.

    A record of a lane holds the contents that came with one call; its key is the place of the first of them.
    Another one holds what was answered to its newest call, for an attempt that is made again.  Nothing
    depends on what is here: contents that are lost come with the next call, and the model is asked again.

    Args:
        records: Where they are.
        sessions: Where the sessions are.
    """

    def __init__(self, records: Records, sessions: SessionStore) -> None:
        self._records, self._sessions = records, sessions

    async def complete(self, place: ContentsPlace, new: Sequence[types.Content]) -> list[types.Content]:
        """All contents of a call, of which the last ones came with it and are kept for the next.

        Raises:
            ApplicationError: The lane does not hold what the call goes on from; all contents are wanted.
            StoreUnavailableError: The store did not answer.
        """
        group = (KIND, place.lane)
        stored: tuple[Record, ...] = ()
        if place.start:
            view = await self._records.read(place.key.contents_id, WantedRecords(groups=(group,)))
            stored = view.list_records(*group)
        earlier = _read_contents(stored)[: place.start]
        if place.start and (len(earlier) < place.start or digest_contents(earlier)[-1:] != [place.digest]):
            raise ApplicationError(
                f"lane {place.lane} holds {len(earlier)} contents, and not the {place.start} that the call "
                "goes on from",
                type=CONTENTS_LOST,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            )
        if new:
            await self._keep(place, new, stored)
        return [*earlier, *new]

    async def find_answers(self, place: ContentsPlace, call: str) -> list[LlmResponse] | None:
        """What was answered to this very call in an earlier attempt; None if nobody knows."""
        name = RecordName(ANSWERS, _NEWEST, place.lane)
        view = await self._records.read(place.key.contents_id, WantedRecords(names=(name,)))
        found = view.find_record(*name)
        kept = None if found is None else json.loads(found.body)
        if kept is None or kept["call"] != call:
            return None
        return [LlmResponse.model_validate(each) for each in kept["answers"]]

    async def keep_answers(self, place: ContentsPlace, call: str, answers: Sequence[LlmResponse]) -> None:
        """Keep what a call was answered, in the place of what the one before it was.

        A store that does not take it is no reason to lose the answer: then an attempt that is made again asks
        the model.
        """
        kept = [each.model_dump(mode="json", exclude_none=True) for each in answers]
        body = json.dumps({"call": call, "answers": kept}).encode()
        change = RecordChange((Record(ANSWERS, _NEWEST, body, place.lane),))
        try:
            await repeat_unanswered(lambda: self._records.write(place.key.contents_id, change))
        except SessionNotFoundError:
            return  # it was deleted, and nothing of it comes back
        except HelixError as error:
            logger.warning("the answer to a model call of session %r is not kept: %s", place.session, error)

    async def _keep(
        self, place: ContentsPlace, new: Sequence[types.Content], stored: Sequence[Record]
    ) -> None:
        body = json.dumps([each.model_dump(mode="json", exclude_none=True) for each in new])
        record = Record(KIND, _key_of(place.start), body.encode(), place.lane)
        # What stands behind is of a call that another one has taken the place of.
        later = tuple(each.name for each in stored if each.key > record.key)
        change = RecordChange((record,), later, () if place.start else await self._list_old_lanes(place))
        if not place.start and not await self._sessions.session_exists(place.key.store_id):
            return
        try:
            await repeat_unanswered(
                lambda: self._records.write(
                    place.key.contents_id, change, create=_make_options(place)
                )
            )  # fmt: skip
        except (SessionNotFoundError, TooLargeError):
            return  # it was deleted, and nothing of it comes back; or the next call brings all again

    async def _list_old_lanes(self, place: ContentsPlace) -> tuple[tuple[str, str], ...]:
        lanes = await self._records.list_groups(place.key.contents_id, KIND)
        old = lanes[: max(len(lanes) - KEPT + 1, 0)]
        return tuple((kind, each) for each in old for kind in (KIND, ANSWERS))


def _read_contents(stored: Sequence[Record]) -> list[types.Content]:
    contents: list[types.Content] = []
    for record in stored:
        found = [types.Content.model_validate(each) for each in json.loads(record.body)]
        contents = [*contents[: int(record.key)], *found]
    return contents


def _key_of(position: int) -> str:
    return f"{position:010}"


def _make_options(place: ContentsPlace) -> CreateSession:
    return CreateSession(
        agent_type="google-adk/contents",
        user_id=place.user,
        parent_session_id=place.key.store_id,
        metadata=place.key.metadata,
    )
