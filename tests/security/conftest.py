"""One real run and one real broker, in folders that everybody may reach, for all who try to get in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.channels.broker import Broker
from penstock.channels.kafka_jars import broker_jars
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import TOKEN_VARIABLE, read_records, wait_until
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.runs.run import Run
from penstock.spark.gateway.session import begin_driver, end_driver
from penstock.spark.launching import spark_java
from penstock.spark.settings import prepare_environment
from penstock.spark.training import ensure_archive
from penstock.topology.model import Choice, HostFlavour, LoopSettings, Site, Unit

from ..spark_units.conftest import HERE, one_operator

PATIENCE_S = 200.0
MINE = "my-own-key-1f2e3d4c5b6a"
"""A secret of the user's, among the Spark settings of his run."""


@dataclass
class Victim:
    """A run that works, everything a second user knows about it, and the secrets he is after."""

    run: Run
    root: Path
    cache: Path
    broker: Broker | None
    began_s: float

    @property
    def folder(self) -> Path:
        return self.run.folder.root

    @property
    def heartbeat(self) -> dict[str, str]:
        known: dict[str, str] = json.loads((self.folder / "controller.json").read_text())
        return known

    @property
    def secrets(self) -> dict[str, str]:
        access = self.run.clusters.only.manager._access
        found = {
            "the run's token": self.heartbeat["token"],
            "Spark's secret": access.secret,
            "the key of the pages": access.page_key,
            "the user's own key": MINE,
        }
        if self.broker is not None:
            found["the broker's password"] = (self.broker.folder / "password").read_text()
        return found

    @property
    def master(self) -> str:
        return self.run.clusters.only.web

    @property
    def worker(self) -> str:
        return next(host.web for host in self.run.clusters.only.hosts().values() if host.web is not None)

    @property
    def application(self) -> str:
        report = self.run.plane.last_report("unit")
        assert report is not None
        assert report.application is not None
        return report.application

    def processes(self) -> list[psutil.Process]:
        """Every process of the run and of the broker."""
        tokens = {record.token for record in read_records()}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(TOKEN_VARIABLE) in tokens:
                    found.append(process)
        return found

    def listening(self) -> set[tuple[str, int]]:
        """Addresses and ports at which they listen."""
        found = set()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # Python workers come and go all the time
                found |= {
                    (c.laddr.ip.removeprefix("::ffff:"), c.laddr.port)
                    for c in process.net_connections("tcp")
                    if c.status == psutil.CONN_LISTEN
                }
        return found

    def driver_port(self) -> int:
        """Where the unit's driver listens for executors: it stands on every executor's command line."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "--driver-url" in words:
                    return int(words[words.index("--driver-url") + 1].rpartition(":")[2])
        raise AssertionError("no executor runs")

    def processed(self) -> int:
        return self.run.progress.processed()


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    if os.getuid() != 0:
        pytest.skip("only root can become another user and see what that one may")
    ensure_archive()
    began_s = time.time()
    root = Path(tempfile.mkdtemp(prefix="penstock-open-"))
    root.chmod(0o755)
    cache = root / "cache"
    cache.mkdir(mode=0o755)
    for part in ("archives", "jars", "java"):
        (cache / part).symlink_to(cache_folder(part))
    before = os.environ.get("PENSTOCK_CACHE")
    os.environ["PENSTOCK_CACHE"] = str(cache)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        stack.callback(_restore, before)
        broker = _broker(root / "broker")
        if broker is not None:
            stack.callback(broker.stop)
            broker.launch()
        topology = replace(
            one_operator(),
            sites=(
                Site(
                    "here",
                    Choice("local"),
                    flavours=(HostFlavour("small", 1.0, 1024, Decimal("0.01")),),
                    max_hosts=1,
                ),
            ),
            units=(Unit("unit", ("op",), policy=Choice("fixed"), max_instances=1),),
            loop=LoopSettings(monitoring_s=1.0, provisioning_s=2.0),
        )
        quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        plan = RunPlan.of(
            topology, f"victim-{os.getpid()}", code=str(HERE),
            settings={
                "spark.hadoop.mine.secret.key": MINE,
                "spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick,
            },
        )  # fmt: skip
        run = stack.enter_context(Run(plan, RunFolder.at(root / "run")))
        found = Victim(run, root, cache, broker, began_s)

        def works() -> bool:
            run.tick()
            return found.processed() > 20

        assert wait_until(works, PATIENCE_S, poll_s=0.3), "the run did not begin to work"
        if broker is not None:
            broker.start()
        yield found


@pytest.fixture(scope="module")
def rpc(victim: Victim) -> Iterator[Any]:
    """A Java with Spark's classes and none of its secrets, as anybody may start one."""
    end_driver()
    prepare_environment(spark_java(), "local[1]")
    begin_driver({})
    from pyspark import SparkContext

    yield SparkContext._jvm
    end_driver()


def _broker(folder: Path) -> Broker | None:
    try:
        return Broker(folder, find_java().executable, broker_jars(cache_folder("jars")))
    except ClusterError:
        return None


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop("PENSTOCK_CACHE", None)
    else:
        os.environ["PENSTOCK_CACHE"] = before
