"""How the first process of a command finds what is below it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from polarproxy.rollout.runtimes import shim
from polarproxy.rollout.runtimes.process import Settings, shimmed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_children_of_every_thread_are_found_either_way() -> None:
    """Some kernels do not list children: then all processes are looked through."""
    started: list[subprocess.Popen[bytes]] = []
    both, asleep = threading.Event(), threading.Event()

    def start() -> None:
        started.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        both.set()
        asleep.wait(30)

    thread = threading.Thread(target=start)
    try:
        start_here = subprocess.Popen(["sh", "-c", "read x"], stdin=subprocess.PIPE)
        started.append(start_here)
        thread.start()
        assert both.wait(30)
        wanted = {one.pid for one in started}
        assert wanted <= set(shim.children(os.getpid()))
        assert wanted <= set(shim.scanned(os.getpid()))
        assert wanted <= set(shim.descendants(os.getpid()))
        assert shim.scanned(start_here.pid) == []
    finally:
        asleep.set()
        thread.join()
        for one in started:
            one.communicate(timeout=30)
    assert not wanted & set(shim.descendants(os.getpid()))


def test_a_process_that_ended_has_no_children() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert shim.children(ended.pid) == []


def test_nothing_is_begun_for_a_parent_that_has_died(tmp_path: Path) -> None:
    """Before its keeper could ask to hear of its death."""
    for parent, code in ((os.getpid(), 0), (1 if os.getpid() != 1 else 2, 137)):
        (tmp_path / "done").unlink(missing_ok=True)
        done = subprocess.run(
            shimmed(Settings(parent=parent), ["touch", str(tmp_path / "done")]), check=False, timeout=30
        )
        assert (done.returncode, (tmp_path / "done").exists()) == (code, code == 0)
