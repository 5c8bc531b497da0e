"""The bases of all wire models."""

import difflib
from typing import Any, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from helix_temporal.errors import InvalidRequestError


class Model(BaseModel):
    """Frozen; unknown fields of a newer version are ignored, missing required ones refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class KnownFields(BaseModel):
    """A model that programs make: a name that is no field of it is refused, not ignored.

    Raises:
        InvalidRequestError: There is no such field; the message names the nearest.
    """

    def __new__(cls, *_: Any, **fields: Any) -> Self:
        # pydantic makes what it reads without arguments: unknown fields of a newer version are ignored there.
        aliases = [field.validation_alias for field in cls.model_fields.values()]
        choices = [each.choices for each in aliases if isinstance(each, AliasChoices)]
        known = set(cls.model_fields).union(*choices)
        if unknown := [name for name in fields if name not in known]:
            raise InvalidRequestError("; ".join(map(cls._not_known, unknown)))
        return super().__new__(cls)

    @classmethod
    def _not_known(cls, name: str) -> str:
        near = difflib.get_close_matches(name, cls.model_fields, n=1, cutoff=0.7)
        rest = f": {near[0]} is meant" if near else f"; it has {', '.join(cls.model_fields)}"
        return f"{name} is no field of {cls.__name__}{rest}"


class Changes(KnownFields):
    """A model whose unset fields mean "as it was": it is written without them, whoever writes it."""

    def changes(self) -> dict[str, Any]:
        """The fields that were named."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _write_changes(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The plugin's converter leaves out all that is unset; those of others write defaults.
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name in self.model_fields_set}
