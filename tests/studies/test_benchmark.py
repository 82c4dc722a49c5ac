"""Benchmarking a topology (paper 002, Algorithms 1 and 2), and moving by the map it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.benchmark import benchmark_page
from penstock.cli.main import app
from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.levels.configuration import ConfigurationMap
from penstock.simulator import SimulationSettings, simulate
from penstock.studies.benchmark import Plan, benchmark_simulated, found_in, held, staircase
from penstock.studies.layouts import Record
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice, LoopSettings, Topology, Unit
from tests.builders import a_flavour, a_site, a_topology, an_operator


def two_cores() -> Topology:
    """A unit of 50 records a second a slot, on hosts of two cores."""
    return a_topology(
        operators=[an_operator("a", service_s=0.02, memory_mib=512)],
        units=[Unit("a", ("a",), max_slots=2, slot_memory_mib=64)],
        sites=[a_site(flavours=[a_flavour(cores=2.0, memory_mib=2048)], max_hosts=2)],
        loop=LoopSettings(10.0, 20.0),
    )


def test_the_map_adds_a_slot_then_a_host_and_ends_where_nothing_more_is_to_be_had(tmp_path: Path) -> None:
    topology = two_cores()
    told: list[str] = []
    found = benchmark_simulated(topology, Plan(40, 240, 40, 400.0), told.append)
    shapes = [(c.to_per_s, [layout["a"] for layout in c.hosts]) for c in found.map.configurations]
    assert shapes == [
        (40.0, [(1,)]), (80.0, [(2,)]), (160.0, [(2,), (1,)]), (200.0, [(2,), (2,)])
    ]  # fmt: skip
    assert found.map.configurations[1].from_per_s == 40.0
    assert "health" in found.map.ended
    assert told[-1].startswith("6 of 6")
    again = ConfigurationMap.read(found.map.write(tmp_path / "map.yaml"))
    assert again == found.map
    assert benchmark_page(topology, found).write(tmp_path / "page.html").is_file()
    for configuration in found.map.configurations[:2]:
        top = configuration.to_per_s
        assert held(topology, configuration, top, 400.0, tmp_path / f"{top}.yaml").least_health >= 0.9
        above = held(topology, configuration, top + 40, 400.0, tmp_path / f"{top}+.yaml")
        assert above.least_health < 0.9


def test_the_command_leaves_map_and_page(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(dump_topology(two_cores()))
    ran = CliRunner().invoke(
        app,
        ["benchmark", str(file), "--to", "80/s", "--step", "40/s", "--hold", "5 min", "--out", str(tmp_path)],
    )
    assert ran.exit_code == 0, ran.output
    assert "40 – 80" in ran.output
    assert ConfigurationMap.read(tmp_path / "map.yaml").most_per_s == 80.0


def test_a_load_that_the_sources_did_not_send_has_no_configuration() -> None:
    topology = two_cores()
    plan = Plan(10, 20, 10, 200.0)
    sent = staircase(topology, plan, Choice("levels"))
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(sent, SimulationSettings(), duration_s=400.0, journal=journal)
        # The same run, had the second load been 30 a second.
        found = found_in(Record(sent, journal), Plan(10, 30, 20, 200.0), 0.0, "spark")
    assert found.map.most_per_s == 10.0
    assert "the sources sent 20/s of 30/s" in found.map.ended


def test_a_map_without_sense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rise"):
        _ = Plan(10, 5, 1, 60.0).loads
    with pytest.raises(ConfigurationError, match="at least one"):
        ConfigurationMap("t", 0.9, ())
