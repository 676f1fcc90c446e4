"""Every error raised on purpose, each named after the boundary it crossed.

The message is written for the person who reads it: what happened, and what to do. The command line prints it without a
stack trace; the proxy turns it into the error shape of the client's dialect.
"""

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What msgspec raises where a text or bytes are no JSON of the shape that is wanted: for what they say, for characters that no
text has, and for nesting deeper than can be read. What it steps over unread (`msgspec.Raw`) it does not look at."""


class PolarproxyError(Exception):
    """Base of every error that polarproxy raises on purpose."""


class InvalidValue(PolarproxyError):
    """A value of our own could not be built, because its parts contradict each other."""


class BadSettings(PolarproxyError):
    """The configuration (file, environment or flags) cannot be used."""


class BadRequest(PolarproxyError):
    """What the client sent is not a request of the dialect."""


class TooLarge(PolarproxyError):
    """A request body is larger than the proxy takes."""


class BadKey(PolarproxyError):
    """A session key is malformed, wrongly signed, or used on a session that is not its own."""


class SessionClosed(PolarproxyError):
    """The session was closed; it takes no more calls."""


class BadReply(PolarproxyError):
    """The engine answered something that cannot be read as a reply of its API."""


class EngineFailed(PolarproxyError):
    """The engine did not do its part of a request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the engine may have taken the request."""


class EngineUnreachable(EngineFailed):
    """The engine could not be reached, or went away before the end of its reply."""


class EngineTimeout(EngineFailed):
    """The engine was silent for longer than the configured limit."""


class Paused(PolarproxyError):
    """Generation is paused, and the request waited for as long as one waits."""


class EmbeddedEngineError(PolarproxyError):
    """The embedded engine is not installed, could not load its model, or did not start."""


class StoreUnavailable(PolarproxyError):
    """The store could not take or give a record now; trying again later may help."""


class Unstorable(StoreUnavailable):
    """The store is well, and cannot hold this record."""


class StoreConflict(PolarproxyError):
    """A record with this id is already stored, with another content."""


class StoreDamaged(PolarproxyError):
    """What was read back is not what was written: a digest or a length does not match."""


class WrongDatabase(PolarproxyError):
    """The database URL cannot be used: unknown scheme, foreign content, or another schema version."""


class ModelUnknown(PolarproxyError):
    """Which upstream serves a model is not known yet: one of them never said what it serves."""


class UpstreamInUse(PolarproxyError):
    """An upstream cannot be added, drained or removed like this now."""


class ProxyRefused(PolarproxyError):
    """A running proxy could not be reached, or did not do what a command asked of it."""


class NotOffered(PolarproxyError):
    """What was asked for is not offered, by this proxy or by the engine behind it."""


class NotFound(PolarproxyError):
    """No record has the given id."""


class BatchTaken(PolarproxyError):
    """A batch, or a session of one, is in somebody else's hands, or was acknowledged."""


class PushFailed(PolarproxyError):
    """A trainer did not take a batch that was sent to it."""


class BadReward(PolarproxyError):
    """A reward is not a finite number, or a component of it is malformed."""


class BadExport(PolarproxyError):
    """An export cannot be made from these sessions with these options."""


class JudgeFailed(PolarproxyError):
    """A judge did not do its work on a session: it crashed, ran out of time, or said nothing that is a number."""


class Collapsed(PolarproxyError):
    """Groups have no spread in their rewards, and the export was to fail then."""


class BadArchive(PolarproxyError):
    """A file is no archive of sessions, is damaged or cut off, or was made by a newer version."""


class BadSpool(PolarproxyError):
    """A folder cannot be the spool: another proxy has it, or what is in it belongs elsewhere or is of a newer version."""


class DamagedRecord(PolarproxyError):
    """A record of a spool is not what was written."""


class RuntimeFailed(PolarproxyError):
    """A runtime could not be started, or did not do what was asked of it."""


class HarnessNotInstalled(PolarproxyError):
    """A harness cannot be installed on this machine, or its packages could not be had."""


class QueueFailed(PolarproxyError):
    """A queue could not be reached, or did not do what was asked of it."""


class MessageTooLarge(QueueFailed):
    """A message is larger than its queue takes."""
