"""Units changed while records flow, over files and over Kafka, in one session: every id comes out once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.channels.batches import publish
from penstock.channels.feeder import ALIVE
from penstock.channels.lookups import update
from penstock.channels.sinks import read_results
from penstock.runs.changes import Preview, preview, require_possible
from penstock.runs.handover import Handover
from penstock.spark.checkpoints import Checkpoint
from penstock.spark.gateway.errors import cause_of
from penstock.spark.unit.folders import RunFolders
from penstock.spark.unit.plan import generated_sources
from penstock.spark.unit.query import UnitQuery
from penstock.spark.unit.rehearsal import OtherTypesError, rehearse
from penstock.spark.unit.streams import taken_by
from penstock.topology.model import Channel, Choice, Operator, Sink, Source, Topology, Unit

from ..channels.test_kafka import broker  # noqa: F401  (a real one, for this module)

pytestmark = pytest.mark.spark

TIME = "2026-01-01T00:00:00.000001+00:00"
SOURCE = Source("numbers", workload=Choice("constant", {"level_per_s": 5.0}), schema="number long")


def passing(name: str, *inputs: str, function: str | None = None, stateful: bool = False) -> Operator:
    return Operator(name, inputs, function, schema="number long", stateful=stateful)


def a_version(operators: list[Operator], units: dict[str, tuple[str, ...]], **sinks: str) -> Topology:
    return Topology(
        "live",
        (SOURCE,),
        tuple(operators),
        tuple(Sink(name, (operator,), f"jsonl:{name}") for name, operator in sinks.items()),
        tuple(Unit(name, members) for name, members in units.items()),
    )


class Live:
    """A topology whose units run in turns, and are changed in between as a controller does it."""

    def __init__(
        self, spark: Any, topology: Topology, folder: Path, channels: tuple[Channel, ...] = ()
    ) -> None:
        self.spark, self.channels, self.folders = spark, channels, RunFolders(folder)
        self.topology = self.dressed(topology)
        self.revision, self.written, self.batch = 1, 0, 0

    def dressed(self, topology: Topology) -> Topology:
        """The topology with the channel that is tested."""
        return replace(topology, channels=self.channels) if self.channels else topology

    def put(self, count: int = 10) -> None:
        """Write records for everybody who reads the source, as a feeder does."""
        lines = [
            json.dumps({"record_id": f"r{n:04d}", "source_time": TIME, "number": n})
            for n in range(self.written, self.written + count)
        ]
        root = self.folders.sources / "numbers"
        written = root / "_writing"
        written.mkdir(parents=True)
        (written / "records.json").write_text("\n".join(lines) + "\n")
        folders = [root / unit for unit in generated_sources(self.topology)["numbers"]]
        publish(written, [written / "records.json"], count, folders, self.batch)
        self.written, self.batch = self.written + count, self.batch + 1

    def drain(self, units: Any) -> None:
        for unit in self.topology.units_in_order:
            if unit.name in units:
                query = UnitQuery(self.spark, self.topology, unit.name, self.folders)
                assert query.start(drain=True).awaitTermination(60)
                query.publish_all()
                self.folders.note_reached(unit.name, query.reached())
                query.clean()

    def leave(self, found: Preview) -> None:
        """Have units finish in the worst order there may be: the last ones first, while the others go on."""
        order = [unit.name for unit in self.topology.units_in_order]
        first, done = order[0], set[str]()
        while waiting := found.may_drain(self.topology, done) - done:
            unit = max(waiting, key=order.index)
            self.drain([unit])
            done.add(unit)
            if "numbers" not in found.held(self.topology):
                self.put()
            if first not in done:
                self.drain([first])
        assert done == set(found.drains), "each gets its turn"

    def change(self, topology: Topology, give_up_state: bool = False) -> Preview:
        """Go on with another version, with records waiting before every unit."""
        topology = self.dressed(topology)
        self.put()
        self.drain([self.topology.units_in_order[0].name])
        self.put()
        found = preview(self.topology, topology)
        require_possible(found, give_up_state=give_up_state)
        self.leave(found)
        told = Handover(self.topology, topology, found, self.folders, self.revision).carry_out()
        assert told == [], "no stream ended with records in it"
        again = Handover(self.topology, topology, found, self.folders, self.revision).carry_out()
        assert again == [], "it can be done again"
        self.topology, self.revision = topology, self.revision + 1
        self.put()
        return found

    def ids(self, sink: str = "out") -> list[str]:
        self.drain(self.topology.unit_by_name)
        return sorted(record["record_id"] for record in read_results(self.folders.results / sink))

    def wanted(self) -> list[str]:
        return [f"r{n:04d}" for n in range(self.written)]


FIRST = a_version(
    [passing("read", "numbers"), passing("keep", "read")],
    {"first": ("read",), "second": ("keep",)},
    out="keep",
)


@pytest.fixture(params=["files", pytest.param("kafka", marks=pytest.mark.kafka)])
def live(request: Any, spark: Any, tmp_path: Path) -> Live:
    channels: tuple[Channel, ...] = ()
    if request.param == "kafka":
        address = request.getfixturevalue("broker").record().bootstrap
        channels = (Channel("bus", "kafka", {"bootstrap": address, "partitions": 2}),)
    return Live(spark, FIRST, tmp_path, channels)


@pytest.fixture
def live_on_files(spark: Any, tmp_path: Path) -> Live:
    return Live(spark, FIRST, tmp_path)


def test_operators_replaced_units_split_merged_and_renamed_give_every_id_once(live: Live) -> None:
    read, tail = passing("read", "numbers"), passing("tail", "mend")
    replaced = a_version(
        [read, passing("mend", "read")], {"first": ("read",), "second": ("mend",)}, out="mend"
    )
    assert live.change(replaced).restarts == ("second",)
    split = a_version(
        [read, passing("mend", "read"), tail],
        {"first": ("read",), "second": ("mend",), "third": ("tail",)},
        out="tail",
    )
    found = live.change(split)
    assert (found.starts, found.restarts, found.untouched) == (("third",), ("second",), ("first",))
    merged = replace(split, units=(Unit("first", ("read", "mend", "tail")),))
    found = live.change(merged)
    assert (found.stops, found.restarts) == (("second", "third"), ("first",))
    renamed = replace(split, units=(Unit("whole", ("read", "mend", "tail")),))
    found = live.change(renamed)
    assert (found.stops, found.starts) == (("first",), ("whole",))
    live.change(split)
    assert live.ids() == live.wanted()
    assert taken_by(live.topology, "third", live.folders, None) == 10, "those since it is a unit again"


def test_a_unit_that_reads_other_streams_keeps_its_checkpoint_its_state_and_every_id(live: Live) -> None:
    """A second branch over the same source, a further stream, another order of them, and all taken back."""
    read, even = passing("read", "numbers"), passing("even", "read", function="functions:even")
    units = {"first": ("read",), "second": ("keep",)}
    counted = Operator(
        "counts", ("keep",), "functions:count_by_parity", schema="parity long, records long", stateful=True
    )
    stateful = a_version(
        [read, passing("keep", "read"), counted], {**units, "third": ("counts",)}, out="keep", counts="counts"
    )
    live.change(stateful)
    more = a_version(
        [read, even, passing("late", "numbers"), passing("keep", "read"), counted],
        {"first": ("read", "even"), "second": ("late", "keep"), "third": ("counts",)},
        out="keep", counts="counts", even="even", late="late",
    )  # fmt: skip
    found = live.change(more)
    assert (found.restarts, found.untouched) == (("first", "second"), ("third",))
    both = replace(more, operators=(read, even, passing("late", "even", "numbers"), *more.operators[3:]))
    assert live.change(both).restarts == ("first", "second")
    live.change(stateful)
    assert live.ids() == live.wanted()
    newest: dict[int, int] = {}
    for record in read_results(live.folders.results / "counts"):
        newest[record["parity"]] = max(newest.get(record["parity"], 0), record["records"])
    seen = live.written - 10  # the first ten had gone through the unit before it by then
    assert newest == {0: seen // 2, 1: seen // 2}, "its state counted through all changes"


def test_state_that_cannot_be_kept_is_given_up_and_no_record_with_it(live: Live) -> None:
    read, keep = passing("read", "numbers"), passing("keep", "read")
    counted = Operator(
        "counts", ("keep",), "functions:count_by_parity", schema="parity long, records long", stateful=True
    )
    units = {"first": ("read",), "second": ("keep", "counts")}
    stateful = a_version([read, keep, counted], units, out="keep", counts="counts")
    assert live.change(stateful).renewals == ("second",), "a checkpoint has no room for new state"
    other = replace(counted, function="functions:count_by_parity_again")
    changed = replace(stateful, operators=(read, keep, other))
    found = live.change(changed, give_up_state=True)
    assert (found.renewals, found.untouched) == (("second",), ("first",))
    assert live.ids() == live.wanted()
    last = [r["records"] for r in read_results(live.folders.results / "counts") if r["parity"] == 0][-1]
    assert last == 15, "it counts anew the half of what the unit has read since the change"
    assert taken_by(live.topology, "second", live.folders, None) == live.written, "and all are counted"


def test_a_rehearsal_finds_what_would_fail_and_touches_neither_streams_nor_results(
    live: Live, tmp_path: Path
) -> None:
    live.put()
    live.drain(["first"])
    live.put()
    apart = tmp_path.parent / f"{tmp_path.name}-apart"
    apart.mkdir()
    before = sorted(str(file) for file in live.folders.root.rglob("*"))
    read = passing("read", "numbers")
    units = {"first": ("read",), "second": ("keep",)}
    good = live.dressed(
        a_version([read, passing("keep", "read", function="functions:even")], units, out="keep")
    )
    assert rehearse(live.spark, good, "second", live.folders, apart / "good") == 10
    bad = live.dressed(
        a_version([read, passing("keep", "read", function="functions:always_throws")], units, out="keep")
    )
    with pytest.raises(StreamingQueryException) as failed:
        rehearse(live.spark, bad, "second", live.folders, apart / "bad")
    assert "nobody can do this" in cause_of(failed.value)
    # One that writes a stream writes none of the run's, wherever that lies.
    assert rehearse(live.spark, good, "first", live.folders, apart / "writes") == 10
    assert sorted(str(file) for file in live.folders.root.rglob("*")) == before
    assert live.ids() == live.wanted()


def test_a_rehearsal_reads_what_a_feeder_left_beside_its_sign_of_life(
    live_on_files: Live, tmp_path: Path
) -> None:
    live = live_on_files
    live.put()
    (live.folders.root / "sources" / "numbers" / ALIVE).touch()
    assert rehearse(live.spark, live.topology, "first", live.folders, tmp_path.parent / "fed") == 10


def test_records_of_other_types_than_the_next_version_reads_are_not_tried_on_it(
    live_on_files: Live, tmp_path: Path
) -> None:
    live = live_on_files
    live.put()
    live.drain(["first"])
    live.put()
    read = replace(passing("read", "numbers"), schema="number double")
    units = {"first": ("read",), "second": ("keep",)}
    other = a_version([read, passing("keep", "read")], units, out="keep")
    with pytest.raises(OtherTypesError, match="of other types than it will read"):
        rehearse(live.spark, other, "second", live.folders, tmp_path.parent / "other")
    assert rehearse(live.spark, other, "first", live.folders, tmp_path.parent / "same") == 10


def test_a_function_sees_the_next_version_of_what_it_looks_up_in_the_next_batch(live_on_files: Live) -> None:
    live = live_on_files
    priced = replace(
        live.topology,
        operators=(live.topology.operators[0], passing("keep", "read", function="functions:looked_up")),
    )
    live.topology = priced
    live.put()
    live.drain(["first", "second"])
    update(live.folders.lookups, "offset", 1000)
    live.put()
    live.drain(["first", "second"])
    numbers = sorted(record["number"] for record in read_results(live.folders.results / "out"))
    assert numbers == [*range(10), *range(1010, 1020)]


def test_state_that_cannot_be_cut_anew_stays_as_it_is_and_says_so(live: Live) -> None:
    read, keep = passing("read", "numbers"), passing("keep", "read")
    counted = Operator(
        "counts", ("keep",), "functions:count_by_parity", schema="parity long, records long", stateful=True
    )
    units = {"first": ("read",), "second": ("keep", "counts")}
    version = a_version([read, keep, counted], units, out="keep", counts="counts")
    live.change(version, give_up_state=True)
    live.drain(live.topology.unit_by_name)
    before = Checkpoint(live.folders.checkpoint("second")).shards()
    assert before is not None
    cut = replace(version, units=(version.units[0], replace(version.units[1], shards=before + 1)))
    found = live.change(cut)
    assert (found.restarts, found.drains, found.given_up) == (("second",), ("second",), ())
    live.drain(["first"])
    query = UnitQuery(live.spark, cut, "second", live.folders)
    assert query.start(drain=True).awaitTermination(60), "it goes on all the same"
    query.publish_all()
    # State that is not in RocksDB cannot be cut.
    assert f"stays in {before} shards and not {before + 1}: " in (query.sharding_problem or "")
    assert live.ids() == live.wanted()


def test_a_reader_that_goes_down_or_up_the_stream_gets_what_is_on_its_way_once(live: Live) -> None:
    read, work, tail = passing("read", "numbers"), passing("work", "read"), passing("tail", "work")
    units = {"first": ("read",), "middle": ("work",), "last": ("tail",), "side": ("look",)}
    ends = {"out": "tail", "seen": "look"}
    at = {
        name: a_version([read, work, tail, passing("look", name)], units, **ends)
        for name in ("read", "work", "tail")
    }
    live.topology = live.dressed(at["read"])
    live.change(at["work"])
    assert live.change(at["tail"]).because, "and it says who stops for it"
    live.change(at["read"])
    keep = passing("keep", "read")
    both = {name: [read, work, tail, passing("look", name), keep] for name in ("read", "work")}
    units["side"] = ("look", "keep")
    beside, behind = (a_version(operators, units, **ends, kept="keep") for operators in both.values())
    live.change(beside)
    found = live.change(behind)
    assert ("read", "side") in found.emptied, "it goes on for another operator, and is read to its end"
    live.change(beside)
    for sink in ("out", "seen"):
        assert live.ids(sink) == live.wanted(), sink


def test_a_sink_that_is_fed_by_another_unit_gets_what_is_on_its_way_once(live: Live) -> None:
    operators, units = list(FIRST.operators), {"first": ("read",), "second": ("keep",)}
    early = a_version(operators, units, out="read", kept="keep")
    late = a_version(operators, units, out="keep", kept="keep")
    live.topology = live.dressed(early)
    for version in (late, early):
        found = live.change(version)
        assert (found.emptied, found.drains) == ((("read", "second"),), ("first", "second"))
    assert live.ids() == live.wanted()
    assert live.ids("kept") == live.wanted()
