"""The study of a platform: what it measures becomes a profile, and the experiment's parts hold together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.controller.journal import Journal
from penstock.experiments.levels import _hosts_only, level_figures, ran
from penstock.experiments.levels_topology import detection, stairs
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.levels.day import DailyLoad
from penstock.levels.platform import default_profile
from penstock.simulator import SimulationSettings, simulate
from penstock.studies.levels import Plan, profile_of, study
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice


@dataclass(frozen=True)
class Answer:
    records_per_s: float
    memory_mib: float
    cpu_cores: float


class ModelledGround:
    """A platform by formula, for the study's own arithmetic: two cores, 400 MiB an instance, 50 a slot."""

    def __init__(self) -> None:
        self.shape = [1, 1]

    def slots(self, number: int) -> float:
        self.shape[1] = number
        return 0.1

    def instances(self, number: int) -> float:
        self.shape[0] = number
        return 3.0

    def host(self) -> float:
        self.shape[0] += 1
        return 6.0

    def capacity(self, query: str, *, rows: int, span_s: float, partitions: int) -> Answer:
        instances, slots = self.shape
        busy = min(instances * slots, 2, partitions)
        return Answer(1000.0 * busy, 400.0 * instances + 50.0 * instances * (slots - 1), busy)


def test_the_study_finds_which_level_pays_and_what_it_costs() -> None:
    plan = Plan(("jvm", "python"), 2, span_s=0.0)
    told: list[str] = []
    rows, times = study(ModelledGround(), plan, told.append)
    found = profile_of("modelled", rows, times, plan, 215.0)
    slot, instance, host = (found.levels[name] for name in ("slot", "instance", "host"))
    assert slot.effect_ratio == pytest.approx(1.0)
    assert slot.beyond_cores_ratio == pytest.approx(0.0)
    assert (slot.memory_mib, instance.memory_mib, host.memory_mib) == (50, 400, 615)
    assert (slot.start_s, instance.start_s, host.start_s) == (0.1, 3.0, 6.0)
    assert found.cheapest_first() == ("slot", "instance", "host")
    assert any("1 partition carries 0.50" in text for text in found.findings)
    assert told[-1].startswith("8 of 8")
    assert {(row.hosts, row.instances, row.slots) for row in rows} == {
        (1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 2, 1), (1, 2, 2), (2, 3, 1)
    }  # fmt: skip


def test_the_shipped_profile_says_what_was_measured() -> None:
    profile = default_profile()
    assert profile.cheapest_first()[0] == "slot"
    assert level_figures(profile)[-1].holds is not None


def test_hosts_alone_need_more_of_them_than_levels_do(tmp_path: Path) -> None:
    layouts = ({"parser": (2,), "analyser": (1,)}, {"parser": (2,)})
    known = ConfigurationMap("detection", 0.9, (Configuration(0.0, 10_000.0, layouts),))
    by_map = {"map": str(known.write(tmp_path / "map.yaml")), "keep_paid": False}
    alone = str(_hosts_only(default_profile()).write(tmp_path / "alone.yaml"))
    load = stairs((6000.0,), 600.0)
    levels = ran(detection(Choice("levels", by_map), load), 600.0, 600.0)
    hosts = ran(detection(Choice("levels", {**by_map, "platform": alone}), load), 600.0, 600.0)
    assert levels.most_hosts == 2
    assert hosts.most_hosts == 4
    assert levels.result.host_s < hosts.result.host_s


def test_a_day_is_learned_from_a_run(tmp_path: Path) -> None:
    topology = detection(Choice("fixed", {"instances": 2}), stairs((1000.0, 3000.0), 600.0))
    (tmp_path / "topology.yaml").write_text(dump_topology(topology))
    with Journal(tmp_path / "journal.db", topology.name) as journal:
        simulate(topology, SimulationSettings(), duration_s=2400.0, journal=journal)
    command = ["study", "day", str(tmp_path), "--length", "20 min", "--steps", "2", "--out", str(tmp_path)]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    found = DailyLoad.read(tmp_path / "day.yaml")
    assert found.rates_per_s == pytest.approx((100.0, 300.0), rel=0.05)
    assert found.day_s == 1200.0
