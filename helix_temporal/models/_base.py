"""The base of all wire models."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen; unknown fields of a newer version are ignored, missing required ones refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")
