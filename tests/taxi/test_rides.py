"""The taxi fleet: rides that are always the same, and reports in whatever order records come in."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cabs.batch import reports
from cabs.operators import AVERAGE, SPEED, WAY, InOrder, average_step, speed_step, way_km, way_step
from cabs.rides import LONGEST, SHORTEST, Position, drawn, positions, recorded, sent

from penstock.experiments.recordings import TAXIS, find_recordings
from penstock.infrastructure.siting import placed
from penstock.runs.assembly import load

from .conftest import EXAMPLE


def some(count: int) -> list[Position]:
    return list(itertools.islice(sent(drawn), count))


def test_positions_are_always_the_same_and_numbered_within_their_ride() -> None:
    found = some(2000)
    assert found == some(2000)
    rides: dict[str, list[Position]] = {}
    for position in found:
        rides.setdefault(position.ride, []).append(position)
    for ride in rides.values():
        assert [position.sequence for position in ride] == list(range(1, len(ride) + 1))
        assert [position.last for position in ride[:-1]] == [False] * (len(ride) - 1)
        assert not ride[-1].last or SHORTEST <= len(ride) <= LONGEST


def as_records(found: list[Position]) -> list[dict[str, Any]]:
    return [
        {**position._asdict(), "record_id": f"taxis-{number:09d}", "source_time": number}
        for number, position in enumerate(found)
    ]


def through(memory: InOrder, records: list[dict[str, Any]], first: int, sizes: random.Random) -> list[Any]:
    """Records of many rides through an operator, in batches of any size."""
    states: dict[str, tuple[int, Any, dict[int, Any]]] = {}
    emitted: list[Any] = []
    while records:
        size = sizes.randint(1, 60)
        batch, records = records[:size], records[size:]
        for ride in {record["ride"] for record in batch}:
            own = [record for record in batch if record["ride"] == ride]
            *state, over, out = memory.advance(*states.get(ride, (first, None, {})), own)
            emitted += out
            if over:
                states.pop(ride, None)
            else:
                states[ride] = tuple(state)  # type: ignore[assignment]
    return emitted


@pytest.mark.parametrize("seed", range(3))
def test_the_operators_report_every_ride_as_the_batch_does_in_whatever_order_a_batch_comes(seed: int) -> None:
    found, chance = some(1500), random.Random(seed)
    records = as_records(found)
    shuffled = [r for start in range(0, 1500, 50) for r in chance.sample(records[start : start + 50], 50)]
    speeds = through(InOrder(speed_step, SPEED), shuffled, 1, chance)
    averages = through(InOrder(average_step, AVERAGE, first=2), speeds, 2, chance)
    ways = through(InOrder(way_step, WAY), shuffled, 1, chance)
    lengths = {way["ride"]: way_km(way["way"]) for way in ways}
    assert {r["ride"]: (r["average_kmh"], lengths[r["ride"]]) for r in averages} == reports(found)
    assert len(averages) == len(ways) == len(lengths)


def test_a_feeder_that_is_started_again_makes_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cabs.rides.tracks", lambda: (drawn, "drawn"))
    import numpy as np

    first, again = positions("taxis"), positions("taxis")
    whole = [record for _ in range(6) for record in first(0, np.zeros(10))]
    assert whole == again(0, np.zeros(60))


def test_recorded_rides_are_cut_where_a_taxi_stands() -> None:
    folder = find_recordings().folder
    if folder is None or not (folder / TAXIS.file).is_file():
        pytest.skip(f"{TAXIS.file} is absent")
    rides = recorded(folder / TAXIS.file)
    assert len(rides) > 100
    assert all(SHORTEST <= len(ride) <= LONGEST for ride in rides)
    assert all(a[0] < b[0] for ride in rides for a, b in itertools.pairwise(ride))


def test_analysis_is_at_the_private_site_and_nowhere_else() -> None:
    topology = load(EXAMPLE / "taxi.yaml")
    assert [site.name for site in topology.sites_of("analysis")] == ["private"]
    assert placed(topology)["analysis"] == "private"
