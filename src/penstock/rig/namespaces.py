"""Processes that hold namespaces, and how to get into them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import ClusterError
from penstock.rig.limits import Group

_NETWORK = 0x40000000  # CLONE_NEWNET

_INIT = "trap 'exit 0' TERM; trap : CHLD; while :; do sleep 3600 & wait $!; done"
"""What a box runs as its first process: bash, which buries whoever is orphaned below it."""


class Box:
    """A process with namespaces of its own; everything started in them ends with it.

    Made and ended by the keeper's main thread alone.
    """

    def __init__(self, name: str, setup: str, *, host: bool, group: Group | None = None) -> None:
        """`setup` is a bash script that runs inside before anything else; a `host` has more of its own."""
        self.name = name
        kinds = ["--net", "--pid", "--fork", "--kill-child", *(("--mount", "--uts") if host else ())]
        reader, writer = os.pipe()
        # Its number as the machine counts: /proc is still the machine's when the script begins.
        script = (
            f"read -r pid rest < /proc/self/stat\n{setup}\necho $pid >&{writer}\nexec {writer}>&-\n{_INIT}"
        )
        joined = "".join(f"echo 0 > {shlex.quote(str(file))}; " for file in (group.members if group else ()))
        outer = ["unshare", *kinds, "bash", "-ec", script]
        self._process = subprocess.Popen(
            ["bash", "-ec", f'{joined}exec "$@"', "bash", *outer],
            pass_fds=[writer],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        os.close(writer)
        with os.fdopen(reader) as told:
            number = told.readline().strip()
        if not number:
            said = self._process.communicate()[1].decode(errors="replace").strip()
            raise ClusterError(f"{name} could not be made in the rig: {said}")
        self.pid = int(number)
        """Its first process, as the machine counts."""

    def end(self) -> None:
        """Kill everything in it; returns when it is gone."""
        # All others inside die with the first, and whoever waits for it ends last.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(_number_here(self.pid), signal.SIGKILL)
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def _number_here(pid: int) -> int:
    """The number that the first process of a box has where the box was made."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-2])
    raise ClusterError("this kernel does not tell process numbers of namespaces")


def network(script: str, pid: int) -> None:
    """Run a bash script in the network of a box; ClusterError where it fails."""
    done = subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "bash", "-ec", script], capture_output=True, text=True
    )
    if done.returncode:
        raise ClusterError(f"the rig could not run {script!r}: {done.stderr.strip()}")


def entering(pid: int, members: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command that runs another one inside a host, within its limits."""
    joined = "".join(f"echo 0 > {shlex.quote(file)}; " for file in members)
    into = ["nsenter", "-t", str(pid), "-n", "-p", "-m", "-u", "--root", "--wdns=/"]
    return ["bash", "-ec", f'{joined}exec "$@"', "bash", *into, "--", *command]


@contextlib.contextmanager
def inside(pid: int) -> Iterator[None]:
    """This thread opens its sockets in the network of a box; sockets stay there."""
    if sys.platform != "linux":
        raise ClusterError("the rig needs Linux")
    back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        into = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            _set(into)
        finally:
            os.close(into)
        yield
    finally:
        _set(back)
        os.close(back)


def _set(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
