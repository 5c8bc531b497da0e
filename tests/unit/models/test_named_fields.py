"""Fields that there are not: they would change nothing, and nobody would be told."""

import copy
import pickle
from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import KnownFields
from helix_temporal.models.messages import UserMessage
from helix_temporal.models.sessions import CallPolicy, ForkFrom, SessionInput, SessionOptions
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.models.usage import UsageQuery
from helix_temporal.models.waiting import ToolApproval


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        (SessionOptions, {"idle_timout": 5}, "idle_timout is no field of SessionOptions: idle_timeout is"),
        (SessionOptions, {"ttl": 5}, "ttl is no field of SessionOptions; it has persistent, .*, archive"),
        (SessionProperties, {"expire_at": 5}, "expire_at is no field of .*: expires_at is meant"),
        (SessionQuery, {"userid": "u"}, "userid is no field of SessionQuery: user_id is meant"),
        (UsageQuery, {"session": "s"}, "session is no field of UsageQuery: session_id is meant"),
        (ForkFrom, {"thread_id": "t", "position": 5}, "position is no .*; it has thread_id, at"),
        (ToolApproval, {"approval_id": "c", "approved": True, "reasons": ""}, "reasons .*: reason is meant"),
        (CallPolicy, {"heart_beat": 5}, "heart_beat .*: heartbeat is meant"),
        (SessionProperties, {"userid": "u", "tag": "t"}, "userid is .*; tag is .*: tags is meant"),
    ],
)  # fmt: skip
def test_a_misspelt_field_is_refused_with_the_nearest(
    model: type[KnownFields], fields: dict[str, Any], said: str
) -> None:
    """It was ignored: a session was kept for ever although somebody had said when it expires."""
    with pytest.raises(InvalidRequestError, match=said):
        model(**fields)


def test_both_spellings_of_a_property_are_taken() -> None:
    """Session stores of elsewhere write camel case."""
    spelt: dict[str, Any] = {"expiresAt": 5, "userId": "u"}
    assert SessionProperties(**spelt) == SessionProperties(expires_at=5, user_id="u")


def test_unknown_fields_of_a_newer_version_stay_readable() -> None:
    """Histories, slices and states may have been written by it: what is read is not what somebody says."""
    newer = {"idle_timeout": 5, "priority": 1}
    assert SessionOptions.model_validate(newer).changes() == {"idle_timeout": 5}
    assert SessionOptions.model_validate_json('{"max_steps": 5, "priority": 1}').changes() == {"max_steps": 5}
    started = SessionInput.model_validate(
        {"session_id": "s", "agent": "a", "options": newer, "properties": {"tags": ["t"], "colour": "red"}}
    )
    assert started.options == SessionOptions(idle_timeout=5)
    assert started.properties == SessionProperties(tags=("t",))
    told = '{"id": "m", "text": "hi", "properties": {"tags": ["t"], "colour": "red"}}'
    assert UserMessage.model_validate_json(told).properties == SessionProperties(tags=("t",))


def test_they_are_copied_and_pickled_as_before() -> None:
    """These make a model without its fields, too."""
    options = SessionOptions(max_steps=5)
    assert options.model_copy(update={"max_steps": 6}) == SessionOptions(max_steps=6)
    assert copy.deepcopy(options) == pickle.loads(pickle.dumps(options)) == options
