"""The data converter of a client with the plugin: which values are the pack's, and which the user's."""

import asyncio
import enum
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadConverter
from temporalio.testing import ActivityEnvironment

from helix_temporal._converter import HelixPayloadConverter, user_data_converter, wrap_payload_converter
from helix_temporal.errors import UnknownEncodingError
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SessionInput, SessionOptions
from helix_temporal.models.states import SessionProperties

INPUT = SessionInput(session_id="s", agent="a", options=SessionOptions(idle_timeout=5))
COMPACT = b'{"session_id":"s","agent":"a","options":{"idle_timeout":5.0}}'
MARKED = {"encoding": b"json/plain", "helix-form": b"compact"}


class Size(enum.Enum):
    """Not a string: the SDK's default converter refuses it."""

    BIG = 1


class Note(BaseModel):
    """A user's model with a field that is rarely set."""

    text: str = ""
    tags: list[str] = []


class Order(BaseModel):
    """A user's model that holds one of the pack's."""

    properties: SessionProperties


@dataclass
class Box:
    """Holds what the SDK's default converter can't carry, pydantic models among it."""

    size: Size = Size.BIG
    note: Note | None = None
    price: Decimal = Decimal("1.5")
    soon: timedelta = timedelta(seconds=5)


@dataclass
class Case:
    """A pydantic model in a dataclass, beside bytes that are no text."""

    note: Note
    raw: bytes = b"text"


class Foreign:
    """What nothing can write."""


def carried(converter: PayloadConverter, value: Any, hint: Any) -> Any:
    """There and back."""
    return converter.from_payloads(converter.to_payloads([value]), [hint])[0]


def test_a_model_of_the_pack_is_compact_and_marked() -> None:
    """Histories stay small, and the same is read back."""
    converter = HelixPayloadConverter()
    payload = converter.to_payload(INPUT)
    assert (payload.data, dict(payload.metadata)) == (COMPACT, MARKED)
    assert converter.from_payload(payload, SessionInput) == INPUT
    assert converter.from_payload(payload)["options"] == {"idle_timeout": 5.0}


@pytest.mark.parametrize("user", [DefaultPayloadConverter, PydanticPayloadConverter])
def test_a_model_of_the_pack_is_read_from_plain_json(user: type[PayloadConverter]) -> None:
    """A client without the plugin, or one in another language, marks nothing."""
    payload = Payload(metadata={"encoding": b"json/plain"}, data=COMPACT)
    assert wrap_payload_converter(user)().from_payload(payload, SessionInput) == INPUT


def test_a_marked_payload_can_be_taken_raw() -> None:
    """Activities of the pack decode their input themselves."""
    converter = HelixPayloadConverter()
    payload = converter.to_payload(INPUT)
    assert converter.from_payload(payload, RawValue).payload is payload


def test_values_of_both_kinds_in_one_call() -> None:
    """Each as if it were alone."""
    converter = wrap_payload_converter(PydanticPayloadConverter)()
    given = [INPUT, Note(text="a"), None, b"\xff"]
    payloads = converter.to_payloads(given)
    assert payloads[1:] == PydanticPayloadConverter().to_payloads(given[1:])
    assert converter.from_payloads(payloads, [SessionInput, Note, type(None), bytes]) == given


def test_a_list_of_the_packs_models_is_the_users() -> None:
    """All of it is written, by the converter of the user."""
    given = [Message(id="m", role="user", content="hi")]
    having = user_data_converter(pydantic_data_converter).payload_converter
    without = pydantic_data_converter.payload_converter
    assert having.to_payloads([given]) == without.to_payloads([given])
    assert carried(having, given, list[Message]) == given
    assert carried(HelixPayloadConverter(), given, list[Message]) == given


@pytest.mark.parametrize("using", [DataConverter.default, pydantic_data_converter])
def test_what_was_not_named_stays_unnamed_in_a_model_of_the_users(using: DataConverter) -> None:
    """Its meaning is "as it was": a default in its place would clear a session's user."""
    order = Order(properties=SessionProperties(tags=("a",)))
    converter = user_data_converter(using).payload_converter
    found = carried(converter, [order, INPUT], list[Order | SessionInput])
    assert found[0].properties.changes() == {"tags": ("a",)}
    assert found[1].options.changes() == {"idle_timeout": 5}


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Note(text="a"), Note),
        ([Note(text="a")], list[Note]),
        ({"a": Note(text="a")}, dict[str, Note]),
        (Note(text="a"), Note | None),
        (None, Note | None),
        (Box(), Box),
        (Box(note=Note(tags=["a"])), Box),
        (Case(Note(text="a")), Case),
        (Decimal("2.5"), Decimal),
        ([Size.BIG], list[Size]),
    ],
)
def test_what_the_default_converter_cannot_carry_pydantic_does(value: Any, hint: Any) -> None:
    """A client without a converter of its own carries pydantic models, and warns of nothing."""
    assert carried(HelixPayloadConverter(), value, hint) == value


def test_what_nobody_can_carry_fails_as_without_the_plugin() -> None:
    """The error is the one that the SDK's documents speak of."""
    with pytest.raises(TypeError, match="Foreign is not JSON serializable"):
        HelixPayloadConverter().to_payloads([Foreign()])
    payload = DataConverter.default.payload_converter.to_payload({"a": 1})
    with pytest.raises(TypeError, match="Foreign"):
        HelixPayloadConverter().from_payload(payload, Foreign)


@pytest.mark.parametrize("hint", [SessionOptions, dict])
async def test_an_encoding_that_the_converter_lacks_is_told(hint: Any) -> None:
    """A client without the workers' codec: whoever reads it learns what to give to the client."""
    with pytest.raises(UnknownEncodingError, match=r"'binary/x'.*payload codec") as caught:
        HelixPayloadConverter().from_payloads([Payload(metadata={"encoding": b"binary/x"})], [hint])
    assert caught.value.facts == {"encoding": "binary/x"}


def read_unknown() -> None:
    """A payload of the workers' codec."""
    HelixPayloadConverter().from_payloads([Payload(metadata={"encoding": b"binary/x"})], [dict])


async def test_an_encoding_that_a_worker_lacks_is_no_error_of_the_packs() -> None:
    """Errors of the pack end a workflow or a call; any other is tried again, by who has the codec."""
    with pytest.raises(KeyError):
        await asyncio.to_thread(read_unknown)  # as the SDK reads the jobs of a workflow task
    with pytest.raises(KeyError):
        ActivityEnvironment().run(read_unknown)
