"""A whole run on a real local cluster: load that steps up and down, and every process killed once.

One run serves all tests, in their order: bringing up a cluster and drivers is what costs. A steady trickle
of numbered records goes in the whole time; the last test reconciles every one of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from fastapi.testclient import TestClient

from penstock.api.app import create_app
from penstock.api.runs import Runs
from penstock.channels.sinks import read_results
from penstock.controller.journal import Journal
from penstock.machine.processes import read_records, wait_until
from penstock.runs import commands
from penstock.runs.folder import RunFolder
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Operator, Sink, Site, Unit

from .conftest import HERE, one_operator, put

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE_S = 240.0
"""Far beyond what anything here takes, for machines that do much else at the same time."""


class Trickle:
    """Writes numbered records into a run's source, at a rate that can be changed."""

    def __init__(self, folder: Path, rate_per_s: float, unit: str = "unit") -> None:
        self.rate_per_s = rate_per_s
        self.written = 0
        self._folder = folder
        self._unit = unit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        batch_id = 0
        due = 0.0
        while not self._stop.wait(0.2):
            due += self.rate_per_s * 0.2
            count = int(due)
            due -= count
            if count:
                put(self._folder, range(self.written, self.written + count), batch_id, self._unit)
                self.written += count
                batch_id += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.written


WATCHER = """
import json, sys
from pathlib import Path
from penstock.machine.processes import interrupt_on_signals
from penstock.runs.service import run_topology
from penstock.topology.file import parse_topology
interrupt_on_signals()
given = json.loads(Path(sys.argv[1]).read_text())
given["topology"] = parse_topology(given["topology"])
given["folder"], given["code"] = Path(given["folder"]), Path(given["code"])
run_topology(**given)
"""


class RunInProcess:
    """`run_topology` in a process of its own, as `penstock run` is; its controller is one more."""

    def __init__(self, topology, folder, name, **options):
        self.folder = folder
        self.name = name
        arguments = {
            "topology": dump_topology(topology),
            "folder": str(folder),
            "name": name,
            "code": str(HERE),
            "feed": False,
            "settings": {
                "spark.driver.extraJavaOptions": FAST_START,
                "spark.executor.extraJavaOptions": FAST_START,
            },
        }
        self._arguments = folder.with_suffix(".json")
        self._arguments.write_text(json.dumps({**arguments, **options}))
        self.start()

    def start(self):
        with self.log.open("ab") as output:
            # As a shell starts what runs in its background: with SIGINT ignored.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                self.watcher = subprocess.Popen(
                    [sys.executable, "-c", WATCHER, str(self._arguments)], stdout=output, stderr=output
                )
            finally:
                signal.signal(signal.SIGINT, before)

    @property
    def log(self):
        return self.folder.with_suffix(".log")

    @property
    def place(self):
        return RunFolder(self.folder)

    def status(self):
        return self.place.status()

    def instances(self, unit="unit"):
        status = self.status()
        return status.unit(unit).running if status else 0

    def hosts(self):
        status = self.status()
        return [host.name for host in status.hosts] if status else []

    def process(self, group, name):
        """The pid of a recorded process of the run."""
        for record in read_records():
            if record.group == f"{self.name}{group}" and record.name == name and record.alive:
                return record.pid
        return None

    def pids(self):
        return [r.pid for r in read_records() if r.group.startswith(self.name) and r.alive]

    def executors(self):
        """The executor processes of the run: the children of its workers."""
        found = []
        for record in read_records():
            if record.group == self.name and record.name != "master" and record.alive:
                for child in psutil.Process(record.pid).children(recursive=True):
                    # Python workers come and go all the time: one that just left hides no other.
                    with contextlib.suppress(psutil.Error):
                        if "--executor-id" in child.cmdline():
                            found.append(child)
        return found

    def an_executor(self):
        """One executor process, once there is one."""
        self.wait(self.executors, "an executor ran")
        return self.executors()[0]

    def wait(self, condition, what):
        assert wait_until(lambda: self.watcher.poll() is not None or condition(), PATIENCE_S, poll_s=0.3), (
            f"waited in vain until {what}; last status: {self.status()}"
        )
        assert self.watcher.poll() is None, self.log.read_text()

    def notices(self):
        with Journal(self.place.journal, self.name) as journal:
            return [row["text"] for row in journal.rows("notice")]

    def stop(self):
        """End it as Ctrl-C does; its exit code."""
        if self.watcher.poll() is None:
            self.watcher.send_signal(signal.SIGINT)
        return self.watcher.wait(120)


