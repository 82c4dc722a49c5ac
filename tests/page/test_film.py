"""What the page is drawn from: films of finished and running runs, moments, forecasts, money."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from decimal import Decimal
from pathlib import Path

import pytest

from penstock.controller.journal.tables import BESIDE, FLOWS, ON_TIME
from penstock.errors import ConfigurationError
from penstock.infrastructure.leases import Charge, Lease
from penstock.page import film as film_module
from penstock.page.film import Place, Reader
from penstock.page.money import Hosted, spent
from penstock.page.shown import Shown
from penstock.topology.file import parse_topology
from penstock.topology.model import Choice
from tests.builders import a_topology
from tests.page.runs import TWO_SOURCES, PacedSimulation, a_finished_run, many_units


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_finished_run(tmp_path_factory.mktemp("page") / "run")


@pytest.fixture
def shown(run: Path) -> Shown:
    return Shown(run)


def test_a_film_holds_every_tick_and_observation_of_the_journal(run: Path, shown: Shown) -> None:
    film, _ = shown.film()
    with sqlite3.connect(run / "journal.db") as journal:
        ticks = journal.execute("select count(*) from tick").fetchone()[0]
        seen = dict(journal.execute("select unit, count(*) from observation group by unit").fetchall())
        bill = journal.execute("select bill from tick order by id desc limit 1").fetchone()[0]
    assert len(film["delta"]["ticks"]["at"]) == ticks
    assert {unit: len(columns["at"]) for unit, columns in film["delta"]["observed"].items()} == seen
    assert film["delta"]["ticks"]["bill"][-1] == pytest.approx(float(bill))
    assert not film["live"]
    assert film["result"]["kind"] == "simulated"
    json.dumps(film, allow_nan=False)


def test_the_graph_joins_sources_units_and_what_takes_from_them(shown: Shown) -> None:
    graph = shown.film()[0]["graph"]
    names = {node["id"] for node in graph["nodes"]}
    assert {edge[0] for edge in graph["edges"]} | {edge[1] for edge in graph["edges"]} <= names
    assert {"reduce", "recognise", "tally"} <= names


def test_reading_on_gives_what_is_new_and_nothing_twice(tmp_path: Path) -> None:
    with PacedSimulation(tmp_path / "run", many_units(3), ticks=10_000, pace_s=0.02) as simulation:
        reader, place = Reader(simulation.folder.root), Place()
        times: list[float] = []
        seen: list[float] = []
        until = time.monotonic() + 20
        while len(times) < 40 and time.monotonic() < until:
            delta = reader.since(place)
            times += delta["ticks"]["at"]
            seen += delta["observed"].get("unit0000", {"at": []})["at"]
        reader.close()
    assert len(times) >= 40
    assert times == sorted(set(times))
    assert seen == sorted(set(seen))


def test_a_long_run_is_put_together_over_time_with_its_totals_kept(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = shown.film()
    monkeypatch.setattr(film_module, "MOST_ROWS", 200)
    thin, _ = shown.film()

    def records(film: dict[str, object]) -> float:
        columns = film["delta"]["observed"]["reduce"]  # type: ignore[index]
        return sum(rate * step for rate, step in zip(columns["in"], columns["step"], strict=True))

    assert len(thin["delta"]["observed"]["reduce"]["at"]) < 60
    assert records(thin) == pytest.approx(records(whole), rel=0.001)


def test_a_long_run_is_told_by_its_last_moments_first_and_whole_when_asked(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = shown.film()
    monkeypatch.setattr(film_module, "FEW_ROWS", 100)
    first, place = shown.film(whole=False)
    assert first["delta"]["partial"]
    assert "partial" not in whole["delta"]
    for unit, columns in first["delta"]["observed"].items():
        known = whole["delta"]["observed"][unit]
        assert 5 <= len(columns["at"]) < 30
        assert columns["at"] == known["at"][-len(columns["at"]) :]
        assert columns["duration"] == known["duration"][-len(columns["at"]) :]
    assert first["delta"]["ticks"] == whole["delta"]["ticks"]
    assert shown.observed() == whole["delta"]["observed"]
    assert shown.reader.since(place)["observed"] == {}, "what comes next begins where the journal ends"


def test_a_unit_with_several_inputs_is_shown_with_the_rate_of_each(tmp_path: Path) -> None:
    run = a_finished_run(tmp_path / "two", minutes=10, topology=parse_topology(TWO_SOURCES))
    seen = Shown(run).film()[0]["delta"]["observed"]
    sums = [
        (much + little, all_of_it)
        for much, little, all_of_it in zip(
            seen["both"]["from:much"], seen["both"]["from:little"], seen["both"]["in"], strict=True
        )
    ]
    assert all(a == pytest.approx(b, abs=1e-3) for a, b in sums)
    assert not [name for name in seen["after"] if ":" in name], "one input alone has all of it"
    assert Shown(run).film()[0]["graph"]["carried"] == [["much"], ["little"], ["both"]]


def test_a_moment_tells_what_was_seen_decided_and_paid(shown: Shown) -> None:
    film, _ = shown.film()
    action = next(
        row for row in film["delta"]["actions"] if row[2] == "StartInstance" and row[7] == "enacted"
    )
    told = shown.moment(action[1] + 0.4)
    assert told["at"] == action[1]
    assert action[5] in {one["subject"] for one in told["decided"]}
    assert {one["unit"] for one in told["seen"]} <= set(film["units"])


def test_a_forecast_is_made_from_what_was_known_then_alone(shown: Shown) -> None:
    at_s = 3000.0
    told = shown.forecast("reduce", at_s)
    assert told["at"] <= at_s
    low, middle, high = (told["quantiles"][share] for share in ("0.1", "0.5", "0.9"))
    assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))
    with pytest.raises(ConfigurationError, match="expected a unit"):
        shown.forecast("nobody", at_s)


def test_units_and_idle_time_together_are_the_bill(shown: Shown) -> None:
    money = shown.money()
    assert sum(money["by_unit"].values()) + money["idle"] == pytest.approx(money["total"])
    assert sum(money["by_site"].values()) == pytest.approx(money["total"])
    hours = sum(amount for hour in money["by_hour"] for amount in hour["by_site"].values())
    assert hours == pytest.approx(money["total"])
    assert 0 < money["idle_ratio"] < 1


def test_the_clairvoyant_plan_costs_no_more_than_the_run(shown: Shown) -> None:
    assert 0 < shown.clairvoyant()["cost"] <= shown.money()["total"]


def test_a_host_used_half_the_time_by_a_quarter_of_its_cores_is_an_eighth_used() -> None:
    topology = a_topology()
    lease = Lease("h1", "c", "m", 0.0, 3600.0, Decimal(8), 1, 3600.0)
    lives = [
        {"name": "a-1", "at_s": 0.0, "state": "requested", "payload": '{"unit": "a"}'},
        {"name": "a-1", "at_s": 900.0, "state": "running", "payload": '{"unit": "a", "host": "h1"}'},
        {"name": "a-1", "at_s": 2700.0, "state": "stopped", "payload": '{"unit": "a", "host": "h1"}'},
    ]
    found = spent(
        [lease], [Charge("h1", 0.0, 1, Decimal(8), "new")], Hosted.read(lives, 3600.0), topology, 0.0, 3600.0
    )
    assert found.by_unit == {"a": pytest.approx(1.0)}
    assert found.idle == pytest.approx(7.0)


def test_a_folder_without_a_run_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected a run's folder"):
        Shown(tmp_path)


def test_a_filtered_unit_has_what_was_read_beside_what_was_decided_on(tmp_path: Path) -> None:
    topology = a_topology(units=("work",), policy=Choice("rate"), filter=Choice("kalman"))
    run = a_finished_run(tmp_path / "run", minutes=20, topology=topology, process="poisson")
    film, _ = Shown(run).film()
    seen = film["delta"]["observed"]["work"]
    assert {len(column) for column in seen.values()} == {len(seen["at"])}
    both = [(read, cpu) for read, cpu in zip(seen["cpu_read"], seen["cpu"], strict=True) if read is not None]
    assert any(read != cpu for read, cpu in both)
    assert any(value is not None for value in seen["in_filtered"])


def test_a_journal_from_before_the_filters_other_side_is_shown_without_it(run: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old)
    with sqlite3.connect(old / "journal.db") as journal:
        for name in (*BESIDE, *FLOWS, ON_TIME):
            journal.execute(f"alter table observation drop column {name}")
    journal.close()
    shown = Shown(old)
    seen = shown.film()[0]["delta"]["observed"]["reduce"]
    assert "cpu_read" not in seen
    assert seen["cpu"] == Shown(run).film()[0]["delta"]["observed"]["reduce"]["cpu"]
    assert shown.moment(600.0)["seen"][0]["cpu_read_ratio"] is None
