"""Parts of a message's content: the one form that all adapters read and write.

A part is a JSON object with a ``type``:

=============  ================================================================================
``text``       ``text``
``image``      ``media_type`` and ``data`` (base64), or ``url``
``file``       ``media_type``, and ``data`` (base64), ``url`` or ``file_id``; ``name`` if known
``thinking``   ``text``: the model's reasoning, for people; what its provider needs back with it
               is in the message's ``provider``
=============  ================================================================================

Any part may have ``"cache": true``: a provider that caches prompts where it is told to is told to do so
up to here.  Parts of other types are kept, and left out of what an adapter sends.
"""

from typing import Literal

from helix_temporal.models._json import JsonObject

PartType = Literal["text", "image", "file", "thinking"]


def text(text: str, *, cache: bool = False) -> JsonObject:
    """A part of plain text."""
    return _marked({"type": "text", "text": text}, cache)


def image(
    *, media_type: str = "", data: str | None = None, url: str | None = None, cache: bool = False
) -> JsonObject:
    """An image: base64 ``data`` of a ``media_type``, or a ``url``."""
    part: JsonObject = {"type": "image"}
    return _marked(part | _given(media_type=media_type, data=data, url=url), cache)


def file(
    *,
    media_type: str = "",
    data: str | None = None,
    url: str | None = None,
    file_id: str | None = None,
    name: str | None = None,
    cache: bool = False,
) -> JsonObject:
    """A file: base64 ``data`` of a ``media_type``, a ``url``, or a provider's ``file_id``."""
    part: JsonObject = {"type": "file"}
    given = _given(media_type=media_type, data=data, url=url, file_id=file_id, name=name)
    return _marked(part | given, cache)


def thinking(text: str) -> JsonObject:
    """A model's reasoning."""
    return {"type": "thinking", "text": text}


def _given(**fields: str | None) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def _marked(part: JsonObject, cache: bool) -> JsonObject:
    return part | {"cache": True} if cache else part