def results(folder, sink="out"):
    return [record["record_id"] for record in read_results(folder / "results" / sink)]


TOPOLOGY = replace(
    one_operator("functions:work"),
    units=(
        Unit(
            "unit",
            ("op",),
            policy=Choice("threshold", {"up_queue": 80, "up_twice_queue": 100_000, "down_queue": 50}),
            max_instances=3,
        ),
    ),
    sites=(
        Site(
            "here",
            Choice("local"),
            btu_s=5.0,
            flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
            max_hosts=3,
        ),
    ),
    loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0, cooldown_s=4.0),
)


BASE_PER_S = 30.0
"""An instance can do a hundred records a second: one is enough for this load, and not for four times it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    started = RunInProcess(TOPOLOGY, folder, f"test-{os.getpid()}")
    started.trickle = Trickle(folder, 2.0)
    try:
        started.wait(lambda: len(results(folder)) > 0, "the first records came out")
        yield started
    finally:
        started.trickle.stop()
        started.stop()


def goes_on(run, since, what):
    """Records written after an instant come out."""
    wanted = since + 20
    run.wait(lambda: run.trickle.written > wanted and f"r{wanted:06d}" in set(results(run.folder)), what)


def test_instances_and_hosts_follow_a_load_of_1_4_and_1_up_and_down(run):
    run.trickle.rate_per_s = BASE_PER_S
    goes_on(run, run.trickle.written, "records came out at the base load")
    run.wait(lambda: run.instances() == 1 and len(run.hosts()) == 1, "one instance was enough")

    run.trickle.rate_per_s = 4 * BASE_PER_S
    run.wait(lambda: run.instances() >= 2 and len(run.hosts()) >= 2, "a second instance ran")

    run.trickle.rate_per_s = BASE_PER_S
    run.wait(lambda: run.instances() == 1 and len(run.hosts()) == 1, "the extra hosts were released")

    with Journal(run.place.journal, run.name) as journal:
        done = [row["kind"] for row in journal.rows("action") if row["status"] == "enacted"]
    assert {"LeaseHost", "StartInstance", "StopInstance", "ReleaseHost"} <= set(done)


def test_a_killed_executor_is_replaced(run):
    victim = run.an_executor()
    victim.kill()

    goes_on(run, run.trickle.written, "records came out after an executor was killed")
    assert victim.pid not in [executor.pid for executor in run.executors()]


def test_a_killed_worker_is_replaced(run):
    (host, *_) = run.hosts()
    worker = run.process("", host)
    os.kill(worker, signal.SIGKILL)

    goes_on(run, run.trickle.written, "records came out after a worker was killed")


def test_a_killed_driver_is_started_again_from_its_checkpoint(run):
    driver = run.process("-units", "unit")
    os.kill(driver, signal.SIGKILL)

    goes_on(run, run.trickle.written, "records came out after the driver was killed")
    assert run.process("-units", "unit") not in (None, driver)


def test_units_go_on_without_a_controller_and_the_next_one_adopts_them(run):
    controller = run.process("-controller", "controller")
    driver = run.process("-units", "unit")
    os.kill(controller, signal.SIGKILL)

    goes_on(run, run.trickle.written, "records came out after the controller was killed")
    run.wait(
        lambda: run.process("-controller", "controller") not in (None, controller), "the controller was back"
    )
    run.wait(lambda: run.instances() > 0, "units were adopted")
    assert run.process("-units", "unit") == driver


def host_of(run):
    """The host of the unit's one instance, once it runs and is the only one."""
    found = []

    def alone():
        status = run.status()
        hosts = status.unit("unit").hosts if status else ()
        found[:] = hosts
        return (
            status is not None
            and status.unit("unit").running == 1
            and len(hosts) == 1
            and len(status.hosts) == 1
        )

    run.wait(alone, "one instance ran alone on one host")
    return found[0]


