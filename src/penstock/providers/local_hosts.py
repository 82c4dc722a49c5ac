"""Processes of this machine that stand for hosts: they start, join, leave, die and are found again.

Every host is one recorded process (`machine.processes`) in a folder of its own. What is wanted of them is
written beside, so that the next owner goes on where one crashed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import ClusterError
from penstock.fleet.deployment import HostState
from penstock.machine.files import written
from penstock.machine.processes import ChildProcesses, log_tail, wait_until
from penstock.providers.joining import Joined, Joining, Members, Membership

LOG = logging.getLogger(__name__)

LOST_AFTER_S = 30.0
"""A host that joined and that its cluster does not list for so long has failed, though its process lives."""
RELEASE_S = 1.0
"""What is still on a host that is given back may end within so long: the fleet has emptied it before."""
STOP_S = 3.0
"""How long a host's process may take to end before it is killed."""
KEPT_LOGS = 20
"""Logs of hosts that are gone: the newest so many are kept."""

FIRST, LAST = 11, 249
"""Addresses of hosts: 127.0.0.11 to 127.0.0.249, and the same below 127.0.1 and so on for further sites."""

_TAKING = (HostState.STARTING, HostState.UP)


@dataclass(frozen=True, slots=True)
class LocalHost:
    """A host on this machine."""

    id: str
    address: str
    cores: int
    memory_mib: int
    state: HostState = HostState.REQUESTED
    requested_s: float = 0.0
    """When it was asked for, in seconds since 1970."""
    up_s: float | None = None
    """When it was first seen to take work."""
    cores_used: int = 0
    memory_used_mib: int = 0
    web: str | None = None
    """Its own page."""
    problem: str | None = None
    """Why it failed, where it did."""
    site: str | None = None
    """The site it was asked for; None where no provider asked for it."""
    flavour: str | None = None
    """The flavour it was asked for as."""
    delay_s: float = 0.0
    """Waited before its process starts."""


