"""Stored requests as they were meant: those that go on from a stored response with everything that stands before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.cli.conversation import read_request
from polarproxy.errors import BadRequest
from polarproxy.model import Dialect
from polarproxy.wire.responses.items import read_head, with_history
from polarproxy.wire.surrogates import whole_characters

if TYPE_CHECKING:
    from polarproxy.model import Call
    from polarproxy.store.repository import Repository
    from polarproxy.wire.neutral.request import Request


class Requests:
    """Reads requests of a store; safe to use from several threads."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def read(self, call: Call) -> Request | None:
        """What was asked, in no dialect's words. None: it was not kept, cannot be read, or goes on from what is gone."""
        whole = whole_characters(call.request_body)
        if whole is not None:
            # As the engine was asked, which takes no half characters.
            call = replace(call, request_body=whole)
        if call.dialect is not Dialect.RESPONSES or not call.request_body:
            return read_request(call)
        try:
            before = read_head(call.request_body).previous_response_id
            if before is None:
                return read_request(call)
            chain = self._repository.response_chain(before)
            if not chain:
                return None
            earlier = [item for found in chain for item in found.response.items()]
            return read_request(replace(call, request_body=with_history(call.request_body, earlier)))
        except BadRequest:
            return None
