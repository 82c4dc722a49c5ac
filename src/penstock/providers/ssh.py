"""The provider `ssh`: a pool of your own machines, always on or switched on when they are wanted.

What a cloud keeps in its books lies on the machine itself: a folder `.penstock/lease` in the home of the user
that logs in, with the tags, the join script and its log. A machine with no such folder is free. Making it is
one rename, so two runs never get the same machine. Logging in is left to the program `ssh` with its own chain
of keys, agents and settings.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import (
    ConfigurationError,
    NoCapacityError,
    NotFoundError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.machine.folders import cache_folder
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_api import FLAVOUR, HOST, OWNER, SITE, Machine, MachineState, Order, token_of
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

SINCE = "penstock-since"
"""The tag that says since when a machine is ours."""
WAKE_PORT = 9
CONNECT_S = 5
"""A machine that does not answer for so long is off, or cut off."""
SILENT_S = 20.0
"""A machine that is off does not hold up every listing: it is asked again after so long."""
CALL_S = 30.0
_TAKEN = 73
_SHARED = (
    # One connection for all calls of a minute; it is given up within seconds where nobody answers.
    *("ControlMaster=auto", "ControlPersist=60"),
    *("ServerAliveInterval=3", "ServerAliveCountMax=2"),
)

_MACHINE = re.compile(
    r"(?:(?P<user>[\w.-]+)@)?(?P<address>[\w.:-]+?)(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<flavour>[\w.-]+))?(?:#(?P<mac>(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}))?"
)

_CLAIM = """\
set -eu; umask 077; cd; mkdir -p .penstock; cd .penstock
begin() {{
  cd lease
  PENSTOCK_HOME="$PWD/home" setsid bash join > log 2>&1 < /dev/null &
  echo $! > pid
}}
new=$(mktemp -d new.XXXXXX)
printf %s {tags} > "$new/tags"; printf %s {token} > "$new/token"; cat > "$new/join"
if mv -T "$new" lease 2> /dev/null; then begin; exit 0; fi
rm -rf "$new"
test "$(cat lease/token)" = {token} || exit {taken}
test -s lease/pid || begin
"""
_LOOK = """\
cd .penstock/lease 2> /dev/null || exit 0
cat tags; echo
if kill -0 "$(cat pid)" 2> /dev/null; then echo alive; else echo ended; tail -n 5 log; fi
"""
_RELEASE = """\
cd .penstock 2> /dev/null || exit 0
test "$(cat lease/token 2> /dev/null)" = {token} || exit 0
group=$(cat lease/pid)
kill -TERM -- "-$group" 2> /dev/null
for _ in $(seq 50); do kill -0 -- "-$group" 2> /dev/null || break; sleep 0.1; done
kill -KILL -- "-$group" 2> /dev/null
rm -rf lease
"""


@dataclass(frozen=True, slots=True)
class SshParameters:
    """Machines of your own, reached over SSH: always on, or switched on by a command or wake-on-LAN."""

    name: ClassVar[str] = "ssh"
    machines: tuple[str, ...] = ()
    """Each as `user@address:port/flavour#mac`; all but the address may be left out. Without a flavour it is
    the site's first; with a network card's address it is woken by it."""
    start_command: str | None = None
    """Run here by a shell to switch a machine on; {address} and {mac} are filled in."""
    stop_command: str | None = None
    """Run here by a shell once a machine is given back; without one it stays on."""
    start_within_s: float = 180.0
    """How long a machine may take until it lets us in."""
    identity_file: str | None = None
    """A private key for `ssh`; by default its own settings and agent decide."""
    options: tuple[str, ...] = ()
    """Further settings for `ssh -o`, such as `StrictHostKeyChecking=accept-new`."""
    wake_address: str = "255.255.255.255"
    """Where wake-on-LAN packets are sent: the broadcast address of the machines' network."""
    python: str | None = None
    """The Python of the machines; by default it is where this one is."""

    def __post_init__(self) -> None:
        if not self.machines:
            raise ConfigurationError('needs "machines", a list such as [ops@10.0.0.5, ops@10.0.0.6]')
        addresses = [pooled(text).address for text in self.machines]
        if len(set(addresses)) < len(addresses):
            raise ConfigurationError("names a machine twice")


