"""Style, script and icon: read once, named by their content, so that browsers keep them for good."""

import hashlib
from importlib.resources import files
from typing import Any, Final, NamedTuple

from starlette.datastructures import URLPath
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import NoMatchFound, Route

_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOR_GOOD: Final = "public, max-age=31536000, immutable"


class StaticFile(NamedTuple):
    """A file's bytes, media type, and the beginning of its SHA-256."""

    body: bytes
    media_type: str
    digest: str


def load_static_files() -> dict[str, StaticFile]:
    """The files by their names."""
    found = {}
    for each in files("helix_temporal.inspector").joinpath("static").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in _TYPES:
            body = each.read_bytes()
            found[each.name] = StaticFile(body, _TYPES[suffix], hashlib.sha256(body).hexdigest()[:12])
    return found


class StaticRoute(Route):
    """The route ``static``: ``url_path_for("static", path="inspector.css")`` has the file's digest in it."""

    def __init__(self, path: str) -> None:
        self._files = load_static_files()
        super().__init__(f"{path}/{{digest}}/{{path}}", self._serve, name="static")

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """The path of a file."""
        file = self._files.get(path_params.get("path", ""))
        if name != self.name or file is None:
            raise NoMatchFound(name, path_params)
        return super().url_path_for(name, digest=file.digest, **path_params)

    async def _serve(self, request: Request) -> Response:
        file = self._files.get(request.path_params["path"])
        if file is None:
            raise HTTPException(404)
        # A page of another version asks for another digest; it gets this one's file, for this time.
        kept = request.path_params["digest"] == file.digest
        return Response(
            file.body,
            media_type=file.media_type,
            headers={"Cache-Control": _FOR_GOOD if kept else "no-store"},
        )
