"""A second user on the same machine, who knows every port and every folder, gets nothing and changes nothing.

Every attempt comes with its control: the same thing done with the right secret, or by the owner, works. So an
attempt that is refused is refused by what protects, not by a mistake in the attempt.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.fleet.ports import UnitReport
from penstock.fleet.units import UnitState
from penstock.machine.processes import wait_until
from penstock.monitoring import Measurement
from penstock.plain import to_json
from penstock.runs import commands
from penstock.spark.launching import spark_class, spark_java
from penstock.spark.unit.heartbeat import (
    LARGEST_BYTES,
    LONGEST_REQUEST_S,
    MOST_AT_ONCE,
    Beat,
    HeartbeatClient,
)

from . import strangers
from .conftest import PATIENCE_S, Victim
from .strangers import NOBODY, as_nobody, asked, kafka_answers, meanwhile, places_with, read, written_into

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


# --- files -----------------------------------------------------------------------------------------------

FILES: dict[str, Callable[[Victim], Path]] = {
    "the run's folder": lambda v: v.folder,
    "the run's token": lambda v: v.folder / "controller.json",
    "the plan with the user's settings": lambda v: v.folder / "plan.json",
    "the journal": lambda v: v.folder / "journal.sqlite",
    "the status": lambda v: v.folder / "status.json",
    "the checkpoint": lambda v: v.folder / "units" / "unit" / "checkpoint" / "offsets" / "0",
    "the records of a source": lambda v: v.folder / "sources",
    "the results": lambda v: v.folder / "results",
    "the driver's log": lambda v: v.folder / "units" / "unit" / "driver.log",
    "the shipped code": lambda v: v.folder / "units" / "unit" / "code" / "penstock_code.zip",
    "the cluster's secrets": lambda v: v.folder / "cluster" / "access.json",
    "the master's settings": lambda v: v.folder / "cluster" / "daemon.properties",
    "a worker's settings": lambda v: next((v.folder / "cluster" / "work").glob("*/daemon.properties")),
    "the settings of sessions": lambda v: v.folder / "cluster" / "conf" / "spark-defaults.conf",
    "the master's log": lambda v: v.folder / "cluster" / "logs",
    "an executor's log": lambda v: next((v.folder / "cluster" / "work").glob("*/app-*/*/stderr")),
    "the records of processes": lambda v: next((v.cache / "processes").glob("*.json")),
    "which masters there are": lambda v: v.cache / "masters",
    "the broker's password": lambda v: v.root / "broker" / "password",
    "the broker's settings": lambda v: v.root / "broker" / "server.properties",
    "the broker's records": lambda v: v.root / "broker" / "data",
}


@pytest.mark.parametrize("what", FILES)
def test_he_cannot_read(victim: Victim, what: str) -> None:
    path = FILES[what](victim)
    if "broker" in what and victim.broker is None:
        pytest.skip("the broker's jars cannot be fetched")
    assert read(path), "its owner can"
    assert as_nobody(lambda: read(victim.root)), "he can reach the folder that holds it all"
    assert as_nobody(lambda: read(path)) == ""


def test_he_cannot_give_commands(victim: Victim) -> None:
    order = to_json(commands.Command("stop", by="him"))
    assert as_nobody(lambda: written_into(victim.folder / "commands", "1.json", order)) == ""
    assert as_nobody(lambda: written_into(victim.folder, "plan.json", order)) == ""
    assert as_nobody(lambda: written_into(victim.cache / "jars", "kafka-clients.jar", "x")) == ""
    assert commands.taken(victim.folder / "commands", pytest.fail) == []


def test_no_secret_is_in_any_file_that_he_can_read(victim: Victim) -> None:
    shared = [path for place in ("/tmp", "/dev/shm", "/var/tmp") for path in Path(place).glob("*")]
    recent = [path for path in shared if path.lstat().st_ctime >= victim.began_s and path != victim.root]
    assert recent, "Java leaves something there"
    secrets, roots = victim.secrets, [victim.root, *recent]
    assert list(places_with(secrets, [victim.root])), "its owner finds them"
    assert as_nobody(lambda: "\n".join(places_with(secrets, roots))) == ""


def test_no_secret_is_on_a_command_line_or_in_an_environment_that_he_can_read(victim: Victim) -> None:
    processes = victim.processes()
    assert len(processes) >= 5, "master, worker, driver, its Java, an executor"
    pids = [process.pid for process in processes]

    def shown(name: str) -> str:
        found = []
        for pid in pids:
            with contextlib.suppress(OSError):
                content = Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
                found += [what for what, secret in victim_secrets.items() if secret in content]
        return " ".join(found)

    victim_secrets = victim.secrets
    assert shown("environ"), "executors get the secret by their environment, which their owner can read"
    assert as_nobody(lambda: shown("environ")) == ""
    assert shown("cmdline") == "", "nobody finds one here"


def test_he_cannot_look_into_a_process(victim: Victim) -> None:
    pid = victim.processes()[0].pid

    def looked() -> str:
        for name in ("mem", "maps", "fd", "cwd/plan.json"):
            with contextlib.suppress(OSError):
                path = Path(f"/proc/{pid}/{name}")
                return f"{name}: {os.listdir(path) if name == 'fd' else path.open('rb').read(10)!r}"
        return ""

    assert looked(), "its owner can"
    assert as_nobody(looked) == ""


def test_what_is_told_and_recorded_holds_no_secret(victim: Victim) -> None:
    victim.run.tick()
    told = [row["text"] for row in victim.run.journal.rows("notice")]
    shown = json.dumps([told, victim.run.news(), victim.run.journal.rows("action")])
    places = [victim.folder, victim.folder / "cluster" / "logs", victim.folder / "units" / "unit"]
    logs = "".join(p.read_text(errors="replace") for place in places for p in place.glob("*.log"))
    status = (victim.folder / "status.json").read_text()
    for what, secret in victim.secrets.items():
        assert secret not in shown + logs + status, what


# --- the heartbeat ---------------------------------------------------------------------------------------


def a_beat(number: int, attempt: int = 1, unit: str = "unit", **measured: Any) -> bytes:
    measurement = Measurement(unit, time.time(), 1.0, **{"arrived": 1, "processed": 1, **measured})
    return to_json(
        Beat(attempt, UnitReport(unit, time.time(), UnitState.RUNNING, None, (), measurement), number)
    ).encode()


FORGED = 10**9
"""Far beyond what the driver itself has counted to."""

BEATS: dict[str, Callable[[str], tuple[bytes, dict[str, str]]]] = {
    "without a token": lambda t: (a_beat(FORGED), {}),
    "with an empty token": lambda t: (a_beat(FORGED), {"Authorization": "Bearer "}),
    "with a wrong token": lambda t: (a_beat(FORGED), {"Authorization": f"Bearer {t[::-1]}"}),
    "with a part of the token": lambda t: (a_beat(FORGED), {"Authorization": f"Bearer {t[:-1]}"}),
    "with the token as a password": lambda t: (
        a_beat(FORGED),
        {"Authorization": "Basic " + base64.b64encode(f"penstock:{t}x".encode()).decode()},
    ),
    "with the token in a cookie": lambda t: (a_beat(FORGED), {"Cookie": f"token={t}"}),
}


@pytest.mark.parametrize("how", BEATS)
def test_he_cannot_report(victim: Victim, how: str) -> None:
    known = victim.heartbeat
    body, headers = BEATS[how](known["token"])
    before = victim.run.plane.last_report("unit")
    assert asked(f"{known['url']}/report", "POST", body, **headers)[0] == 401
    assert asked(f"{known['url']}/units/unit/1", **headers)[0] == 401, "nor ask what a unit runs"
    assert before is not None


def attempt_of(victim: Victim) -> int:
    return victim.run.drivers.attempt("unit")


@pytest.mark.parametrize(
    ("forged", "code"),
    [
        (lambda attempt: a_beat(1, attempt), 400),
        (lambda attempt: a_beat(FORGED, attempt - 1), 409),
        (lambda attempt: a_beat(FORGED, attempt, "../../etc"), 400),
        (lambda attempt: a_beat(FORGED, attempt, processed=10**18), 400),
        (lambda attempt: a_beat(FORGED, attempt, waiting=-1), 400),
        (lambda attempt: b"x" * (LARGEST_BYTES + 1), 400),
    ],
    ids=["replayed", "of an older attempt", "of no unit", "too much", "negative", "oversized"],
)
def test_a_forged_report_changes_nothing_even_with_the_token(
    victim: Victim, forged: Callable[[int], bytes], code: int
) -> None:
    known, done = victim.heartbeat, victim.processed()
    attempt = attempt_of(victim)
    bearer = {"Authorization": f"Bearer {known['token']}"}
    assert asked(f"{known['url']}/units/unit/{attempt}", **bearer)[0] == 200, "the token is the right one"
    found, _ = asked(f"{known['url']}/report", "POST", forged(attempt), **bearer)
    # A server that refuses a body unread may hang up before it is sent.
    assert found == code or (found == 0 and code == 400)
    assert victim.processed() - done < 10**6


def test_the_right_token_is_of_no_use_to_him(victim: Victim) -> None:
    known = victim.heartbeat
    url, bearer = (
        f"{known['url']}/units/unit/{attempt_of(victim)}",
        {"Authorization": f"Bearer {known['token']}"},
    )
    assert asked(url, **bearer)[0] == 200, "it is of use to its owner"
    assert as_nobody(lambda: str(asked(url, **bearer)[0])) == "0"


def test_he_cannot_keep_drivers_out_by_slow_requests(victim: Victim) -> None:
    known = victim.heartbeat
    host, _, port = known["url"].removeprefix("http://").partition(":")
    url, bearer = (
        f"{known['url']}/units/unit/{attempt_of(victim)}",
        {"Authorization": f"Bearer {known['token']}"},
    )
    held: list[socket.socket] = []

    def crowd() -> None:
        """More requests than there are places for, none of which comes to its end."""
        for _ in range(MOST_AT_ONCE + 16):  # so many are let in without a wait
            held.append(socket.create_connection((host, int(port)), timeout=5))
            held[-1].sendall(b"P")

    def served() -> int:
        return [asked(url, **bearer)[0] for _ in range(10)].count(200)

    def kept_out() -> bool:
        with meanwhile(crowd, stranger=False):
            return served() == 0

    # Who sends nothing for 3 s is cut off: on a busy machine the first may be gone before the last comes.
    assert any(kept_out() for _ in range(5)), "a crowd of its owner's takes all places"
    assert wait_until(lambda: served() == 10, LONGEST_REQUEST_S), "until it is gone"
    with meanwhile(crowd, stranger=True):
        assert served() == 10
        before = victim.run.plane.last_report("unit")
        assert wait_until(lambda: victim.run.plane.last_report("unit") is not before, 10), "the driver's too"
        assert served() == 10


# --- Spark's pages ---------------------------------------------------------------------------------------

PAGES = {
    "the master's account": lambda v: f"{v.master}/json/",
    "the master's page": lambda v: f"{v.master}/",
    "an application's page": lambda v: f"{v.master}/app/?appId={v.application}",
    "the master's environment": lambda v: f"{v.master}/environment/",
    "the master's log": lambda v: f"{v.master}/logPage/?self&logType=out",
    "the master's metrics": lambda v: f"{v.master}/metrics/master/json/",
    "the worker's account": lambda v: f"{v.worker}/json/",
    "an executor's log": lambda v: f"{v.worker}/logPage/?appId={v.application}&executorId=0&logType=stderr",
}
KILLS = {
    "an application": lambda v: f"{v.master}/app/kill/?id={v.application}&terminate=true",
    "a driver": lambda v: f"{v.master}/driver/kill/?id=driver-1&terminate=true",
    "a host": lambda v: f"{v.master}/workers/kill/?host={worker_of(v)[0]}",
    "a submission": lambda v: f"{v.master}/v1/submissions/kill/driver-1",
}


def _unsigned() -> dict[str, str]:
    parts = (base64.urlsafe_b64encode(p).decode().rstrip("=") for p in (b'{"alg":"none"}', b'{"sub":"x"}'))
    return {"Authorization": f"Bearer {'.'.join(parts)}."}


@pytest.mark.parametrize("what", PAGES)
def test_he_cannot_see_a_page(victim: Victim, what: str) -> None:
    url = PAGES[what](victim)
    mine = victim.run.clusters.only.manager._access.page_header()
    assert asked(url, **mine)[0] in (200, 302), "its owner sees it"
    for headers in ({}, {"Authorization": "Bearer x.y.z"}, _unsigned()):
        assert asked(url, **headers)[0] in (401, 403), headers


@pytest.mark.parametrize("what", KILLS)
def test_he_cannot_end_by_a_page(victim: Victim, what: str) -> None:
    url = KILLS[what](victim)
    for headers in ({}, _unsigned()):
        assert asked(url, "POST", b"", **headers)[0] in (401, 403)
    # Nor does the owner: killing by a page is off for all.
    asked(url, "POST", b"", **victim.run.clusters.only.manager._access.page_header())
    assert [app.id for app in victim.run.clusters.only.applications()] == [victim.application]
    assert {host.state.value for host in victim.run.clusters.only.hosts().values()} == {"up"}


def test_there_is_no_other_way_to_submit(victim: Victim) -> None:
    body = json.dumps(
        {"action": "CreateSubmissionRequest", "appResource": "x.jar", "mainClass": "X"}
    ).encode()
    assert asked(f"{victim.master}/v1/submissions/create", "POST", body)[0] in (401, 403)
    port = victim.run.clusters.only.manager.port
    assert asked(f"http://127.0.0.1:{port}/v1/submissions/create", "POST", body)[0] == 0
    assert 6066 not in {port for _, port in victim.listening()}


def test_all_listen_on_the_loopback_alone(victim: Victim) -> None:
    addresses = {address for address, _ in victim.listening()}
    assert addresses, "they do listen"
    assert all(address.startswith("127.") or address == "::1" for address in addresses), addresses


# --- Spark's own connections -----------------------------------------------------------------------------

ENDPOINTS: dict[str, tuple[str, Callable[[Victim], tuple[str, int]]]] = {
    "the master, to submit": ("Master", lambda v: ("127.0.0.1", int(v.run.clusters.only.manager.port or 0))),
    "the worker, to start executors": ("Worker", lambda v: worker_of(v)),
    "the driver, as an executor": ("CoarseGrainedScheduler", lambda v: ("127.0.0.1", v.driver_port())),
    "the driver, for its blocks": ("BlockManagerMaster", lambda v: ("127.0.0.1", v.driver_port())),
    "the driver, for its shuffles": ("MapOutputTracker", lambda v: ("127.0.0.1", v.driver_port())),
    "the driver, to commit output": ("OutputCommitCoordinator", lambda v: ("127.0.0.1", v.driver_port())),
}


def worker_of(victim: Victim) -> tuple[str, int]:
    worker = next(w for w in victim.run.clusters.only.master_state()["workers"] if w["state"] == "ALIVE")
    return worker["host"], int(worker["port"])


def reached(java: Any, place: tuple[str, int], endpoint: str, settings: dict[str, str]) -> bool:
    """Whether Spark's own client gets through to an endpoint with these settings."""
    conf = java.org.apache.spark.SparkConf(False)
    for name, value in {"spark.rpc.lookupTimeout": "8s", "spark.rpc.askTimeout": "8s", **settings}.items():
        conf.set(name, value)
    entries = java.java.lang.Class.forName("org.apache.spark.internal.config.package$")
    entry = entries.getField("MODULE$").get(None).AUTH_SECRET_FILE()
    security = java.org.apache.spark.SecurityManager(conf, java.scala.Option.empty(), entry)
    env = java.org.apache.spark.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, security, True)
    try:
        env.setupEndpointRef(java.org.apache.spark.rpc.RpcAddress(*place), endpoint)
        return True
    except Exception:
        return False
    finally:
        env.shutdown()


