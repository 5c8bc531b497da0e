"""Style and scripts: those of others are what they were, and all of them are small."""

import hashlib
import json
from importlib.resources import files

import pytest
from starlette.routing import Router

from helix_temporal.backends import Backends
from helix_temporal.inspector import create_inspector
from helix_temporal.inspector.page_request import PageLinks
from helix_temporal.inspector.static_files import StaticRoute, load_static_files
from helix_temporal.settings import Settings
from tests.unit.inspector._asking import asking

STATIC = files("helix_temporal.inspector").joinpath("static")
VENDORED = [
    (name, each["sha256"])
    for package in json.loads(STATIC.joinpath("vendor.json").read_text())
    for name, each in package["files"].items()
]
MAX_BYTES = 150 * 1024


@pytest.mark.parametrize(("name", "digest"), VENDORED)
def test_files_of_others_are_what_was_published(name: str, digest: str) -> None:
    """Nobody edits a minified file unseen."""
    assert hashlib.sha256(STATIC.joinpath(name).read_bytes()).hexdigest() == digest


def test_every_script_is_ours_or_named_with_its_origin() -> None:
    """A file of others without a licence is found by somebody's lawyers."""
    ours = {"inspector.js"}
    scripts = {name for name in load_static_files() if name.endswith(".js")}
    assert scripts == ours | {name for name, _ in VENDORED if name.endswith(".js")}


def test_the_wheel_grows_little() -> None:
    """Others' pages bring megabytes."""
    assert sum(len(each.read_bytes()) for each in STATIC.iterdir()) < MAX_BYTES


async def test_browsers_keep_files_for_good_under_the_name_of_their_content() -> None:
    """A new version has other names, and an old page is not given a new file to keep."""
    link = PageLinks(Router([StaticRoute("/static")])).static("htmx.min.js")
    backends = Backends(Settings())
    async with asking(create_inspector(backends)) as browser:
        current = await browser.get(link)
        assert "immutable" in current.headers["cache-control"]
        assert current.headers["content-type"].startswith("text/javascript")
        old = await browser.get("/static/000000000000/htmx.min.js")
        assert old.headers["cache-control"] == "no-store"
        for name in ("vendor.json", "..%2Fapp.py", "nothing.js"):
            assert (await browser.get(f"/static/x/{name}")).status_code == 404
    await backends.close()
