"""The bases of all wire models."""

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Model(BaseModel):
    """Frozen; unknown fields of a newer version are ignored, missing required ones refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Changes(BaseModel):
    """A model whose unset fields mean "as it was": it is written without them, whoever writes it."""

    def changes(self) -> dict[str, Any]:
        """The fields that were named."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _write_changes(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The plugin's converter leaves out all that is unset; those of others write defaults.
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name in self.model_fields_set}