@dataclass(frozen=True, slots=True)
class Pooled:
    """A machine of the pool."""

    address: str
    user: str | None = None
    port: int | None = None
    flavour: str | None = None
    mac: str | None = None


def pooled(text: str) -> Pooled:
    """A machine as it is written; ConfigurationError where it is written wrongly."""
    found = _MACHINE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"expected a machine such as ops@10.0.0.5:22/large, got {text!r}")
    port = found["port"]
    return Pooled(
        found["address"], found["user"], int(port) if port else None, found["flavour"], found["mac"]
    )


class SshApi:
    """The pool as if it were a cloud. Implements `Api`."""

    def __init__(self, site: Site, parameters: SshParameters, owner: str) -> None:
        """ConfigurationError where a machine is of a flavour the site has not."""
        self._site = site
        self._owner = owner
        self._how = parameters
        self._pool = [pooled(text) for text in parameters.machines]
        known = {flavour.name for flavour in site.flavours}
        for machine in self._pool:
            if machine.flavour is not None and machine.flavour not in known:
                raise ConfigurationError(
                    f"site {site.name}: the machine {machine.address} is of the flavour {machine.flavour}, "
                    f"and the site has only {', '.join(sorted(known))}"
                )
        self._askers = ThreadPoolExecutor(min(16, len(self._pool)), f"ssh-{site.name}")
        self._lock = threading.Lock()
        self._chosen: set[str] = set()
        """Machines that are just being claimed."""
        self._silent_s: dict[str, float] = {}
        """Until when a machine that did not answer is not asked again in listings."""

    def create(self, order: Order) -> None:
        """Claim a free machine, switching it on where it is off, and let it join."""
        why_not: list[str] = []
        for machine in self._fitting(order.flavour.name):
            with self._lock:
                if machine.address in self._chosen:
                    continue
                self._chosen.add(machine.address)
            try:
                self._switch_on(machine)
                # From here on nobody knows what a call did that fails: no other machine is tried then.
                if self._claimed(machine, order):
                    return
            except NoCapacityError as error:
                why_not.append(str(error))
            finally:
                with self._lock:
                    self._chosen.discard(machine.address)
        raise NoCapacityError(
            f"no machine of the flavour {order.flavour.name} is free in the pool"
            + (f": {'; '.join(why_not)}" if why_not else "")
        )

    def machines(self) -> Sequence[Machine]:
        """Every machine of the pool that this run has; those that do not answer are left out."""
        return [found for found in self._askers.map(self._look, self._pool) if found is not None]

    def delete(self, machine: Machine) -> None:
        """End what the machine runs for us and set it free; NotFoundError where it does not answer."""
        own = next((one for one in self._pool if one.address == machine.address), None)
        if own is None:
            raise NotFoundError(f"{machine.address} is not in the pool any more")
        token = token_of(self._owner, self._site.name, machine.host, machine.flavour)
        try:
            self._ssh(own, _RELEASE.format(token=shlex.quote(token)))
        except UnavailableError as error:
            # Off or cut off: it is of no use, and should it come back with our lease, that is given back.
            raise NotFoundError(str(error)) from error
        if self._how.stop_command is not None:
            self._shell(self._how.stop_command, own)

    def offerings(self) -> Sequence[Offering]:
        """Prices are the topology's own: machines of one's own have no price list."""
        return ()

    # --- inside -----------------------------------------------------------------------------------

    def _fitting(self, flavour: str) -> list[Pooled]:
        first = self._site.flavours[0].name
        return [machine for machine in self._pool if (machine.flavour or first) == flavour]

    def _claimed(self, machine: Pooled, order: Order) -> bool:
        """Whether the machine is this order's now; False where it is another's."""
        self._silent_s.pop(machine.address, None)
        tags = json.dumps({**order.tags, SINCE: str(time.time())})
        claim = _CLAIM.format(tags=shlex.quote(tags), token=shlex.quote(order.token), taken=_TAKEN)
        done = self._ssh(machine, claim, order.user_data)
        return done.returncode != _TAKEN

    def _switch_on(self, machine: Pooled) -> None:
        """Wait until a machine lets us in, started where it has to be; NoCapacityError where it does not."""
        try:
            self._ssh(machine, "true")
            return
        except UnavailableError as error:
            if self._how.start_command is None and machine.mac is None:
                raise NoCapacityError(str(error)) from error
        deadline_s = time.monotonic() + self._how.start_within_s
        if self._how.start_command is not None:
            self._shell(self._how.start_command, machine)
        while True:
            if machine.mac is not None:
                wake(machine.mac, self._how.wake_address)
            try:
                self._ssh(machine, "true")
                return
            except UnavailableError as error:
                if time.monotonic() > deadline_s:
                    raise NoCapacityError(
                        f"{machine.address} was switched on and did not answer within "
                        f"{self._how.start_within_s:g} s: {error}"
                    ) from error
            time.sleep(0.5)

    def _look(self, machine: Pooled) -> Machine | None:
        if time.monotonic() < self._silent_s.get(machine.address, 0.0):
            return None
        try:
            said = self._ssh(machine, _LOOK).stdout
        except UnavailableError:
            self._silent_s[machine.address] = time.monotonic() + SILENT_S
            return None
        if not said.strip():
            return None
        first, _, rest = said.partition("\n")
        try:
            tags = json.loads(first)
        except ValueError:
            return None
        if tags.get(OWNER) != self._owner or tags.get(SITE) != self._site.name:
            return None
        state, _, log = rest.partition("\n")
        alive = state == "alive"
        return Machine(
            # Another one for every lease: the same machine comes again under another name.
            f"{machine.address}/{tags[HOST]}",
            tags[HOST],
            tags[FLAVOUR],
            MachineState.RUNNING if alive else MachineState.BROKEN,
            machine.address,
            created_s=float(tags[SINCE]),
            problem=None if alive else f"what it ran to join has ended: {log.strip() or 'it said nothing'}",
        )

    def _ssh(self, machine: Pooled, script: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a script on a machine; a ProviderError says why it could not be run."""
        options = ["BatchMode=yes", f"ConnectTimeout={CONNECT_S}", *_SHARED, *self._how.options]
        options.append(f"ControlPath={cache_folder('ssh')}/%C")
        command = ["ssh", "-T", *(part for option in options for part in ("-o", option))]
        if self._how.identity_file is not None:
            command += ["-i", self._how.identity_file]
        if machine.port is not None:
            command += ["-p", str(machine.port)]
        target = machine.address if machine.user is None else f"{machine.user}@{machine.address}"
        try:
            done = subprocess.run(
                [*command, target, f"bash -c {shlex.quote(script)}"],
                input=text,
                capture_output=True,
                text=True,
                timeout=CALL_S,
            )
        except FileNotFoundError as error:
            raise ConfigurationError("the provider ssh needs the program `ssh` (openssh-client)") from error
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{target} did not finish within {CALL_S:g} s") from error
        if done.returncode == 255:
            said = done.stderr.strip().splitlines()
            reason = f"{target}: {said[-1] if said else 'ssh failed'}"
            if "Permission denied" in done.stderr or "verification failed" in done.stderr:
                raise UnauthorisedError(reason)
            raise UnavailableError(reason)
        return done

    def _shell(self, command: str, machine: Pooled) -> None:
        filled = command.replace("{address}", shlex.quote(machine.address))
        filled = filled.replace("{mac}", shlex.quote(machine.mac or ""))
        try:
            done = subprocess.run(
                ["sh", "-c", filled], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_S
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{filled!r} did not finish within {CALL_S:g} s") from error
        if done.returncode:
            raise UnavailableError(f"{filled!r} ended with {done.returncode}: {done.stderr.strip()}")


def wake(mac: str, address: str) -> None:
    """Send a wake-on-LAN packet for a network card."""
    packet = b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(packet, (address, WAKE_PORT))
    except OSError as error:
        raise UnavailableError(f"no wake-on-LAN packet could be sent to {address}: {error}") from error


def make(site: Site, parameters: SshParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site; ConfigurationError where the pool does not fit it."""
    return CloudProvider(site, SshApi(site, parameters, surroundings.owner), surroundings)