@pytest.mark.parametrize("secret", ["none", "wrong", "wrong, not encrypted"])
@pytest.mark.parametrize("what", ENDPOINTS)
def test_he_cannot_speak_with(victim: Victim, rpc: Any, what: str, secret: str) -> None:
    endpoint, place = ENDPOINTS[what][0], ENDPOINTS[what][1](victim)
    right = dict(victim.run.clusters.only.manager.settings())
    if secret == "none":
        assert reached(rpc, place, endpoint, right), "with the secret it answers"
    settings = {
        "none": {},
        "wrong": {**right, "spark.authenticate.secret": "guessed"},
        "wrong, not encrypted": {"spark.authenticate": "true", "spark.authenticate.secret": "guessed"},
    }[secret]
    assert not reached(rpc, place, endpoint, settings)


def test_the_secret_without_encryption_is_not_enough(victim: Victim, rpc: Any) -> None:
    """What is not encrypted could be changed on its way: Spark's older login is not taken."""
    endpoint, place = ENDPOINTS["the master, to submit"]
    secret = victim.secrets["Spark's secret"]
    open_way = {"spark.authenticate": "true", "spark.authenticate.secret": secret}
    assert not reached(rpc, place(victim), endpoint, open_way)


def test_a_worker_of_his_does_not_join(victim: Victim, tmp_path: Path) -> None:
    before = len(victim.run.clusters.only.master_state()["workers"])
    place = victim.root / "his"
    place.mkdir()
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    command, environment = spark_class(
        spark_java(), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "8",
        "--memory", "512m", "--work-dir", str(place), victim.run.clusters.only.master_url,
    )  # fmt: skip
    environment |= {"HOME": str(place), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(place)}
    output = (tmp_path / "his.log").open("wb")
    his = subprocess.Popen(
        command, env=environment, cwd=place, user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
        stdout=output, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        refused = wait_until(lambda: "ailed to connect to master" in log_of(tmp_path), 60, poll_s=0.5)
        assert refused, log_of(tmp_path)[-2000:]
        assert len(victim.run.clusters.only.master_state()["workers"]) == before
    finally:
        his.kill()
        his.wait()
        output.close()


def log_of(folder: Path) -> str:
    return (folder / "his.log").read_text(errors="replace")


COMMAND = b"r\nu\njava.lang.System\nrj\ne\n"
"""What Python says to its Java to get hold of a class."""


def commanded(port: int, token: str | None = None) -> bytes:
    """What is answered at a port to a command, after a login where a token is given."""
    answer = b""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(2.0)
        if token is not None:
            connection.sendall(f"A\n{token}\n".encode())
            answer = connection.recv(100)
            if not answer.startswith(b"!y"):
                return answer
        connection.sendall(COMMAND)
        answer = connection.recv(100)
    return answer


def test_he_cannot_command_the_drivers_java(victim: Victim, rpc: Any) -> None:
    """Python speaks with its Java over a port: without its token every command is refused."""
    from pyspark import SparkContext

    own = SparkContext._gateway.gateway_parameters
    assert commanded(own.port, own.auth_token).startswith(b"!y"), "whose Java it is commands it"
    assert b"Authentication error" in commanded(own.port, own.auth_token[::-1])
    answers = [commanded(port) for address, port in victim.listening() if address == "127.0.0.1"]
    assert any(b"Authentication error" in answer for answer in answers), "the driver's Java is among them"
    assert not any(answer.startswith(b"!y") for answer in answers), answers


# --- the broker ------------------------------------------------------------------------------------------

REQUESTS = {
    "list topics": strangers.METADATA,
    "make a topic": strangers.CREATE_TOPIC,
    "delete a topic": strangers.DELETE_TOPIC,
    "read records": strangers.FETCH,
    "write records": strangers.PRODUCE,
    "list readers": strangers.GROUPS,
}


@pytest.mark.kafka
@pytest.mark.parametrize("listener", ["clients", "controller"])
@pytest.mark.parametrize("what", REQUESTS)
def test_he_cannot_ask_the_broker_to(victim: Victim, what: str, listener: str) -> None:
    if victim.broker is None:
        pytest.skip("the broker's jars cannot be fetched")
    record = victim.broker.record()
    assert record is not None
    port = record.port if listener == "clients" else record.controller_port
    if listener == "clients":
        assert kafka_answers(port, strangers.METADATA, victim.secrets["the broker's password"])
    assert not kafka_answers(port, REQUESTS[what])
    assert not kafka_answers(port, REQUESTS[what], "guessed")


# --- and after all that ----------------------------------------------------------------------------------


def test_after_all_attempts_the_run_goes_on(victim: Victim) -> None:
    done = victim.processed()

    def works() -> bool:
        victim.run.tick()
        return victim.processed() > done + 20

    assert wait_until(works, PATIENCE_S, poll_s=0.3)
    assert victim.run.all_running()
    assert len(victim.run.clusters.only.hosts()) == 1
    client = HeartbeatClient(victim.folder, "unit", attempt_of(victim))
    assert client.specification(lambda _: True).unit == "unit"
