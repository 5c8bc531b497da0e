"""The data converter of a client with the plugin: the pack's models are its own, all else is the user's."""

import asyncio
import dataclasses
import functools
import json
import warnings
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, ClassVar, Final, Self, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError, SchemaSerializer
from pydantic_core.core_schema import any_schema
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    AdvancedJSONEncoder,
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    JSONTypeConverter,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import InvalidConfigError, UnknownEncodingError
from helix_temporal.models.sessions import SessionOptions

FORM: Final = "helix-form"
"""The metadata field that marks a payload as one of the pack's."""

COMPACT: Final = b"compact"
"""Its value: JSON of one of the pack's models, without the fields that were not set."""

_METADATA: Final = {"encoding": b"json/plain", FORM: COMPACT}
_SERIALIZER: Final = SchemaSerializer(any_schema())
_MODEL: Final = SessionOptions(idle_timeout=5)
_PROBE: Final = (None, {"text": "a", "numbers": [1, 2.5, True, None]})


def user_data_converter(present: DataConverter | None) -> DataConverter:
    """The user's data converter, which also carries the pack's models; his codec and the rest stay.

    Raises:
        InvalidConfigError: His payload converter does not carry plain JSON values.
    """
    present = present or DataConverter.default
    if issubclass(present.payload_converter_class, HelixPayloadConverter):
        return present
    wrapped = wrap_payload_converter(present.payload_converter_class)
    return dataclasses.replace(present, payload_converter_class=wrapped)


def check_carries_models(used: DataConverter) -> None:
    """A worker uses its client's data converter, which may have come after the plugin's.

    Raises:
        InvalidConfigError: It does not carry the pack's models, or not without warnings.
    """
    kind = used.payload_converter_class
    if issubclass(kind, HelixPayloadConverter):
        return
    try:
        with warnings.catch_warnings(action="error"):
            (found,) = used.payload_converter.from_payloads(
                used.payload_converter.to_payloads([_MODEL]), [SessionOptions]
            )
    except Exception as error:  # noqa: BLE001 (a converter of anybody's)
        found = error
    if not isinstance(found, SessionOptions) or found.changes() != _MODEL.changes():
        raise InvalidConfigError(
            f"the worker's client has the payload converter {kind.__name__}, which does not carry the "
            f"pack's models ({found!r:.300}); put HelixPlugin into the plugins of Client.connect, after the "
            "plugin that brings that converter"
        )


class UnreadableFailureError(ApplicationError):
    """Stands for a failure that a client's data converter does not decode; its type is the failure's."""


async def read_failure(used: DataConverter, failure: Failure, context: SerializationContext) -> BaseException:
    """What a failure says that the server keeps; never an error, whatever a user's codec or converter does.

    Args:
        used: Of the client that reads it.
        failure: It stays as it is.
        context: The one that it was encoded for.
    """
    # Decoding replaces what is encoded.
    copied = Failure()
    copied.CopyFrom(failure)
    try:
        return await used.with_context(context).decode_failure(copied)
    except Exception as error:  # noqa: BLE001 (a codec or converter of anybody's)
        # No text of the error: it may quote what it could not decode.
        return UnreadableFailureError(
            f"its text cannot be read here: the client's data converter raised {type(error).__name__}",
            type=failure.application_failure_info.type or "Failure",
        )


@functools.cache
def wrap_payload_converter(user: type[PayloadConverter]) -> "type[HelixPayloadConverter]":
    """A class, since the SDK makes its instances itself, one in each workflow's sandbox."""
    if user is DefaultPayloadConverter:
        return HelixPayloadConverter
    _check_plain_values(user)
    return type(f"Helix{user.__name__}", (HelixPayloadConverter,), {"user_class": user})


class _ModelMetError(TypeError):
    """The SDK's default encoder would write a pydantic model by a deprecated method."""


class _Encoder(AdvancedJSONEncoder):
    def default(self, o: Any) -> Any:
        if isinstance(o, BaseModel):
            raise _ModelMetError(f"a pydantic model, {type(o).__name__}")
        return super().default(o)


class _ModelType(JSONTypeConverter):
    """Reads a pydantic model that is a part of something else, such as a field of a dataclass."""

    def to_typed_value(self, hint: type, value: Any) -> Any:
        if not _names_model(hint):
            return JSONTypeConverter.Unhandled
        return TypeAdapter(hint).validate_json(json.dumps(value))


class _DefaultJSON(JSONPlainPayloadConverter):
    """The SDK's default JSON for all that it can carry, and Temporal's pydantic converter for the rest.

    The default writes pydantic models by a deprecated method and warns; they belong to the rest.
    """

    def __init__(self) -> None:
        super().__init__(encoder=_Encoder, custom_type_converters=[_ModelType()])

    @functools.cached_property
    def _pydantic(self) -> PydanticJSONPlainPayloadConverter:
        return PydanticJSONPlainPayloadConverter()

    def to_payload(self, value: Any) -> Payload | None:
        if isinstance(value, BaseModel):
            return self._pydantic.to_payload(value)
        try:
            return super().to_payload(value)
        except TypeError as error:
            try:
                return self._pydantic.to_payload(value)
            except PydanticSerializationError:
                raise error from None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if type_hint is not None and _names_model(type_hint):
            return self._pydantic.from_payload(payload, type_hint)
        try:
            return super().from_payload(payload, type_hint)
        except TypeError as error:
            try:
                return self._pydantic.from_payload(payload, type_hint)
            except Exception:  # noqa: BLE001 (whatever it is, the user gets the error that he would get without us)
                raise error from None


