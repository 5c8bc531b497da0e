"""When a server counts as started."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from helix_temporal.devstack.servers import RequestSigner, bucket_answers


class FullDisk(http.server.BaseHTTPRequestHandler):
    """Answers as SeaweedFS does whose disk is full: an empty object needs no space."""

    def do_PUT(self) -> None:
        """An object that has bytes finds no space."""
        self.answer(200 if self.headers.get("content-length", "0") == "0" else 500)

    def do_DELETE(self) -> None:
        """What is not there takes none."""
        self.answer(204)

    def answer(self, status: int) -> None:
        """A status without a body."""
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def full_server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), FullDisk) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_bucket_that_has_no_space_is_not_ready(full_server: str) -> None:
    """Or each test that writes would hang until its time is over, with nothing that says why."""
    assert not bucket_answers(full_server, "helix", RequestSigner("us-east-1", "key", "secret"))
