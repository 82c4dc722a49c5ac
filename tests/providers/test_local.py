"""Local hosts with a hand-written cluster to join: what a manager says decides what a host is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ClusterError
from penstock.fleet.deployment import HostState
from penstock.machine.processes import ChildProcesses, wait_until
from penstock.providers import local_hosts
from penstock.providers.joining import Join
from penstock.providers.local import LocalProvider
from penstock.providers.local_hosts import LocalHosts
from penstock.topology.model import Site
from tests.builders import a_flavour
from tests.providers.test_contract import Register

SITE = Site("c", flavours=(a_flavour(), a_flavour("large", cores=8.0)))


class Machine:
    """A folder, its register and as many owners of its hosts, one after another, as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.register = Register(folder / "register")
        self.children: list[ChildProcesses] = []

    def owner(self, **options: float) -> LocalHosts:
        children = ChildProcesses("hosts", folder=self.folder / "processes")
        self.children.append(children)
        children.adopt()
        hosts = LocalHosts(self.folder, children, self.register.join, self.register.joined, **options)
        hosts.adopt()
        hosts.resume()
        return hosts

    def stop(self) -> None:
        for children in self.children:
            children.stop_all(0.0)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.stop()


def up(hosts: LocalHosts, name: str) -> bool:
    return wait_until(lambda: hosts.observed()[name].state is HostState.UP, 30)


def test_a_host_that_never_joins_stays_starting(machine: Machine) -> None:
    hosts = machine.owner(lost_after_s=0.0)
    hosts.add("h1", 1, 100)
    machine.register.unlisted.add("127.0.0.11")
    assert wait_until(lambda: (machine.register.folder / "127.0.0.11").exists(), 30)
    assert hosts.observed()["h1"].state is HostState.STARTING


def test_a_host_its_cluster_lost_has_failed_though_its_process_lives(machine: Machine) -> None:
    hosts = machine.owner()
    hosts.add("h1", 1, 100)
    assert up(hosts, "h1")
    machine.register.lost.add("127.0.0.11")
    host = hosts.observed()["h1"]
    assert host.state is HostState.FAILED
    assert host.problem is not None
    assert "was lost" in host.problem
    assert machine.children[0].alive("h1")


def test_a_host_that_is_not_listed_has_failed_only_after_a_while_and_only_if_its_cluster_answers(
    machine: Machine,
) -> None:
    hosts = machine.owner(lost_after_s=0.3)
    hosts.add("h1", 1, 100)
    assert up(hosts, "h1")
    machine.register.unlisted.add("127.0.0.11")
    assert hosts.observed()["h1"].state is HostState.UP
    machine.register.unlisted.clear()
    assert hosts.observed()["h1"].state is HostState.UP, "it was listed again"
    machine.register.answers = False
    machine.register.unlisted.add("127.0.0.11")
    later_s = time.monotonic() + 0.5
    assert not wait_until(
        lambda: hosts.observed()["h1"].state is not HostState.UP, later_s - time.monotonic()
    )
    machine.register.answers = True
    assert wait_until(lambda: hosts.observed()["h1"].state is HostState.FAILED, 10)
    assert "not listed for 0.3 s" in str(hosts.observed()["h1"].problem)


def test_a_host_given_back_takes_its_folder_with_it_and_its_address_is_not_the_next(machine: Machine) -> None:
    hosts = machine.owner()
    hosts.add("h1", 1, 100)
    assert up(hosts, "h1")
    assert hosts.home("h1").is_dir()
    leaving = hosts.give_back("h1")
    assert leaving is not None
    leaving.join(30)
    assert not hosts.home("h1").exists()
    assert hosts.add("h2", 1, 100).address == "127.0.0.12", "the last owner of .11 may still be listed"


