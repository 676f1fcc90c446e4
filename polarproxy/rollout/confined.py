"""Starts a program with limits on memory, time and processes, and without a network where the platform allows it.

Run as `python confined.py MEMORY_MB CPU_SECONDS COMMAND…`, by its path: it imports nothing of this package, so that it starts
fast, and so that nothing of the parent is in the program that judges.
"""

import ctypes
import os
import resource
import sys

_NEW_USER_AND_NETWORK = 0x10000000 | 0x40000000
NOT_FOUND = 127


def cut_network() -> bool:
    """Whether this process is in a network of its own now, with nothing in it. Linux with user namespaces only."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER_AND_NETWORK) == 0)
    except (OSError, AttributeError):
        return False


def limit(memory_mb: int, cpu_s: int) -> None:
    """Limits of this process and of those that it starts, each for itself."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))


def main(arguments: list[str]) -> int:
    """Becomes the program; the exit code when it cannot be started."""
    cut_network()
    limit(int(arguments[0]), int(arguments[1]))
    try:
        os.execvp(arguments[2], arguments[2:])
    except OSError as error:
        sys.stderr.write(f"{arguments[2]} cannot be started: {error.strerror}\n")
        return NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
