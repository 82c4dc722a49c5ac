"""A run as the page shows it: its topology, its film, its status while it goes on, and answers about it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.controller.journal.rows import charge_of, lease_of
from penstock.controller.journal.tables import ACTIONS, BUDGETS, CHARGES, LEASES, LIVES, OBSERVATIONS, TICKS
from penstock.controller.status import Status
from penstock.errors import ConfigurationError, PenstockError
from penstock.experiments.twin import best_cost_of, opened, topology_of_run
from penstock.forecasts.forecasters import AHEAD
from penstock.forecasts.outlook import outlook_of
from penstock.forecasts.record import LoadRecord
from penstock.monitoring.measurements import Measurement
from penstock.page.film import Place, Reader
from penstock.page.money import Hosted, spent
from penstock.runs.folder import RunFolder
from penstock.topology.model import Topology
from penstock.workload.registry import make_workload

LOAD_S = 7 * 86_400.0
"""A load is looked at for a week at most."""
LAST_S = 150.0
LAST_LOOKS = 12
"""The first picture of a run is drawn from the last so many seconds and looks."""
BAND = (0.1, 0.5, 0.9)
"""The quantiles of a forecast that are shown."""


class Shown:
    """One run of which the page tells."""

    def __init__(self, run: Path, topology: Path | Topology | None = None, *, begins: bool = False) -> None:
        """`begins` says that it is about to start: a result in its folder is of an earlier time."""
        self.reader = Reader(run)
        self.folder = RunFolder(self.reader.file.parent)
        self.topology = topology if isinstance(topology, Topology) else self._topology(topology)
        self._bound: float | None = None
        self._planned_s: float | None = None
        self.revision = 1
        """The version of the topology that is shown; counts up where it is changed while it runs."""
        self.refresh()
        self._begins = begins
        self._earlier = self._result_s() if begins else None

    def close(self) -> None:
        """Let the journal go."""
        self.reader.close()

    @property
    def live(self) -> bool:
        """Whether it goes on: it was planned as a run on a cluster, has no result, and somebody runs it."""
        ended_s = self._result_s()
        if ended_s is not None and ended_s != self._earlier:
            return False
        return self._begins or ((self.folder.root / "plan.json").exists() and self.folder.running())

    def refresh(self) -> int:
        """Look whether the run goes on with another version of its topology; the version it has."""
        try:
            planned_s = (self.folder.root / "plan.json").stat().st_mtime
            if planned_s != self._planned_s:
                plan = self.folder.plan()
                if plan.revision != self.revision:
                    self.revision, self.topology = plan.revision, plan.read_topology()
                self._planned_s = planned_s
        except (OSError, PenstockError):
            pass  # it has none yet, or is one that was simulated
        return self.revision

    def film(self, *, whole: bool = True) -> tuple[dict[str, Any], Place]:
        """Everything the page starts from, and how far the journal was read for it.

        Where it need not be `whole` and the run is long, only its last observations are in it: what a first
        picture shows. `observed` has all.
        """
        self.refresh()
        place = Place()
        last_s = max(LAST_S, LAST_LOOKS * self.topology.loop.monitoring_s)
        delta = self.reader.since(place, None if whole else last_s)
        return {**self._about(), "delta": delta, "live": self.live, "status": self.status()}, place

    def observed(self) -> dict[str, Any]:
        """Every observation, by unit, in columns."""
        return self.reader.observed()

    def status(self) -> dict[str, Any] | None:
        """What the journal does not hold of a run that goes on."""
        found = self.folder.status()
        return None if found is None else _told(found)

    def moment(self, at_s: float) -> dict[str, Any]:
        """What was seen, wanted, refused and paid at the tick nearest to an instant."""
        instants = {
            row["at_s"] for row in self.reader.rows(ACTIONS, ACTIONS.c.at_s.between(at_s - 60, at_s + 60))
        }
        instant_s = min(instants, key=lambda s: abs(s - at_s), default=at_s)
        step_s = self.topology.loop.monitoring_s
        seen: dict[str, Any] = {}
        near = OBSERVATIONS.c.at_s.between(instant_s - 4 * step_s, instant_s + 1e-6)
        for row in self.reader.rows(OBSERVATIONS, near):
            seen[row["unit"]] = {name: row[name] for name in row if name not in ("id", "run")}
        at = instant_s
        return {
            "at": at,
            "seen": list(seen.values()),
            "decided": _plain(self.reader.rows(ACTIONS, ACTIONS.c.at_s == at)),
            "paid": _plain(self.reader.rows(CHARGES, CHARGES.c.at_s == at)),
            "budgets": _plain(self.reader.rows(BUDGETS, BUDGETS.c.at_s == at)),
        }

    def forecast(self, unit: str, at_s: float) -> dict[str, Any]:
        """What the load of a unit was expected to do from an instant on, by the loop's own forecaster."""
        if unit not in self.topology.unit_by_name:
            raise ConfigurationError(
                f"expected a unit of {', '.join(self.topology.unit_by_name)}, got {unit!r}"
            )
        loop = self.topology.loop
        record = LoadRecord(loop.provisioning_s)
        slo_s = self.topology.unit_slo_s(unit)
        c = OBSERVATIONS.c
        for row in self.reader.rows(OBSERVATIONS, c.unit == unit, c.at_s <= at_s):
            measured = Measurement(
                unit, row["at_s"], row["interval_s"], arrived=row["arrived"] or 0,
                processed=row["processed"] or 0, duration_s=row["duration_s"],
            )  # fmt: skip
            record.add(measured, slo_s)
        load = record.load()
        if not len(load):
            return {"unit": unit, "at": at_s, "ahead": [], "quantiles": {}, "by": "nothing is known yet"}
        outlook = outlook_of(load, 2, record.season())
        return {
            "unit": unit,
            "at": load.end_s,
            "ahead": [bins * outlook.bin_s for bins in AHEAD],
            "quantiles": {
                str(share): [round(outlook.quantile(share, column), 4) for column in range(len(AHEAD))]
                for share in BAND
            },
            "by": outlook.forecaster,
        }

    def money(self) -> dict[str, Any]:
        """The bill by unit, site, flavour and hour, and what was paid for nothing."""
        rows = self.reader.rows
        ticks = rows(TICKS)
        end_s = ticks[-1]["at_s"] if ticks else 0.0
        start_s = ticks[0]["at_s"] if ticks else 0.0
        found = spent(
            [lease_of(row) for row in rows(LEASES)],
            [charge_of(row) for row in rows(CHARGES)],
            Hosted.read(rows(LIVES, LIVES.c.what == "instance"), end_s),
            self.topology,
            start_s,
            end_s,
        )
        return asdict(found)

    def clairvoyant(self) -> dict[str, Any]:
        """What the cheapest plan would have cost that had known the load, or why that is not known."""
        if self._bound is None:
            with opened(self.reader.file) as journal:
                self._bound = best_cost_of(journal, self.topology)
        known = self._bound is not None
        return {"cost": self._bound, "why": "" if known else "the journal does not tell enough of the load"}

    # -- inside ----------------------------------------------------------------------------------

    def _result_s(self) -> float | None:
        """When the result was written; None where there is none."""
        try:
            return (self.folder.root / "result.json").stat().st_mtime
        except OSError:
            return None

    def _topology(self, given: Path | None) -> Topology:
        return topology_of_run(self.reader.file, given)

    def _about(self) -> dict[str, Any]:
        topology = self.topology
        return {
            "name": topology.name,
            "revision": self.revision,
            "run": self.reader.run,
            "currency": next((site.currency for site in topology.sites if site.currency), ""),
            "loop": {
                "monitoring_s": topology.loop.monitoring_s,
                "provisioning_s": topology.loop.provisioning_s,
            },
            "units": {
                unit.name: {
                    "slo": topology.unit_slo_s(unit.name),
                    "policy": unit.policy.name,
                    "filter": unit.filter.name,
                    "least": unit.min_instances,
                    "most": unit.max_instances,
                    "operators": unit.operators,
                    "cores": topology.unit_cores(unit.name),
                    "sites": [site.name for site in topology.sites_of(unit.name)],
                }
                for unit in topology.units_in_order
            },
            "graph": _graph(topology),
            "loads": _loads(topology),
            "sites": {
                site.name: {
                    "provider": site.provider.name,
                    "btu": site.btu_s,
                    "most": site.max_hosts,
                    "currency": site.currency,
                    "flavours": {
                        flavour.name: {
                            "cores": flavour.cores,
                            "memory": flavour.memory_mib,
                            "price": str(flavour.price_per_btu),
                        }
                        for flavour in site.flavours
                    },
                }
                for site in topology.sites
            },
            "result": self.outcome(),
        }

    def outcome(self) -> Mapping[str, Any] | None:
        """The figures a run ended with, where it ended."""
        with contextlib.suppress(OSError, ValueError):
            found: Mapping[str, Any] = json.loads((self.folder.root / "summary.json").read_text())
            return found
        result = self.folder.result()
        return None if result is None else result.summary()


