"""A profile measured from a run makes a simulated twin that behaves like it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.controller.journal import Journal
from penstock.errors import ConfigurationError
from penstock.runs.profile import (
    Profile,
    UnitProfile,
    deviations,
    measured_profile,
    profiled,
    simulated_twin,
    with_delay,
)
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.file import load_topology
from penstock.topology.model import Choice, LoopSettings, Service, Source, Topology, Unit
from penstock.workload.registry import make_workload
from tests.builders import a_flavour, a_site, a_topology, an_operator

TOPOLOGY = Path(__file__).resolve().parents[2] / "examples" / "factory" / "factory.yaml"


def a_profile(**units: UnitProfile) -> Profile:
    return Profile("factory", units, 5.0, 4.0, 30.0, 200.0)


def a_run() -> Topology:
    """The factory with reading as heavy as it needs to grow at the highest step."""
    topology = load_topology(TOPOLOGY)
    heavy = {"parse_and_distribute": Service(0.6, 0.3)}
    operators = tuple(replace(o, service=heavy.get(o.name, o.service)) for o in topology.operators)
    return replace(topology, operators=operators)


def test_a_profile_of_a_run_makes_a_twin_that_costs_and_keeps_like_it(tmp_path: Path) -> None:
    topology = a_run()
    with Journal(tmp_path / "journal.db", topology.name) as journal:
        run = simulate(with_delay(topology, 80.0, 280.0), duration_s=280.0, journal=journal)
        profile = measured_profile(topology, journal, feed_started_s=80.0)

    twin = simulated_twin(topology, profile)

    found = {name: deviation for name, _, _, deviation in deviations(run, twin)}
    for figure in ("host-minutes", "compliance, real-time", "compliance, relaxed", "resource cost"):
        assert found[figure] is not None, figure
        assert abs(found[figure]) < 0.25, figure
    assert profile.units["read"].service_s == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("duration_s", [4.0, 7.0])
def test_a_twin_rescales_by_the_work_on_a_record_and_not_by_how_its_wait_varies(duration_s: float) -> None:
    topology = load_topology(TOPOLOGY)
    analyse = UnitProfile(1900, 0.05, 11.0, 0.4)

    def rescales(cv: float) -> int:
        units = {"read": UnitProfile(120, 1.2, duration_s, cv), "analyse": analyse}
        return simulated_twin(topology, Profile("factory", units, 3.0, 8.0, 25.0, 230.0)).rescales

    assert [rescales(0.2), rescales(0.5)] == [rescales(0.0)] * 2


def test_places_keep_an_instances_capacity_and_a_records_duration() -> None:
    topology = a_run()
    measured = UnitProfile(records=100, service_s=0.1, duration_s=2.0, duration_cv=0.2)

    twin = profiled(topology, a_profile(read=measured))

    read = twin.unit_by_name["read"]
    operator = twin.operator_by_name["parse_and_distribute"]
    assert read.places == 20
    assert operator.service_time.mean_s == 0.1
    assert (read.slots, read.max_slots) == (topology.unit_by_name["read"].slots, None)
    assert twin.unit_cores("read") == pytest.approx(topology.unit_cores("read"))
    assert twin.unit_by_name["analyse"] == topology.unit_by_name["analyse"], "not measured, not changed"


def test_a_unit_of_several_operators_is_booked_where_records_enter_it() -> None:
    topology = a_run()
    measured = UnitProfile(records=100, service_s=0.01, duration_s=1.0, duration_cv=0.2)

    twin = profiled(topology, a_profile(analyse=measured))

    services = {operator.name: operator.service_time.mean_s for operator in twin.operators}
    assert services["monitor_temperature"] == 0.01
    assert services["calculate_oee"] < 1e-3


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = a_profile(read=UnitProfile(10, 0.1, 1.5, 0.4))

    profile.write(tmp_path / "profile.json")

    assert Profile.read(tmp_path / "profile.json") == profile


def test_a_profile_from_before_readings_were_measured_is_read(tmp_path: Path) -> None:
    profile = a_profile(read=UnitProfile(10, 0.1, 1.5, 0.4))
    profile.write(tmp_path / "profile.json")
    old = json.loads((tmp_path / "profile.json").read_text())
    del old["sensors"]
    (tmp_path / "profile.json").write_text(json.dumps(old))

    assert Profile.read(tmp_path / "profile.json") == profile


@pytest.mark.parametrize("chosen", ["none", "gaussian"])
def test_a_profile_tells_what_readings_look_like_and_its_twin_reads_the_same(
    chosen: str, tmp_path: Path
) -> None:
    load = Choice("square", {"low_per_s": 2.0, "high_per_s": 9.0, "hold_s": 60.0})
    topology = a_topology(
        workload=load, policy=Choice("utilisation", {"step": "single"}), filter=Choice(chosen)
    )
    read = SimulationSettings(
        reading_noise=0.08, memory_noise=0.01, memory_idle_ratio=0.2, memory_load_ratio=0.1
    )

    def measured(settings: SimulationSettings) -> Profile:
        with Journal("sqlite://", topology.name, buffered=True) as journal:
            simulate(topology, settings, duration_s=900.0, journal=journal)
            return measured_profile(topology, journal, 0.0, 600.0)

    profile = measured(read)
    assert profile.sensors is not None
    assert profile.sensors.cpu_noise == pytest.approx(0.08, rel=0.35)
    assert profile.sensors.memory_noise == pytest.approx(0.01, rel=0.5)
    assert profile.sensors.memory_idle_ratio == pytest.approx(0.2, abs=0.03)
    assert profile.sensors.memory_load_ratio == pytest.approx(0.1, abs=0.04)
    profile.write(tmp_path / "profile.json")
    assert Profile.read(tmp_path / "profile.json") == profile

    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulated_twin(topology, profile, journal=journal)
        again = measured_profile(topology, journal, 0.0, 600.0).sensors
    assert again is not None
    assert again.cpu_noise == pytest.approx(profile.sensors.cpu_noise, rel=0.35)
    assert again.memory_idle_ratio == pytest.approx(profile.sensors.memory_idle_ratio, abs=0.05)


def test_start_times_are_those_of_what_was_added_and_not_of_what_a_run_began_with() -> None:
    topology = a_topology(per_s=25.0, policy=Choice("rate"))
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        # The first instance waits for the image; those that come to its host later do not.
        simulate(with_delay(topology, 90.0, 300.0), duration_s=300.0, journal=journal)
        first, later = measured_profile(topology, journal), measured_profile(topology, journal, 90.0)

    assert 5.0 <= later.instance_start_s <= 10.0
    assert first.feed_start_s < 90.0


def test_what_is_not_a_profile_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"name": "other"}')

    with pytest.raises(ConfigurationError, match=r"other\.json"):
        Profile.read(file)


def test_the_journal_of_no_run_is_refused(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "journal.db", "nothing") as journal,
        pytest.raises(ConfigurationError, match="without a single tick"),
    ):
        measured_profile(a_run(), journal)


@pytest.mark.parametrize("name", ["constant", "day_profile", "linear"])
def test_the_load_of_a_twin_begins_when_the_sources_did_and_ends_when_they_stopped(name: str) -> None:
    parameters = {
        "constant": {"level_per_s": 20.0},
        "day_profile": {"day_s": 50.0},
        "linear": {"over_s": 60.0},
    }
    topology = load_topology(TOPOLOGY)
    loaded = replace(
        topology, sources=tuple(replace(s, workload=Choice(name, parameters[name])) for s in topology.sources)
    )
    delayed = with_delay(loaded, 30.5, 150.0, feed_s=60.0)
    for source, before in zip(delayed.sources, loaded.sources, strict=True):
        assert source.workload is not None
        assert before.workload is not None
        late, early = make_workload(source.workload).curve, make_workload(before.workload).curve
        assert late.records(30.0) == 0.0
        assert late.records(150.0) == pytest.approx(early.records(60.0))
        assert late.records(92.0) == pytest.approx(early.records(60.0))


def test_a_twin_grows_in_place_by_slots_of_as_many_places_as_the_others() -> None:
    topology = a_topology(
        operators=[an_operator("a", service_s=1.0, memory_mib=256)],
        sources=[Source("s", workload=Choice("constant", {"level_per_s": 15.0}))],
        units=[Unit("a", ("a",), max_slots=2, max_instances=1, policy=Choice("levels"))],
        sites=[a_site(flavours=[a_flavour(cores=2.0, memory_mib=1024)])],
        loop=LoopSettings(3.0, 6.0),
    )
    measured = Profile("t", {"a": UnitProfile(100, 0.1, 2.0, 0.1)}, 2.0, 2.0, 5.0, 240.0)
    with Journal("sqlite://", topology.name, buffered=True) as journal:
        simulate(profiled(topology, measured), duration_s=240.0, journal=journal)
        rows = journal.rows("observation", ("processed", "interval_s", "service_s", "waiting"))
        kinds = [row["kind"] for row in journal.rows("action") if row["status"] == "enacted"]
    assert kinds.count("ResizeInstance") == 1
    assert rows[-1]["service_s"] == pytest.approx(0.1, rel=0.2)
    assert rows[-1]["waiting"] < 15 * 6, "two slots of 10 records a second carry 15"
