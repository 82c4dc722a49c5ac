"""Runs on the control host of a rig: a Spark master here, its workers on hosts that a provider gives.

From a lease to the bill: the host is asked for, joins, runs executors, is drained and given back. What was
seen is printed as one JSON line.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.errors import ProviderError
from penstock.fleet.deployment import HostState
from penstock.machine.processes import wait_until
from penstock.providers.cloud import CloudProvider
from penstock.spark.managers.local_cluster import LocalCluster
from penstock.topology.model import Choice, HostFlavour, Site

FLAVOUR = HostFlavour("t3.small", 1.0, 1024, Decimal("0.02"))
TASKS = 8


def busy_for(_: int) -> tuple[str, float]:
    """A task that computes for a second of its host's time, and where it did."""
    begun_s = time.process_time()
    wall_s = time.monotonic()
    while time.process_time() - begun_s < 0.2:
        pass
    return socket.gethostname(), time.monotonic() - wall_s


def main() -> None:
    """Lease, join, work, drain, give back."""
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    address, hosts = wanted["address"], wanted["hosts"]
    site = Site(
        "cloud",
        Choice(wanted["provider"], wanted["parameters"]),
        flavours=(FLAVOUR,),
        btu_s=3600.0,
        minimum_s=60.0,
        increment_s=1.0,
    )
    folder = Path(tempfile.mkdtemp(prefix="penstock-control-"))
    seen: dict[str, Any] = {"times_s": {}}
    with LocalCluster(address=address, folder=folder, name="rig-run") as cluster:
        provider = cluster.provider(site)
        assert isinstance(provider, CloudProvider)
        books = {f"h{number}" for number in range(1, hosts + 1)}
        asked_s = time.time()

        def up() -> bool:
            now_s = time.time()
            known = provider.hosts(now_s)
            provider.keep(books, now_s)
            if known is None:
                return False
            shown = {host.id: host for host in known}
            for name in books - shown.keys():
                try:
                    provider.create(name, FLAVOUR, now_s)
                except ProviderError as error:
                    seen.setdefault("refused", []).append(str(error))
            return sum(host.state is HostState.UP for host in shown.values()) == hosts

        seen["joined"] = wait_until(up, wanted.get("join_s", 120.0))
        seen["times_s"]["joined"] = time.time() - asked_s
        seen["hosts"] = {
            h.id: [h.address, h.state.value, h.problem] for h in provider.hosts(time.time()) or ()
        }
        if seen["joined"]:
            seen.update(work(cluster, address))
            seen["times_s"]["worked"] = time.time() - asked_s
        for name in books:
            provider.delete(name, time.time())
        provider.keep((), time.time())
        seen["left"] = provider.close(60.0)
        seen["times_s"]["given_back"] = time.time() - asked_s
        seen["used"] = [
            [used.host, used.from_s, used.until_s, used.flavour] for used in provider.used(time.time())
        ]
    print(json.dumps(seen), flush=True)


def work(cluster: LocalCluster, address: str) -> dict[str, Any]:
    """Run tasks on the executors of the hosts."""
    from penstock.spark.settings import ExecutorShape, start_session

    shape = ExecutorShape(cores=1, memory_mib=512)
    spark = start_session("rig", cluster.master_url, executor=shape, settings=cluster.manager.settings())
    try:
        done = spark.sparkContext.parallelize(range(TASKS), TASKS).map(busy_for).collect()
        return {"ran_on": sorted({name for name, _ in done}), "records": len(done)}
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