class LocalHosts:
    """The hosts of one local cluster. Methods may be called from several threads, and return at once.

    Processes are started in `children`, which the owner stops.
    """

    def __init__(
        self,
        folder: Path,
        children: ChildProcesses,
        join: Joining,
        joined: Members,
        *,
        start_delay_s: float = 0.0,
        lost_after_s: float = LOST_AFTER_S,
        network: int = 0,
    ) -> None:
        """`folder` keeps what hosts write; `start_delay_s` is for those that are asked for without one.

        `network` is the third number of its hosts' addresses: hosts of two clusters of a run differ in it.
        """
        self._network = network
        self.folder = folder
        self.start_delay_s = start_delay_s
        self._children = children
        self._join = join
        self._joined = joined
        self._lost_after_s = lost_after_s
        self._lock = threading.RLock()
        self._hosts: dict[str, LocalHost] = {}
        self._delayed: dict[str, threading.Timer] = {}
        self._leaving: dict[str, threading.Thread] = {}
        self._unlisted_s: dict[str, float] = {}
        """Since when the cluster does not list a host that had joined, by a clock that is never set."""
        self._turn = 0
        self._owned = False
        """Whether it decides about the hosts, or only looks at those of another owner."""
        self._unsaved = False
        """Whether a full disk kept it from writing down what is wanted."""
        self._closed = False

    # --- what there is ----------------------------------------------------------------------------

    def get(self, host: str) -> LocalHost | None:
        """One host as last observed; None where there is none of this name."""
        with self._lock:
            return self._hosts.get(host)

    def known(self) -> dict[str, LocalHost]:
        """Every host that is not gone, as last observed."""
        with self._lock:
            return dict(self._hosts)

    def observed(self, now_s: float | None = None) -> dict[str, LocalHost]:
        """Every host that is not gone, by id, as it is now."""
        # Before the lock: whoever is asked may take a while to answer.
        joined = self._joined() if self._hosts else None
        at_s = time.time() if now_s is None else now_s
        with self._lock:
            before = dict(self._hosts)
            for host in before.values():
                self._hosts[host.id] = self._seen(host, joined, at_s)
            changed = any(self._hosts[name].state is not host.state for name, host in before.items())
            if changed or self._unsaved:
                self._save()
            return dict(self._hosts)

    def log(self, host: str) -> Path:
        """The file to which a host's process writes."""
        return self.folder / "logs" / f"{host}.log"

    def home(self, host: str) -> Path:
        """The folder of a host's own; it is removed with the host."""
        return self.folder / "work" / host

    # --- hosts come and go ------------------------------------------------------------------------

    def add(
        self,
        host_id: str,
        cores: int,
        memory_mib: int,
        *,
        now_s: float | None = None,
        delay_s: float | None = None,
        site: str | None = None,
        flavour: str | None = None,
        anew: bool = False,
    ) -> LocalHost:
        """Begin to start a host; nothing happens where it exists. `anew` starts one that failed again."""
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", host_id):
            raise ClusterError(f"expected a host id of letters, digits, `.`, `_` and `-`, got {host_id!r}")
        if cores < 1 or memory_mib < 1:
            raise ClusterError(
                f"expected at least one core and one MiB of memory for host {host_id}, "
                f"got {cores} cores and {memory_mib} MiB"
            )
        with self._lock:
            if self._closed:
                raise ClusterError(
                    f"the local hosts in {self.folder} are stopped: host {host_id} cannot join"
                )
            present = self._hosts.get(host_id)
            if present is None and host_id in self._children.records:
                raise ClusterError(f"the host id {host_id!r} is taken by another process of this cluster")
            failed = present is not None and present.state is HostState.FAILED
            if present is not None and not (failed and anew):
                return present
            if present is not None:
                self._children.stop(host_id, grace_s=0.0)
            host = LocalHost(
                host_id,
                self._free_address(),
                cores,
                memory_mib,
                HostState.STARTING,
                time.time() if now_s is None else now_s,
                site=site,
                flavour=flavour,
                delay_s=self.start_delay_s if delay_s is None else delay_s,
            )
            self._owned = True
            self._hosts[host_id] = host
            self._save()
            self._begin(host, host.delay_s)
            return host

    def give_back(self, host_id: str, *, grace_s: float = RELEASE_S) -> threading.Thread | None:
        """Take a host away in the background: it is draining until it is gone.

        What runs on it may end within the grace period. None where there is no such host; else what takes
        it away, to be waited for.
        """
        with self._lock:
            host = self._hosts.get(host_id)
            if host is None:
                return None
            timer = self._delayed.pop(host_id, None)
            if timer is not None:
                timer.cancel()
            self._owned = True
            thread = self._leaving.get(host_id)
            if thread is None:
                if host.state is not HostState.FAILED:
                    self._hosts[host_id] = replace(host, state=HostState.DRAINING)
                    self._save()
                wait_s = grace_s if host.state is HostState.UP else 0.0
                thread = threading.Thread(
                    target=self._take_away, args=(host_id, wait_s), name=f"leaving-{host_id}", daemon=True
                )
                self._leaving[host_id] = thread
                thread.start()
            return thread

    def kill(self, host_id: str) -> None:
        """Make a host die at once with all that runs on it, as a power cut would (for tests)."""
        self._children.stop(host_id, grace_s=0.0)

    def adopt(self) -> None:
        """Look at the hosts another one started; `children` must have adopted their processes."""
        with contextlib.suppress(FileNotFoundError), self._lock:
            try:
                entries = json.loads(self._file.read_text())
                found = [LocalHost(**{**entry, "state": HostState(entry["state"])}) for entry in entries]
            except (ValueError, TypeError, KeyError) as error:
                # A power cut can tear it. What is not known cannot be given back later: it ends now.
                LOG.error("%s cannot be read (%s): hosts that still run are ended", self._file, error)
                self._children.stop(
                    *(n for n in self._children.records if self.home(n).exists()), grace_s=0.0
                )
                return
            for host in found:
                self._hosts[host.id] = host
                self._turn = max(self._turn, int(host.address.rpartition(".")[2]) - FIRST + 1)

    def resume(self) -> None:
        """Go on with the adopted hosts as their owner: what had to be started or taken away is."""
        with self._lock:
            self._owned = True
            for host in tuple(self._hosts.values()):
                if host.state is HostState.DRAINING:
                    self.give_back(host.id)
                elif host.state is HostState.STARTING and host.id not in self._children.records:
                    self._begin(host, max(0.0, host.requested_s + host.delay_s - time.time()))

    def close(self) -> None:
        """Start and take away nothing any more; the owner stops the processes."""
        with self._lock:
            self._closed = True
            for timer in self._delayed.values():
                timer.cancel()
            self._delayed.clear()
            self._hosts.clear()
            self.forget()

    def forget(self) -> None:
        """Clear away what is written of hosts of which none runs any more."""
        self._file.unlink(missing_ok=True)

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self.folder / "hosts.json"

    def _save(self) -> None:
        if not self._owned:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            written(self._file, json.dumps([asdict(host) for host in self._hosts.values()]))
            self._unsaved = False
        except OSError as error:
            # A full disk: hosts go on, and it is written at a later look.
            LOG.warning("%s cannot be written yet: %s", self._file, error)
            self._unsaved = True

    def _begin(self, host: LocalHost, delay_s: float) -> None:
        if delay_s > 0:
            timer = threading.Timer(delay_s, self._start, [host])
            timer.daemon = True
            self._delayed[host.id] = timer
            timer.start()
        else:
            self._start(host)

    def _start(self, host: LocalHost) -> None:
        with self._lock:
            self._delayed.pop(host.id, None)
            present = self._hosts.get(host.id)
            if self._closed or present is None or present.state is not HostState.STARTING:
                return
            try:
                home = self.home(host.id)
                join = self._join(host.id, host.address, host.cores, host.memory_mib, home)
                join.put()
                self._children.start(
                    host.id,
                    join.command,
                    log=self.log(host.id),
                    environment=join.environment,
                    folder=self.folder,
                )
            except (ClusterError, OSError) as error:
                problem = f"host {host.id} could not be started: {error}"
                self._hosts[host.id] = replace(host, state=HostState.FAILED, problem=problem)
                self._save()

    def _take_away(self, host_id: str, grace_s: float) -> None:
        power_failure = getattr(signal, "SIGPWR", None)  # Linux only; elsewhere a host leaves at once
        host = self.get(host_id)
        if grace_s > 0 and power_failure is not None and host is not None and self._children.alive(host_id):
            self._children.signal(host_id, power_failure)
            wait_until(lambda: self._empty(host), grace_s)
        self._children.stop(host_id, grace_s=STOP_S)
        home = self.home(host_id)
        if home.is_dir():
            shutil.rmtree(home, ignore_errors=True)
        else:
            home.unlink(missing_ok=True)
        with self._lock:
            self._hosts.pop(host_id, None)
            self._leaving.pop(host_id, None)
            self._unlisted_s.pop(host_id, None)
            if not self._closed:
                self._save()
            self._forget_old_logs()

    def _empty(self, host: LocalHost) -> bool:
        """Whether nothing runs any more on a host that was told to go."""
        joined = self._joined()
        if joined is None:
            return False
        seen = joined.get(host.address)
        return seen is None or (seen.membership is not Membership.TAKES and seen.cores_used == 0)

    def _seen(self, host: LocalHost, joined: Mapping[str, Joined] | None, now_s: float) -> LocalHost:
        if host.id in self._delayed or host.state not in _TAKING:
            return host
        if not self._owned and host.id not in self._children.records:
            return host  # its owner starts it just now
        if not self._children.alive(host.id):
            return self._failed(
                host, f"host {host.id} died; last lines of its log:\n" + log_tail(self.log(host.id))
            )
        if joined is None:
            return host
        seen = joined.get(host.address)
        listed = seen is not None and seen.membership is not Membership.LOST
        if listed or host.state is HostState.STARTING:
            self._unlisted_s.pop(host.id, None)
        if host.state is HostState.STARTING and (seen is None or seen.membership is not Membership.TAKES):
            # One that was lost is another that had this address before.
            return host
        if seen is None:
            since_s = self._unlisted_s.setdefault(host.id, time.monotonic())
            if time.monotonic() - since_s <= self._lost_after_s:
                return host
            return self._failed(
                host,
                f"host {host.id} is not a member of its cluster any more: it was not listed for "
                f"{self._lost_after_s:g} s, though its process lives",
            )
        if seen.membership is Membership.LOST:
            return self._failed(
                host,
                f"host {host.id} was lost: its cluster has not heard of it for too long, though its process "
                "lives (it hangs, or its network does)",
            )
        host = replace(host, cores_used=seen.cores_used, memory_used_mib=seen.memory_used_mib, web=seen.web)
        if host.state is HostState.STARTING:
            return replace(host, state=HostState.UP, up_s=now_s)
        return host

    def _failed(self, host: LocalHost, problem: str) -> LocalHost:
        self._unlisted_s.pop(host.id, None)
        return replace(
            host, state=HostState.FAILED, problem=problem, web=None, cores_used=0, memory_used_mib=0
        )

    def _forget_old_logs(self) -> None:
        """Hosts come and go for weeks under ever new names: only the newest logs of those gone are kept."""
        kept = self._hosts.keys() | self._children.records.keys()
        gone = [path for path in self.log("*").parent.glob("*.log") if path.stem not in kept]
        gone.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in gone[KEPT_LOGS:]:
            path.unlink(missing_ok=True)

    def _free_address(self) -> str:
        """The next address round the circle: one just given up may still be listed under its last host."""
        taken = {host.address for host in self._hosts.values()}
        count = LAST - FIRST + 1
        for _ in range(count):
            address = f"127.0.{self._network}.{FIRST + self._turn % count}"
            self._turn += 1
            if address not in taken:
                _require_address(address)
                return address
        raise ClusterError(f"a local cluster has at most {LAST - FIRST + 1} hosts")


def _require_address(address: str) -> None:
    try:
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise ClusterError(
            f"the loopback address {address} cannot be used ({error}); on macOS add it once with "
            f"`sudo ifconfig lo0 alias {address} up`"
        ) from error