def test_only_the_newest_logs_of_hosts_that_are_gone_are_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_hosts, "KEPT_LOGS", 1)
    hosts = machine.owner()
    for name in ("h1", "h2", "h3"):
        hosts.add(name, 1, 100)
        if name != "h3":
            leaving = hosts.give_back(name)
            assert leaving is not None
            leaving.join(30)
    assert sorted(path.name for path in hosts.log("h1").parent.iterdir()) == ["h2.log", "h3.log"]


def test_the_next_owner_goes_on_with_every_host_as_it_was(machine: Machine) -> None:
    first = machine.owner()
    provider = LocalProvider(SITE, first)
    provider.create("up", a_flavour("large", cores=8.0), 5.0)
    assert wait_until(lambda: provider.hosts(7.0)[0].state is HostState.UP, 30)
    first.add("delayed", 1, 100, site="c", flavour="standard", delay_s=600.0)
    first.add("gone", 1, 100, site="c", flavour="standard")
    assert up(first, "gone")
    first.kill("gone")
    assert wait_until(lambda: first.observed()["gone"].state is HostState.FAILED, 10)
    before = {host.id: host for host in provider.hosts(9.0)}

    second = machine.owner()
    after = {host.id: host for host in LocalProvider(SITE, second).hosts(20.0)}
    assert after["up"] == before["up"], "with its flavour, its address and when it was up"
    assert after["gone"] == before["gone"]
    # It was asked for at 600 s before it would start: it still waits.
    assert after["delayed"].state is HostState.STARTING
    assert "delayed" not in machine.children[1].records
    second.give_back("delayed")


def test_a_host_that_was_going_when_its_owner_died_goes_with_the_next(machine: Machine) -> None:
    first = machine.owner()
    first.add("h1", 1, 100)
    assert up(first, "h1")
    going = replace(first.observed()["h1"], state=HostState.DRAINING)
    first._hosts["h1"] = going
    first._save()
    second = machine.owner()
    assert wait_until(lambda: not second.known(), 30)
    assert not machine.children[0].alive("h1")


def test_who_only_looks_writes_nothing_and_starts_nothing(machine: Machine) -> None:
    owner = machine.owner()
    owner.add("h1", 1, 100, delay_s=600.0)
    written = (machine.folder / "hosts.json").read_bytes()
    children = ChildProcesses("hosts", folder=machine.folder / "processes")
    looker = LocalHosts(machine.folder, children, machine.register.join, machine.register.joined)
    looker.adopt()
    assert looker.observed()["h1"].state is HostState.STARTING
    assert (machine.folder / "hosts.json").read_bytes() == written
    assert not children.records


def test_a_provider_shows_and_takes_only_hosts_of_its_site(machine: Machine) -> None:
    hosts = machine.owner()
    hosts.add("stranger", 1, 100)
    provider = LocalProvider(SITE, hosts)
    provider.delete("stranger", 0.0)
    assert provider.hosts(0.0) == ()
    assert "stranger" in hosts.known()
    with pytest.raises(ClusterError, match="does not belong to site c"):
        provider.create("stranger", a_flavour(), 0.0)
    with pytest.raises(ClusterError, match="whole cores"):
        provider.create("half", a_flavour(cores=1.5), 0.0)


def test_a_host_that_cannot_begin_has_failed_with_the_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.register, "join", lambda *_: Join(("/no/such/program",)))
    hosts = machine.owner()
    hosts.add("h1", 1, 100)
    host = hosts.observed()["h1"]
    assert host.state is HostState.FAILED
    assert "/no/such/program" in str(host.problem)
    assert hosts.add("h1", 1, 100) == host, "only a host that is wanted anew is started again"


def test_a_stopped_process_is_taken_away_all_the_same(machine: Machine) -> None:
    hosts = machine.owner()
    hosts.add("h1", 1, 100)
    assert up(hosts, "h1")
    machine.children[0].signal("h1", signal.SIGSTOP)
    leaving = hosts.give_back("h1")
    assert leaving is not None
    leaving.join(30)
    assert not hosts.known()
    assert not machine.children[0].alive("h1")