def state_of(run, host):
    """A host's state as of the last tick; None where it is gone."""
    status = run.status()
    return next((h.state.value for h in status.hosts if h.name == host), None) if status else None


POINTS = {
    "the replacement is asked for": lambda run, host: state_of(run, host) == "draining",
    "the replacement serves": lambda run, host: (
        len(run.status().unit("unit").hosts) > 1
        and run.instances() >= 1
        and state_of(run, host) == "draining"
    ),
    "the host is given back": lambda run, host: state_of(run, host) is None,
}
"""Where in a move and a release the controller is killed."""


@pytest.mark.parametrize("point", POINTS)
def test_a_controller_killed_amid_a_planned_move_loses_neither_instance_nor_host(run, point):
    run.trickle.rate_per_s = BASE_PER_S
    leaving = host_of(run)
    since = run.trickle.written
    commands.put(run.place.commands, commands.Command("drain", "a test", leaving))
    run.wait(lambda: POINTS[point](run, leaving), point)
    controller = run.process("-controller", "controller")
    os.kill(controller, signal.SIGKILL)
    run.wait(
        lambda: run.process("-controller", "controller") not in (None, controller), "the controller was back"
    )
    run.wait(lambda: state_of(run, leaving) is None, "the host was given back")
    assert host_of(run) != leaving
    goes_on(run, since, "records came out all the while")
    with Journal(run.place.journal, run.name) as journal:
        gone = {lease.host: lease for lease in journal.leases()}[leaving]
        lives = [row for row in journal.rows("life") if row["what"] == "instance"]
    assert gone.ended_s is not None, "nobody pays for it any more"
    newest = {row["name"]: row for row in lives}
    assert sum(not row["over"] for row in newest.values()) == 1, "one instance, known once"


