"""A server that sends everybody elsewhere, and whoever comes there all the same."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
