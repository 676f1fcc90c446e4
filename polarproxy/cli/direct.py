"""Requests to an address that the user named, and to no other: they carry a key, or what was recorded."""

from __future__ import annotations

import urllib.request


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to whoever it names, and a POST would arrive there as a GET without its body."""

    def redirect_request(self, *_arguments: object) -> None:
        """Never: the 30x is the answer."""


def direct() -> urllib.request.OpenerDirector:
    """Opens URLs without the HTTP proxy that the user has configured for the web. A redirect is an `HTTPError`."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
