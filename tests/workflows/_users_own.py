"""What a user has beside the pack: models, dataclasses, converters, a codec, workflows and activities."""

import enum
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    CompositePayloadConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.models.messages import Message

SOON = timedelta(seconds=30)


class Level(enum.StrEnum):
    """How urgent."""

    LOW = "low"
    HIGH = "high"


class Colour(enum.Enum):
    """An enum that is no string."""

    RED = 1


class Cat(BaseModel):
    """One of two, told by its kind, which nobody sets."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """The other one."""

    kind: Literal["dog"] = "dog"
    name: str = "Rex"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Order(BaseModel):
    """Fields that are made when nobody sets them, and one where unset and ``None`` mean two things."""

    id: uuid.UUID = Field(default_factory=uuid.uuid4)
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    pet: Pet = Cat()
    pets: list[Pet] = Field(default_factory=lambda: list[Pet]([Cat(), Dog()]))
    price: Decimal = Decimal("1.10")
    colour: Colour = Colour.RED
    note: str | None = None
    blob: bytes = b"\x00a"
    talk: list[Message] = Field(default_factory=list)


class OwnMessage(Message):
    """A user's subclass of one of the pack's models is the user's."""

    ticket: uuid.UUID = Field(default_factory=uuid.uuid4)


@dataclass
class Parcel:
    """Made of what the SDK's default converter knows."""

    name: str
    levels: dict[str, Level] = field(default_factory=lambda: {"z": Level.LOW, "a": Level.HIGH})
    weight: float = 2.5
    raw: bytes = b"\xff\x00"
    inner: "Parcel | None" = None


def a_message(text: str = "hi") -> Message:
    """One of the pack's."""
    return Message(id="m1", role="user", content=text)


@activity.defn
async def give_back_order(order: Order) -> Order:
    """As it came."""
    return order


@activity.defn
async def list_set_fields(order: Order) -> list[str]:
    """The fields that arrive as set."""
    return sorted(order.model_fields_set)


@activity.defn
async def list_messages(number: int) -> list[Message]:
    """The pack's models in a list."""
    return [a_message(f"n{each}") for each in range(number)]


@activity.defn
async def give_back_own_message(message: OwnMessage) -> OwnMessage:
    """As it came."""
    return message


@activity.defn
async def give_back_pet(pet: Pet) -> Pet:
    """As it came."""
    return pet


@activity.defn
async def give_back_parcel(parcel: Parcel) -> Parcel:
    """As it came."""
    return parcel


@activity.defn
async def give_back_bytes(raw: bytes) -> bytes:
    """As they came."""
    return raw


@activity.defn
async def give_back_level(level: Level) -> Level | None:
    """As it came."""
    return level


@activity.defn
async def do_nothing() -> None:
    """No result."""


@activity.defn
async def give_back_union(given: Parcel | int | None) -> Parcel | int | None:
    """As it came."""
    return given


@activity.defn
async def fail_with_details(parcel: Parcel) -> None:
    """An error that carries a value."""
    raise ApplicationError("no", parcel, 7, type="Nope", non_retryable=True)


ACTIVITIES: list[Callable[..., Any]] = [
    give_back_order,
    list_set_fields,
    list_messages,
    give_back_own_message,
    give_back_pet,
    give_back_parcel,
    give_back_bytes,
    give_back_level,
    do_nothing,
    give_back_union,
    fail_with_details,
]


@workflow.defn
class CarryModels:
    """Carries pydantic models."""

    @workflow.run
    async def run(self, order: Order, pet: Pet, own: OwnMessage) -> tuple[Order, list[str], Pet, OwnMessage]:
        """Each by way of an activity."""
        back = await workflow.execute_activity(give_back_order, order, start_to_close_timeout=SOON)
        names = await workflow.execute_activity(list_set_fields, order, start_to_close_timeout=SOON)
        pet = await workflow.execute_activity(give_back_pet, pet, start_to_close_timeout=SOON)
        own = await workflow.execute_activity(give_back_own_message, own, start_to_close_timeout=SOON)
        talk = await workflow.execute_activity(list_messages, 2, start_to_close_timeout=SOON)
        assert [each.text for each in talk] == ["n0", "n1"]
        return back, names, pet, own


