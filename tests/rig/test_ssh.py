"""The provider `ssh` against real sshds on hosts of the rig."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError, NoCapacityError, UnauthorisedError
from penstock.fleet.deployment import Host, HostState
from penstock.machine.processes import wait_until
from penstock.providers import cloud_api
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_pauses import Pace
from penstock.providers.joining import Joined, JoinScript, Membership
from penstock.providers.ssh import SshApi, SshParameters, pooled
from penstock.providers.surroundings import Surroundings
from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.rig.testing import rig
from penstock.topology.model import Choice, HostFlavour, Site
from tests.rig.sshd import boot, find_sshd, make_key

LEASE = Path("~root").expanduser() / ".penstock/lease"
"""Where a machine of the pool keeps the lease it is under."""

__all__ = ["rig"]

REASON = unavailable() or (
    "needs the program ssh"
    if shutil.which("ssh") is None
    else None
    if find_sshd()
    else "needs sshd (Debian: openssh-server)"
)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

IN_FULL = pytest.mark.skipif(os.environ.get("PENSTOCK_CLOUDS") != "full", reason="part of `make clouds`")

FLAVOUR = HostFlavour("mine", 1.0, 512, Decimal("0.02"))
SITE = Site("lab", Choice("ssh"), flavours=(FLAVOUR,), btu_s=3600.0, minimum_s=60.0, increment_s=1.0)
QUICK = Pace(list_every_s=0.3, settle_s=1.0, grace_s=2.0, join_within_s=30.0, lost_after_s=2.0, beat_s=0.05)


@dataclass
class Lab:
    """Three machines with an sshd, one of them switched off, and the way there from this process."""

    rig: Rig
    how: SshParameters

    def provider(
        self, owner: str, joins_by: JoinScript | None = None, pace: Pace = QUICK, **changed: object
    ) -> CloudProvider:
        how = replace(self.how, **changed)  # type: ignore[arg-type]
        around = Surroundings(owner=owner, join_script=joins_by or self.script, joined=self.joined)
        return CloudProvider(SITE, SshApi(SITE, how, owner), around, pace)

    @staticmethod
    def script(host: str, cores: int, memory_mib: int, notices: str | None = None) -> str:
        said = f"{host} {cores} {memory_mib}"
        return f'mkdir -p "$PENSTOCK_HOME"; echo {said} > "$PENSTOCK_HOME/joined"; sleep 1000 & wait'

    def joined(self) -> Mapping[str, Joined]:
        """A machine has joined once its script ran: seen on its disk, as a manager would over the network."""
        found = {}
        for host in self.rig.status()["hosts"]:
            if host["state"] == "up" and self.said(host["name"]) is not None:
                found[host["address"]] = Joined(Membership.TAKES)
        return found

    def at(self, address: str | None) -> str:
        return next(str(host["name"]) for host in self.rig.status()["hosts"] if host["address"] == address)

    def free(self) -> bool:
        """Whether no machine that is on is under a lease."""
        on = [host["name"] for host in self.rig.status()["hosts"] if host["state"] == "up"]
        return not any(self.rig.get(name).file(LEASE).exists() for name in on)

    def said(self, name: str) -> str | None:
        file = self.rig.get(name).file(LEASE / "home/joined")
        return file.read_text() if file.exists() else None


@pytest.fixture(scope="module")
def lab(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("ssh")
    key = make_key(folder)
    public = key.with_suffix(".pub").read_text()
    way = rig.host("control")
    assert way is not None
    for name, on in (("m1", True), ("m2", True), ("m3", False)):
        rig.host(name, boot=boot(public), on=on)
    addresses = {host["name"]: host for host in rig.status()["hosts"]}
    over = "exec 3<>/dev/tcp/%h/%p; cat <&3 & cat >&3; kill $!"
    how = SshParameters(
        machines=tuple(f"root@{addresses[name]['address']}" for name in ("m1", "m2", "m3")),
        identity_file=str(key),
        options=(
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            f"ProxyCommand=nsenter -t {way.pid} -n bash -c '{over}' 2>/dev/null",
        ),
    )
    return Lab(rig, how)


@pytest.fixture
def provider(lab: Lab) -> Iterator[CloudProvider]:
    made = lab.provider("run-1")
    yield made
    for host in made.hosts(time.time()) or ():
        made.delete(host.id, time.time())
    made.keep((), time.time())
    assert made.close(60.0) == ()


def until(
    provider: CloudProvider, books: set[str], seen: Callable[[dict[str, Host]], bool]
) -> dict[str, Host]:
    def look() -> dict[str, Host]:
        provider.keep(books, time.time())
        return {host.id: host for host in provider.hosts(time.time()) or ()}

    assert wait_until(lambda: seen(look()), 60.0), look()
    return look()


def leased(provider: CloudProvider, host: str) -> dict[str, Host]:
    """Lease a host and wait until it is up."""
    until(provider, {host}, lambda shown: provider.hosts(time.time()) is not None)
    provider.create(host, FLAVOUR, time.time())
    return until(provider, {host}, lambda shown: host in shown and shown[host].state is HostState.UP)


def test_machines_are_claimed_joined_and_set_free(lab: Lab, provider: CloudProvider) -> None:
    until(provider, {"h1"}, lambda shown: provider.hosts(time.time()) is not None)
    provider.create("h1", FLAVOUR, time.time())
    provider.create("h1", FLAVOUR, time.time())
    shown = until(provider, {"h1"}, lambda shown: "h1" in shown and shown["h1"].state is HostState.UP)
    assert shown.keys() == {"h1"}
    address = shown["h1"].address
    machine = lab.at(address)
    assert lab.said(machine) == "h1 1 512\n"
    assert "sleep 1000" in lab.rig.get(machine).run("ps", "ax").stdout

    # A second owner gets another machine, and never sees this one.
    other = lab.provider("run-2")
    try:
        until(other, {"x1"}, lambda shown: other.hosts(time.time()) is not None)
        other.create("x1", FLAVOUR, time.time())
        theirs = until(other, {"x1"}, lambda shown: "x1" in shown and shown["x1"].state is HostState.UP)
        assert theirs.keys() == {"x1"}
        assert theirs["x1"].address != address
        # Both that are on are taken, the third is off and nothing can switch it on.
        other.create("x2", FLAVOUR, time.time())
        until(other, {"x1", "x2"}, lambda shown: any(not o.available for o in other.offerings(time.time())))
        with pytest.raises(NoCapacityError):
            other.create("x2", FLAVOUR, time.time())
    finally:
        other.delete("x1", time.time())
        assert other.close(60.0) == ()
    provider.delete("h1", time.time())
    until(provider, set(), lambda shown: not shown)
    assert "sleep 1000" not in lab.rig.get(machine).run("ps", "ax").stdout
    assert not lab.rig.get(machine).file(LEASE).exists()


def test_a_machine_is_switched_on_by_a_command_and_off_again(lab: Lab) -> None:
    script = f"from penstock.rig.rig import Rig; Rig(name={lab.rig.name!r}).DO('m3')"
    start = f'{sys.executable} -c "{script}" # {{address}}'
    provider = lab.provider(
        "run-3",
        machines=lab.how.machines[2:],
        start_command=start.replace("DO", "start"),
        stop_command=start.replace("DO", "kill"),
    )
    try:
        leased(provider, "h1")
    finally:
        provider.delete("h1", time.time())
        assert provider.close(60.0) == ()
    assert {h["name"]: h["state"] for h in lab.rig.status()["hosts"]}["m3"] == "off"


def test_a_machine_is_woken_by_its_network_card(lab: Lab) -> None:
    cards = {host["address"]: host["mac"] for host in lab.rig.status()["hosts"]}
    (machine,) = lab.how.machines[2:]
    how = replace(
        lab.how,
        machines=(f"{machine}#{cards[machine.partition('@')[2]]}",),
        wake_address="10.77.1.255",
        start_within_s=60.0,
    )
    api = SshApi(SITE, how, "run-6")
    tags = {cloud_api.OWNER: "run-6", cloud_api.HOST: "h1", cloud_api.FLAVOUR: "mine"}
    order = cloud_api.Order("h1", FLAVOUR, "a-token", tags, "sleep 1000")
    with lab.rig.get("control").inside():  # from where its network is reached
        api.create(order)
    try:
        assert lab.rig.get("m3").file(LEASE).exists()
    finally:
        lab.rig.kill("m3")


@IN_FULL
def test_a_lost_answer_leases_no_second_machine(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = tmp_path / "lost"
    cut_short = tmp_path / "ssh"
    cut_short.write_text(
        f'#!/bin/bash\n{shutil.which("ssh")} "$@"; code=$?\n'
        f'if [[ "$*" == *mktemp* && ! -e {lost} ]]; then touch {lost}; exit 255; fi; exit $code\n'
    )
    cut_short.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    provider = lab.provider("run-7")
    try:
        leased(provider, "h1")
        assert lost.exists()
        assert [lab.said(name) is not None for name in ("m1", "m2")].count(True) == 1
    finally:
        provider.delete("h1", time.time())
        assert provider.close(60.0) == ()
    assert lab.free()


@IN_FULL
@pytest.mark.parametrize(
    ("script", "told"),
    [("sleep 1000 & wait", "did not join"), ("echo no disk; exit 3", "has ended: no disk")],
    ids=["never joins", "dies while it starts"],
)
def test_a_machine_that_does_not_become_a_host_is_told_and_set_free(lab: Lab, script: str, told: str) -> None:
    provider = lab.provider("run-8", lambda *_: script, replace(QUICK, join_within_s=3.0))
    try:
        until(provider, {"h1"}, lambda shown: provider.hosts(time.time()) is not None)
        provider.create("h1", FLAVOUR, time.time())
        shown = until(provider, {"h1"}, lambda s: "h1" in s and s["h1"].state is HostState.FAILED)
        assert told in str(shown["h1"].problem)
        until(provider, {"h1"}, lambda _: lab.free())
    finally:
        provider.delete("h1", time.time())
        assert provider.close(60.0) == ()


@IN_FULL
def test_a_machine_cut_off_for_a_minute_is_lost_and_set_free_when_it_is_back(lab: Lab) -> None:
    provider = lab.provider("run-9")
    try:
        machine = lab.at(leased(provider, "h1")["h1"].address)
        lab.rig.cut(machine)
        cut_s = time.monotonic()
        until(provider, {"h1"}, lambda s: "h1" not in s or s["h1"].state is HostState.FAILED)
        provider.delete("h1", time.time())
        leased(provider, "h2")
        time.sleep(max(0.0, cut_s + 60.0 - time.monotonic()))
        lab.rig.heal(machine)
        until(provider, {"h2"}, lambda _: not lab.rig.get(machine).file(LEASE).exists())
    finally:
        provider.delete("h2", time.time())
        assert provider.close(60.0) == ()
    assert lab.free()


@IN_FULL
def test_what_a_killed_owner_left_is_found_and_given_back(lab: Lab) -> None:
    first = lab.provider("run-4")
    leased(first, "h1")
    first.close(0.0)  # its books are lost with it
    second = lab.provider("run-4")
    news: list[str] = []
    assert wait_until(lambda: bool(news.extend(second.keep((), time.time())) or news), 60.0)
    assert any("h1" in words for words in news)
    until(second, set(), lambda shown: not shown)
    assert second.close(60.0) == ()
    assert all(lab.said(name) is None for name in ("m1", "m2"))


@IN_FULL
def test_a_machine_that_dies_is_lost_and_told(lab: Lab, provider: CloudProvider) -> None:
    shown = leased(provider, "h1")
    machine = lab.at(shown["h1"].address)
    lab.rig.kill(machine)
    try:
        until(provider, {"h1"}, lambda shown: "h1" not in shown or shown["h1"].state is HostState.FAILED)
    finally:
        lab.rig.start(machine)


def test_a_wrong_key_is_told_as_such(lab: Lab, tmp_path: Path) -> None:
    api = SshApi(
        SITE,
        replace(
            lab.how,
            identity_file=str(make_key(tmp_path)),
            options=(*lab.how.options, "IdentitiesOnly=yes", "ControlPath=none"),
        ),
        "run-5",
    )
    with pytest.raises(UnauthorisedError, match="Permission denied"):
        api.machines()


@pytest.mark.parametrize("text", ["", "a b", "ops@", "10.0.0.5#12:34", "10.0.0.5/"])
def test_a_machine_written_wrongly_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a machine such as"):
        pooled(text)
