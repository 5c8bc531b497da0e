"""A collector of spans for commands that export them."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Takes spans by OTLP over HTTP.

    Attributes:
        url: Its address.
        spans: All that came.
        status: What it answers.
    """

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector.status == 200:
                    collector.take(body)
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
