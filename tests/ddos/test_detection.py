"""Counting in lanes, the model's scores, and the stream beside the batch on one capture."""

from __future__ import annotations

import base64
import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import itertools

from detector.features import COUNTS, FEATURES, KEYS, counted, features_of
from detector.model import Model, judged
from detector.operators import CARRIED, LANES, MODEL, Aggregator, alerts_of, unpacked
from detector.packets import SYN, written
from detector.traffic import captured, period_of

from penstock.channels.batches import publish
from penstock.channels.sinks import read_results
from penstock.experiments.recordings import find_recordings
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.query import UnitQuery
from penstock.topology.file import load_topology
from penstock.topology.model import Choice

from ..spark_units.conftest import process_all

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ddos"
LOAD = Choice("constant", {"level_per_s": 300.0})
DATA = find_recordings().folder or Path("absent")


def parsed_table(seconds: float) -> pd.DataFrame:
    """Packets as the parser gives them."""
    rows = [
        (p.number, p.time_us, p.source, p.destination, p.source_port, p.destination_port, p.protocol,
         int(bool(p.flags & SYN)), p.length)
        for p in (labelled.packet for labelled in captured("packets", LOAD, seconds))
    ]  # fmt: skip
    names = [
        "number",
        "time_us",
        "source",
        "destination",
        "source_port",
        "destination_port",
        "protocol",
        "syn",
        "length",
    ]
    return pd.DataFrame(rows, columns=names).assign(source_time=pd.Timestamp("2026-01-01"))


PACKETS = parsed_table(12.0)


def brute(packets: pd.DataFrame) -> dict[tuple[int, int], tuple[int, ...]]:
    """The counts of `features.counted`, packet by packet."""
    found = {}
    for key in {(s, d) for s, d in zip(packets["source"], packets["destination"], strict=True)}:
        own = packets[(packets["source"] == key[0]) & (packets["destination"] == key[1])]
        times = sorted(own["time_us"])
        gaps = [b - a for a, b in itertools.pairwise(times)]
        found[key] = (
            len(own), own["length"].sum(), own["syn"].sum(), len(set(own["source_port"])),
            len(set(own["destination_port"])), sum(gaps), sum(gap * gap for gap in gaps),
        )  # fmt: skip
    return found


def test_pairs_are_counted_as_one_would_by_hand() -> None:
    some = PACKETS[PACKETS["number"] <= 900].sample(frac=1.0, random_state=3)
    table = counted(some)
    rows = {tuple(row[:2]): tuple(row[2:]) for row in table[[*KEYS, *COUNTS]].to_numpy().tolist()}
    assert rows == brute(some)


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_a_lane_gives_every_period_once_whatever_order_packets_come_in(
    luck: random.Random, cuts: int
) -> None:
    own = PACKETS[PACKETS["number"] % LANES == 1]
    places = list(range(len(own)))
    # Disorder within reach, repetitions, and batches of any size.
    places.sort(key=lambda place: place + luck.uniform(0, 60))
    places += luck.sample(places, 40)
    ends = [*sorted(luck.sample(range(1, len(places)), cuts)), len(places)]
    memory, parts, begin = None, [], 0
    for end in ends:
        memory, more = Aggregator().advance(1, memory, own.iloc[places[begin:end]])
        parts += more
        begin = end
    periods = own["time_us"].map(period_of)
    assert [part["period"] for part in parts] == [0, 1]
    for part in parts:
        found = unpacked(part["packets"], CARRIED)
        assert sorted(found["number"]) == sorted(own["number"][periods == part["period"]])
    assert set(memory[1]["number"]) == set(own["number"][periods == 2])


def test_a_packet_that_could_not_be_read_is_not_waited_for_and_not_counted() -> None:
    own = PACKETS[PACKETS["number"] % LANES == 0].copy()
    own.loc[own["number"] == 10, ["protocol", "source", "destination"]] = 0
    _, parts = Aggregator().advance(0, None, own)
    found = unpacked(parts[0]["packets"], CARRIED)
    assert len(parts) == 2
    assert 10 not in set(found["number"])


def test_a_missing_packet_is_waited_for() -> None:
    own = PACKETS[PACKETS["number"] % LANES == 0]
    memory, parts = Aggregator().advance(0, None, own[own["number"] != 10])
    assert parts == []
    _, parts = Aggregator().advance(0, memory, own[own["number"] == 10])
    assert [part["period"] for part in parts] == [0, 1]