@workflow.defn
class CarryPlain:
    """Carries what the SDK's default converter carries."""

    @workflow.run
    async def run(self, parcel: Parcel, raw: bytes, level: Level) -> list[Parcel]:
        """Each by way of an activity; and a failure with details."""
        back = await workflow.execute_activity(give_back_parcel, parcel, start_to_close_timeout=SOON)
        assert back == parcel, back
        assert await workflow.execute_activity(give_back_bytes, raw, start_to_close_timeout=SOON) == raw
        assert await workflow.execute_activity(give_back_level, level, start_to_close_timeout=SOON) is level
        await workflow.execute_activity(do_nothing, start_to_close_timeout=SOON)
        for given in (parcel, 3, None):
            union = await workflow.execute_activity(give_back_union, given, start_to_close_timeout=SOON)
            assert union == given, union
        await self._fail(parcel)
        return [back]

    async def _fail(self, parcel: Parcel) -> None:
        try:
            await workflow.execute_activity(fail_with_details, parcel, start_to_close_timeout=SOON)
        except ActivityError as error:
            if isinstance(error.cause, ApplicationError) and error.cause.details[1] == 7:
                return
        raise ApplicationError("the details did not arrive", non_retryable=True)


class Zip(PayloadCodec):
    """A codec that tells its payloads by metadata of its own."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each as a whole."""
        return [
            Payload(metadata={"encoding": b"binary/zip"}, data=zlib.compress(each.SerializeToString()))
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each as it was."""
        return [Payload.FromString(zlib.decompress(each.data)) for each in payloads]


class KeyedByWorkflow(PayloadCodec, WithSerializationContext):
    """A codec with a key for each workflow, as one that encrypts for each customer has."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def with_context(self, context: SerializationContext) -> Self:
        """Another one, with the workflow's key."""
        found = getattr(context, "workflow_id", None)
        return type(self)(found.encode() if found else None)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Only with a key."""
        if self._key is None:
            raise ValueError("no key to encode with")
        metadata = {"encoding": b"binary/keyed", "key": self._key}
        return [Payload(metadata=metadata, data=zlib.compress(each.SerializeToString())) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """What is not encoded passes; the rest only with the key that it was encoded with."""
        return [self._decoded(each) if "key" in each.metadata else each for each in payloads]

    def _decoded(self, payload: Payload) -> Payload:
        if payload.metadata["key"] != self._key:
            raise ValueError(f"not the key {payload.metadata['key']!r}")
        return Payload.FromString(zlib.decompress(payload.data))


class _OwnJSON(JSONPlainPayloadConverter, WithSerializationContext):
    """JSON backwards, which only this converter reads; it notes for whom a payload is."""

    def __init__(self, workflow_id: str = "") -> None:
        super().__init__(encoding="json/mine")
        self._workflow_id = workflow_id

    def with_context(self, context: SerializationContext) -> "_OwnJSON":
        """Another one, which knows for whom."""
        return _OwnJSON(getattr(context, "workflow_id", None) or "")

    def to_payload(self, value: Any) -> Payload | None:
        """Backwards."""
        found = super().to_payload(value)
        assert found is not None
        known = b"yes" if self._workflow_id else b"no"
        return Payload(metadata={"encoding": b"json/mine", "known": known}, data=found.data[::-1])

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Forwards."""
        return super().from_payload(Payload(metadata=payload.metadata, data=payload.data[::-1]), type_hint)


class OwnConverter(CompositePayloadConverter):
    """The user's own: no pydantic, no plain JSON."""

    def __init__(self) -> None:
        found: list[EncodingPayloadConverter] = [
            each
            for each in DefaultPayloadConverter.default_encoding_payload_converters
            if not isinstance(each, JSONPlainPayloadConverter)
        ]
        super().__init__(*found, _OwnJSON())


class Shouting(DefaultFailureConverter):
    """A failure converter that changes what failures say."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        """Louder."""
        super().to_failure(exception, payload_converter, failure)
        failure.message = failure.message.upper()