def told(run, *words):
    """What the command line says; an error where it fails."""
    command = [sys.executable, "-m", "penstock.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_function_is_changed_and_a_unit_added_while_records_flow_and_both_are_taken_back(run, tmp_path):
    (operator,) = TOPOLOGY.operators
    changed = replace(
        TOPOLOGY,
        operators=(
            replace(operator, function="functions:work_negated", schema="number long"),
            Operator("look", ("op",), "functions:even", schema="number long"),
        ),
        sinks=(*TOPOLOGY.sinks, Sink("seen", ("look",), "jsonl:seen")),
        units=(*TOPOLOGY.units, Unit("watch", ("look",), policy=Choice("fixed"), max_instances=1)),
    )
    file = tmp_path / "changed.yaml"
    file.write_text(dump_topology(changed))
    before = run.trickle.written
    shown = told(run, "apply", run.folder, file, "--plan")
    assert "new units: watch" in shown
    assert "started again, keeping their state: unit" in shown
    assert run.place.plan().revision == 1, "a plan changes nothing"
    assert "revision 2 runs" in told(run, "apply", run.folder, file, "--reason", "a test")
    run.wait(lambda: len(results(run.folder, "seen")) > 3, "the new unit saw records")
    goes_on(run, before, "records came out after the change")
    run.wait(lambda: below_zero(run), "the new function was taken up")
    somebody_outside_reads_and_updates(run, tmp_path)

    since = run.trickle.written
    told(run, "tell", run.folder, "undo")
    run.wait(lambda: run.place.plan().pending is not None, "the change was under way")
    os.kill(run.process("-controller", "controller"), signal.SIGKILL)
    run.wait(lambda: run.place.plan().revision == 3, "the change was taken back, by the next controller")
    goes_on(run, since, "records came out after that")
    run.wait(lambda: run.process("-units", "watch") is None, "the unit that was added is gone")
    run.wait(lambda: [unit.name for unit in run.status().units] == ["unit"], "nobody counts it any more")
    assert run.place.plan().topology == dump_topology(TOPOLOGY)
    assert any(text.startswith("revision 2: ") and "(a test)" in text for text in run.notices())


def somebody_outside_reads_and_updates(run, tmp_path):
    """A stream and a look-up of the run, by its service's API and by command; nobody is started again."""
    runs = Runs(run.folder.parent)
    name, attempt = run.folder.name, run.process("-units", "unit")
    with TestClient(create_app(runs), headers={"Authorization": f"Bearer {runs.token}"}) as client:
        base = f"/api/v1/runs/{name}"
        office = f"{base}/streams/op/subscribers/office"
        assert client.put(office, json={"most_records": 1000}).status_code == 200
        run.wait(lambda: client.get(office).json()["number"] >= 0, "records came to the subscriber")
        first = client.get(office).json()
        assert client.post(f"{office}/done", json={"number": first["number"]}).status_code == 200
        run.wait(lambda: client.get(office).json()["number"] >= 0, "more came")
        heard = [json.loads(line) for line in told(run, "listen", run.folder, "op", "office").splitlines()]
        ids = [int(record["record_id"][1:]) for record in (*first["records"], *heard)]
        assert sorted(ids) == list(range(min(ids), min(ids) + len(ids))), "each once, none left out"
        assert client.delete(office).status_code == 200
        assert client.get(office).status_code == 409

        lookup = f"{base}/lookups/prices"
        assert client.put(lookup, json={"value": {"tea": 3}, "reason": "first"}).json()["version"] == 1
        file = tmp_path / "prices.json"
        file.write_text('{"tea": 4}')
        told(run, "lookup", run.folder, "prices", file)
        assert client.get(lookup).json() == {"name": "prices", "version": 2, "value": {"tea": 4}}
    assert run.process("-units", "unit") == attempt
    run.wait(lambda: any("lookup prices" in text for text in run.notices()), "it is on record")


def below_zero(run):
    return any(record["number"] < 0 for record in read_results(run.folder / "results" / "out"))


def test_a_killed_run_leaves_nothing_running_and_started_again_goes_on_where_it_was(run):
    with Journal(run.place.journal, run.name) as journal:
        leases = len(journal.leases())
    before = run.pids()
    run.watcher.kill()
    run.watcher.wait()
    written = run.trickle.written
    run.start()

    goes_on(run, max(written, run.trickle.written), "records came out after the run was killed")
    assert not set(before) & set(run.pids()), "what the killed run had started was ended"
    with Journal(run.place.journal, run.name) as journal:
        assert len(journal.leases()) > leases, "the same journal goes on"


def test_every_record_came_out_once_disk_is_clean_and_no_process_is_left(run):
    written = run.trickle.stop()
    run.wait(lambda: len(set(results(run.folder))) >= written, "everything came out")
    source = run.folder / "sources/numbers/unit"
    run.wait(lambda: sum(len(files) for _, _, files in os.walk(source)) < 20, "consumed files were deleted")
    pids = run.pids()
    assert pids
    assert run.stop() == 0, run.log.read_text()

    assert sorted(results(run.folder)) == [f"r{n:06d}" for n in range(written)]
    result = run.place.result()
    assert result.records_out == written, "the summary counts over everything that was killed"
    assert {unit.processed for unit in result.units.values()} == {written}, "and so do its units"
    deadline_s = time.monotonic() + 20
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert left == []
    with Journal(run.place.journal, run.name) as journal:
        assert all(lease.ended_s is not None for lease in journal.leases())