def _graph(topology: Topology) -> dict[str, Any]:
    """Sources, units and sinks, which takes from which, and whose records each edge carries."""
    nodes = [
        *({"id": f"source:{s.name}", "kind": "source", "name": s.name} for s in topology.sources),
        *({"id": unit.name, "kind": "unit", "name": unit.name} for unit in topology.units_in_order),
        *({"id": f"sink:{sink.name}", "kind": "sink", "name": sink.name} for sink in topology.sinks),
    ]
    edges: dict[tuple[str, str], list[str]] = {}

    def place(name: str) -> str:
        return topology.unit_of.get(name, f"source:{name}")

    for unit in topology.units:
        for operator in unit.operators:
            for name in topology.operator_by_name[operator].inputs:
                if place(name) != unit.name:
                    edges.setdefault((place(name), unit.name), []).append(name)
    for sink in topology.sinks:
        for name in sink.inputs:
            edges.setdefault((place(name), f"sink:{sink.name}"), []).append(name)
    carried = [sorted(set(names)) for names in edges.values()]
    return {"nodes": nodes, "edges": [list(edge) for edge in edges], "carried": carried}


def _loads(topology: Topology) -> dict[str, float]:
    """What each source is said to send in the mean, where its workload is known."""
    found = {}
    for source in topology.sources:
        if source.workload is None:
            continue
        with contextlib.suppress(PenstockError):
            curve = make_workload(source.workload).curve
            length_s = min(curve.length_s, LOAD_S)
            found[f"source:{source.name}"] = float(curve.records(length_s)) * source.share / length_s
    return found


def _told(status: Status) -> dict[str, Any]:
    return {
        "at": status.at_s,
        "phase": status.phase,
        "since": status.since_s,
        "duration": status.duration_s,
        "acting": status.acting,
        "paused": status.paused,
        "reason": status.reason,
        "problem": status.problem,
        "asks": list(status.asks),
        "units": {
            unit.name: {
                "state": str(unit.state),
                "silent": unit.silent_s,
                "problem": unit.problem,
                "why": unit.why,
                "site": unit.site,
            }
            for unit in status.units
        },
    }


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name not in ("run", "payload")} for row in rows]