def test_a_score_is_how_far_a_row_is_from_the_plane_of_normal_rows() -> None:
    model = Model(("a", "b"), (0.0, 0.0), (1.0, 2.0), ((1.0, 0.0),), (4.0,), 1.0, 1.0)
    q, t2, blame = model.scores(np.array([[2.0, 0.0], [0.0, 6.0]]))
    assert q.tolist() == [0.0, 9.0]
    assert t2.tolist() == [1.0, 0.0]
    assert blame.tolist() == [0, 1]


def test_a_row_has_the_same_scores_whatever_stands_beside_it() -> None:
    model = Model.read(EXAMPLE / "model.json")
    rows = features_of(counted(PACKETS[PACKETS["time_us"].map(period_of) == 0]))
    whole = np.array(model.scores(rows)[:2])
    alone = np.array([[score[0] for score in model.scores(row[None, :])[:2]] for row in rows]).T
    assert (whole == alone).all()
    assert model.names == FEATURES


def test_precision_and_recall_count_what_they_say() -> None:
    found = judged([True, True, False, False], [True, False, True, False])
    assert (found.right, found.wrong, found.missed) == (1, 1, 1)
    assert (found.precision, found.recall) == (0.5, 0.5)


def test_a_flood_stands_out_and_its_alert_says_why() -> None:
    model = Model.read(EXAMPLE / "model.json")
    flooded = counted(PACKETS[PACKETS["time_us"].map(period_of) == 1])
    found = alerts_of(model, 1, flooded)
    worst = found.loc[found["score"].idxmax()]
    assert worst["packets"] == flooded["packets"].max()
    assert worst["reason"] in FEATURES


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_the_alerts_of_the_stream_are_those_of_the_batch(spark: Any, tmp_path: Path) -> None:
    demo = the_demo()
    packets = list(captured("packets", LOAD, 56.0))
    topology, folders = load_topology(EXAMPLE / "ddos.yaml"), RunFolders(tmp_path)
    send_disordered(folders, packets)
    spark.conf.set(MODEL, str(EXAMPLE / "model.json"))
    for unit in topology.units_in_order:
        process_all(UnitQuery(spark, topology, unit.name, folders))
    rows = read_results(folders.results / "alerts")
    found = demo.compared_with(spark, Model.read(EXAMPLE / "model.json"), rows, packets)
    assert found.stream
    assert found.equal, (len(found.stream), len(found.batch), found.doubled)
    assert {kind for kind, there, told in found.by_kind() if told >= 0.8 * there} == set(found.kinds.values())
    assert found.judged.precision > 0.9


def send_disordered(folders: RunFolders, packets: list[Any]) -> None:
    """The capture as two batches of the source, out of order and with repetitions."""
    luck = random.Random(5)
    records = [
        {
            "record_id": f"packets-{k:09d}",
            "source_time": "2026-01-01T00:00:00.000000+00:00",
            "packet": base64.b64encode(written(labelled.packet)).decode(),
        }
        for k, labelled in enumerate(packets)
    ]
    records += luck.sample(records, 300)
    records.sort(key=lambda record: int(record["record_id"][-9:]) + luck.uniform(0, 500))
    half = len(records) // 2
    for number, part in enumerate((records[:half], records[half:])):
        writing = folders.sources / f"_writing-{number}"
        writing.mkdir(parents=True)
        (writing / "records.json").write_text("\n".join(json.dumps(record) for record in part) + "\n")
        streams = [folders.sources / "packets" / "parser"]
        publish(writing, [writing / "records.json"], len(part), streams, number)


def the_demo() -> Any:
    """The example's `demo.py` as a module; other examples have one, too."""
    place = importlib.util.spec_from_file_location("ddos_demo", EXAMPLE / "demo.py")
    assert place is not None
    assert place.loader is not None
    demo = importlib.util.module_from_spec(place)
    sys.modules[demo.__name__] = demo  # where dataclasses look their module up
    place.loader.exec_module(demo)
    return demo


@pytest.mark.spark
@pytest.mark.skipif(not (DATA / "nsl_kdd_test.csv").is_file(), reason="the files of NSL-KDD are not there")
def test_the_same_method_tells_attacks_among_real_connections(spark: Any) -> None:
    from detector.kdd import judgements

    found = judgements(spark, DATA / "nsl_kdd_train20.csv", DATA / "nsl_kdd_test.csv")
    print(*(f"{what}: {one}" for what, one in found.items()), sep="\n")
    assert found["all attacks"].precision > 0.9
    assert found["all attacks"].recall > 0.7
