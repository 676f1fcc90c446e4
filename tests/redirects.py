"""A server that sends everybody elsewhere, and whoever comes there all the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.serving import serving

ELSEWHERE = "/elsewhere"


@dataclass
class Redirecting:
    url: str = ""
    asked: list[str] = field(default_factory=list)
    """The paths of all requests."""

    @property
    def followed(self) -> bool:
        return ELSEWHERE in self.asked


@contextmanager
def redirecting(status: int) -> Iterator[Redirecting]:
    """Answers every request with this status and a location on the same server, which says 200 to anything."""
    made = Redirecting()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.asked.append(self.path)
            self.send_response(200 if self.path == ELSEWHERE else status)
            if self.path != ELSEWHERE:
                self.send_header("Location", ELSEWHERE)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_POST = do_DELETE = answer  # noqa: N815  # the names of http.server

        def log_message(self, *_arguments: object) -> None:
            """Says nothing."""

    with serving(Handler) as made.url:
        yield made