class DefaultOrPydanticPayloadConverter(CompositePayloadConverter):
    """The SDK's default converter, with pydantic models as Temporal's pydantic converter carries them."""

    def __init__(self) -> None:
        super().__init__(*map(_or_pydantic, DefaultPayloadConverter.default_encoding_payload_converters))


class HelixPayloadConverter(PayloadConverter, WithSerializationContext):
    """The pack's models as compact JSON, marked; every other value goes to the user's converter unchanged."""

    user_class: ClassVar[type[PayloadConverter]] = DefaultOrPydanticPayloadConverter

    def __init__(self) -> None:
        self._user = self.user_class()
        self._own = PydanticJSONPlainPayloadConverter()

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Several values of the user's go to his converter together: it may make one payload of them."""
        if not any(_is_own(type(value)) for value in values):
            return self._user.to_payloads(values)
        return [self._to_payload(value) for value in values]

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """What is marked is the pack's, and so is plain JSON where one of its models is expected."""
        hints: list[Any] = type_hints or []
        pairs = list(zip_longest(payloads, hints))
        if not any(payload is not None and _is_compact(payload, hint) for payload, hint in pairs):
            return self._read_users(payloads, type_hints)
        return [self._from_payload(payload, hint) for payload, hint in pairs]

    def with_context(self, context: SerializationContext) -> Self:
        """The user's converter may ask for whom a payload is; the pack's does not."""
        if not isinstance(self._user, WithSerializationContext):
            return self
        user = self._user.with_context(context)
        if user is self._user:
            return self
        copied = type(self)()
        copied._user = user  # noqa: SLF001 (an instance of this class)
        return copied

    def _to_payload(self, value: Any) -> Payload:
        if not _is_own(type(value)):
            return self._user.to_payload(value)
        return Payload(metadata=_METADATA, data=_SERIALIZER.to_json(value, exclude_unset=True))

    def _from_payload(self, payload: Payload, hint: Any) -> Any:
        if _is_compact(payload, hint):
            return self._own.from_payload(payload, hint)
        return self._read_users([payload], None if hint is None else [hint])[0]

    def _read_users(self, payloads: Sequence[Payload], type_hints: list[type] | None) -> list[Any]:
        try:
            return self._user.from_payloads(payloads, type_hints)
        except KeyError as error:
            unknown = _find_unknown_encoding(self._user, payloads)
            if unknown is None or not _reads_for_client():
                raise
            raise _unknown_encoding_error(unknown) from error


def _reads_for_client() -> bool:
    """Whether a client reads, rather than a worker.

    In a worker an error of the pack's would end the session or the call; any other has its task tried again,
    perhaps by a worker that has the codec.  To a tool that is one of its attempts.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False  # the SDK reads the jobs of a workflow task in a thread, before there is a loop
    return not (workflow.in_workflow() or activity.in_activity())


def _or_pydantic(converter: EncodingPayloadConverter) -> EncodingPayloadConverter:
    return _DefaultJSON() if isinstance(converter, JSONPlainPayloadConverter) else converter


def _is_own(kind: type) -> bool:
    """Models that this package defines; a user's subclass of one is the user's."""
    return kind.__module__.startswith("helix_temporal.") and issubclass(kind, BaseModel)


def _is_compact(payload: Payload, hint: Any) -> bool:
    if hint is RawValue:
        return False
    if payload.metadata.get(FORM) == COMPACT:
        return True
    return isinstance(hint, type) and _is_own(hint) and payload.metadata.get("encoding") == b"json/plain"


def _find_unknown_encoding(converter: PayloadConverter, payloads: Sequence[Payload]) -> str | None:
    """The first encoding that none of the converter's parts reads; None for a converter without parts."""
    if not isinstance(converter, CompositePayloadConverter):
        return None
    given = (each.metadata.get("encoding", b"") for each in payloads)
    return next((each.decode(errors="replace") for each in given if each not in converter.converters), None)


def _unknown_encoding_error(encoding: str) -> UnknownEncodingError:
    return UnknownEncodingError(
        f"payloads are in the encoding {encoding[:80]!r}, which this client's data converter does not know; "
        "give Client.connect(data_converter=…) the data converter of the workers, with its payload codec",
        encoding=encoding[:80],
    )


def _names_model(hint: Any) -> bool:
    """Whether a type, or one that it is made of, is a pydantic model."""
    if isinstance(hint, type) and not get_args(hint):
        return issubclass(hint, BaseModel)
    return any(_names_model(each) for each in get_args(hint))


def _check_plain_values(user: type[PayloadConverter]) -> None:
    """Not all that the pack sends is a model: results may be ``None``, facts of errors are JSON objects."""
    try:
        converter = user()
        found = converter.from_payloads(converter.to_payloads(_PROBE), [type(None), dict])
    except Exception as error:
        raise InvalidConfigError(
            f"payload converter {user.__name__}: it must carry None and JSON objects, and raises "
            f"{type(error).__name__}: {error}"
        ) from error
    if tuple(found) != _PROBE:
        raise InvalidConfigError(
            f"payload converter {user.__name__}: it must carry None and JSON objects, and returns {found!r}"
        )
