"""The rig's hosts are hosts: address, processes, disk and limits of their own, cut and killed at will."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from penstock.cli.rig import app
from penstock.errors import ClusterError
from penstock.machine.processes import wait_until
from penstock.rig.availability import unavailable
from penstock.rig.keeper import SOCKET
from penstock.rig.rig import Rig, RigHost, sweep
from penstock.rig.testing import rig

__all__ = ["rig"]

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def made(rig: Rig, name: str, site: str = "a", **how: float) -> RigHost:
    host = rig.host(name, site, **how)  # type: ignore[arg-type]
    assert host is not None
    return host


@contextlib.contextmanager
def connected(rig: Rig, one: RigHost, other: RigHost) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection, one on each host."""
    with contextlib.ExitStack() as open_:
        with other.inside():
            server = open_.enter_context(socket.create_server((other.address, 0)))
        with one.inside():
            client = open_.enter_context(socket.socket())
        client.settimeout(5)
        client.connect(server.getsockname())
        accepted = open_.enter_context(server.accept()[0])
        accepted.settimeout(5)
        yield client, accepted


def groups_of(name: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").rglob(f"penstock-rig-{name}") if path.is_dir()]


def test_a_host_has_an_address_processes_and_a_disk_of_its_own(rig: Rig, tmp_path: Path) -> None:
    one, two = made(rig, "own1"), made(rig, "own2")
    written = tmp_path / "written"
    assert one.run("bash", "-c", f"echo here > {written}; cat {written}; hostname").stdout.split() == [
        "here",
        "own1",
    ]
    assert not written.exists()
    assert two.run("cat", str(written)).returncode != 0
    assert one.file(written).read_text() == "here\n"
    assert len(one.run("bash", "-c", "ls -d /proc/[0-9]*").stdout.split()) < 8
    assert one.run("ip", "-4", "-o", "addr", "show", "eth0").stdout.split()[3] == f"{one.address}/24"


def test_a_site_is_reached_at_the_same_card_whoever_comes_and_goes(rig: Rig) -> None:
    """What is reached at a site's own address is its cloud; others' coming and going must not hide it."""
    one, (gateway, _) = made(rig, "asks"), rig.gateway("a")

    def card() -> str:
        one.run("ip", "neigh", "flush", "all")
        one.run("bash", "-c", f"echo > /dev/udp/{gateway}/9; sleep 0.2")
        return one.run("ip", "neigh", "show", gateway).stdout.split()[4]

    seen = [card()]
    for name in ("goes1", "goes2", "goes3"):
        made(rig, name)
        seen.append(card())
    for name in ("goes1", "goes2", "goes3"):
        rig.kill(name)
        seen.append(card())
    assert set(seen) == {"02:77:00:00:01:01"}


def test_limits_of_a_host_are_real(rig: Rig) -> None:
    if not rig.status()["limits"].startswith("control groups, version"):
        pytest.skip(rig.status()["limits"])
    host = made(rig, "small", cores=0.25, memory_mib=128)
    burn = "import time; e=time.monotonic()+1.5\nwhile time.monotonic()<e: pass\nprint(time.process_time())"
    used_s = float(host.run("python3", "-S", "-c", burn).stdout)
    assert 0.1 < used_s < 0.9  # of 1.5 s: a quarter, and what may be left of a period
    assert host.run("python3", "-S", "-c", "len(b'x' * (64 << 20))").returncode == 0
    assert host.run("python3", "-S", "-c", "len(b'x' * (256 << 20))").returncode != 0


def test_sites_are_joined_with_delay_and_cut_and_healed(rig: Rig) -> None:
    one, far = made(rig, "near", "a"), made(rig, "far", "b")
    rig.link("a", "b", delay_ms=40, jitter_ms=2)
    try:
        with connected(rig, one, far) as (client, server):
            begun_s = time.monotonic()
            client.sendall(b"x")
            server.sendall(server.recv(1))
            client.recv(1)
            assert 0.07 < time.monotonic() - begun_s < 1.0
            rig.cut("b")
            server.settimeout(0.5)
            client.sendall(b"y")
            with pytest.raises(TimeoutError):
                server.recv(1)
            rig.heal("b", "a")
            server.settimeout(20)
            assert server.recv(1) == b"y"
    finally:
        rig.link("a", "b", delay_ms=0, jitter_ms=0, cut=False)


def test_a_host_that_is_cut_off_comes_back_as_it_was(rig: Rig) -> None:
    one, two = made(rig, "stays"), made(rig, "leaves")
    with connected(rig, one, two) as (client, server):
        rig.cut("leaves")
        assert {h["name"]: h["state"] for h in rig.status()["hosts"]}["leaves"] == "cut off"
        client.sendall(b"x")
        server.settimeout(0.3)
        with pytest.raises(TimeoutError):
            server.recv(1)
        rig.heal("leaves")
        server.settimeout(20)
        assert server.recv(1) == b"x"


def test_a_killed_host_says_nothing_and_comes_back_new(rig: Rig) -> None:
    one, two = made(rig, "survivor"), made(rig, "victim")
    sleeper = psutil.Process(two.start("sleep", "1000", log=rig.log("sleeper")).pid)
    two.run("touch", "/var/left")
    listen = (
        "import socket, time; s = socket.create_server(('', 7000)); "
        "c = s.accept()[0]; c.sendall(b'x'); time.sleep(99)"
    )
    two.start("python3", "-S", "-c", listen, log=rig.log("listener"))
    with one.inside():
        client = socket.socket()
    with client:
        assert wait_until(lambda: client.connect_ex((two.address, 7000)) in (0, 106), 20)
        client.settimeout(0.5)
        assert client.recv(1) == b"x"
        rig.kill("victim")
        # No good-bye: a closed connection would read as an end.
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert wait_until(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE, 5)
    assert rig.start("victim").run("ls", "/var/left").returncode != 0


def test_nothing_of_the_rig_touches_the_machine(rig: Rig) -> None:
    host = made(rig, "inward")
    with socket.create_server(("0.0.0.0", 0)) as outside:
        port = outside.getsockname()[1]
        addresses = {a.address for nics in psutil.net_if_addrs().values() for a in nics if a.family == 2}
        assert not any(address.startswith("10.77.") for address in addresses)
        for address in addresses:
            try_it = f"import socket; socket.create_connection(({address!r}, {port}), 0.5)"
            assert host.run("python3", "-S", "-c", try_it).returncode != 0
    assert "default" in host.run("ip", "route").stdout
    _, router = rig.gateway("a")
    routes = subprocess.run(
        ["nsenter", "-t", str(router), "-n", "ip", "route"], capture_output=True, text=True
    )
    assert "default" not in routes.stdout


def test_a_host_is_woken_by_its_network_card(rig: Rig) -> None:
    # The rig is shared by tests: a second try needs hosts of other names.
    number = len(rig.status()["hosts"])
    sleepy = f"sleepy-{number}"
    rig.host(sleepy, "a", on=False)
    waker = made(rig, f"waker-{number}")
    card = next(host["mac"] for host in rig.status()["hosts"] if host["name"] == sleepy)
    packet = b"\xff" * 6 + bytes.fromhex(card.replace(":", "")) * 16

    def woken() -> bool:
        # A packet of this kind may be lost, so whoever wakes a host sends it again.
        with waker.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.sendto(packet, ("10.77.1.255", 9))
        return {host["name"]: host["state"] for host in rig.status()["hosts"]}[sleepy] == "up"

    assert wait_until(woken, 20, poll_s=0.5)


def test_mistakes_are_told_in_words(rig: Rig) -> None:
    made(rig, "twice")
    with pytest.raises(ClusterError, match="has a host twice already"):
        rig.host("twice")
    with pytest.raises(ClusterError, match="has no site mars"):
        rig.host("somewhere", "mars")
    with pytest.raises(ClusterError, match="has no host nobody"):
        rig.kill("nobody")
    with pytest.raises(ClusterError, match="letters, digits"):
        rig.host("../x")


@pytest.mark.parametrize("who", ["keeper", "owner"])
def test_nothing_is_left_after_a_crash(who: str) -> None:
    name = f"crash-{who}-{os.getpid()}"
    script = (
        "import sys, time; from penstock.rig.rig import Rig; r = Rig(name=sys.argv[1]).up(); "
        "h = r.host('one', cores=1); print(h.pid, flush=True); time.sleep(100)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, name], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        try:
            first = psutil.Process(int(owner.stdout.readline()))
            rig = Rig(name=name)
            assert groups_of(name)
            if who == "keeper":
                keeper = first.parents()[1]
                assert "penstock.rig.keeper" in " ".join(keeper.cmdline())
                keeper.send_signal(signal.SIGKILL)
                assert wait_until(lambda: not first.is_running(), 5)
                sweep()
            else:
                owner.kill()
                assert wait_until(lambda: not first.is_running(), 10)
        finally:
            owner.kill()
    assert wait_until(lambda: not rig.folder.exists(), 10)
    assert wait_until(lambda: not groups_of(name), 5)


def test_callers_that_leave_or_talk_nonsense_end_no_rig_and_nobody_clears_one_that_does_not_answer_yet(
    rig: Rig,
) -> None:
    for said in (b'{"do": "status"}\n', b"not a word of JSON\n", b""):
        with socket.socket(socket.AF_UNIX) as caller:
            place = os.open(rig.folder, os.O_RDONLY)
            caller.connect(f"/proc/self/fd/{place}/{SOCKET}")
            os.close(place)
            caller.sendall(said)
    assert rig.status()["hosts"] is not None
    away = rig.folder / "away"
    (rig.folder / SOCKET).rename(away)
    sweep()
    away.rename(rig.folder / SOCKET)
    assert rig.alive()


def test_the_command_line() -> None:
    name = f"cli-{os.getpid()}"

    def penstock(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--name", name], env={"COLUMNS": "200"})
        if done.exception is not None and not isinstance(done.exception, ClusterError):
            raise done.exception
        return f"{done.output}{done.exception or ''}"

    try:
        said = penstock("up", "--sites", "2", "--hosts", "1", "--delay", "20 ms", "--memory", "512 MiB")
        assert "b1" in said
        assert "a – b: 20 ms" in said
        penstock("cut", "a1")
        penstock("cut", "a", "b")
        said = penstock("status")
        assert "cut off" in said
        assert "a – b: cut" in said
        penstock("heal", "a1")
        penstock("kill", "b1")
        assert "off" in penstock("status")
        assert "is up already" in penstock("up")
        assert "no host nobody" in penstock("kill", "nobody")
        command = [sys.executable, "-m", "penstock.cli.main", "rig", "exec", "a1", "--name", name, "hostname"]
        assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "a1\n"
    finally:
        penstock("down")
    assert "no rig named" in penstock("status")
    assert not groups_of(name)
