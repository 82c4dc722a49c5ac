"""Streams that end under their subscribers, and streams of runs at several sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.channels.subscriptions import Terms, publish_to_subscribers
from penstock.errors import ConfigurationError
from penstock.runs import streams
from penstock.runs.applying import previewed
from penstock.runs.changes import preview, require_possible
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.topology.model import Channel, Topology, Unit
from tests.runs.test_changes import a_pair, with_alerts, with_operator, with_unit
from tests.topology.test_part import KAFKA, PLACES, apart

OFFICE = Terms("office")


def stateless(**changes: object) -> Topology:
    return replace(with_operator(a_pair(), "count", stateful=False), **changes)  # type: ignore[arg-type]


def merged(topology: Topology) -> Topology:
    return replace(topology, units=(Unit("all", ("read", "count")),))


def a_run(folder: Path, topology: Topology, **options: object) -> RunFolder:
    place = RunFolder.at(folder / "run")
    place.write_plan(RunPlan.of(topology, topology.name, **options))
    return place


def write(place: RunFolder, batch_id: int, channel: str = "files") -> None:
    file = place.root / f"part-{batch_id}.json"
    file.write_text(f'{{"record_id": "r{batch_id}"}}\n')
    publish_to_subscribers(place.units.channels / channel / "read", [file], 1, batch_id, "me")


def go_on(place: RunFolder, topology: Topology) -> None:
    place.write_plan(place.plan().changed(topology, ()))


def test_a_stream_that_ends_is_named_beforehand_where_somebody_subscribed_to_it(tmp_path: Path) -> None:
    place = a_run(tmp_path, stateless())
    assert previewed(place, merged(stateless())).given_up == ()
    streams.subscribed(place, "read", OFFICE)
    found = previewed(place, merged(stateless()))
    assert found.given_up == ("stream of operator read: it ends, and office subscribed to it",)
    with pytest.raises(ConfigurationError, match="office subscribed to it"):
        require_possible(found)
    require_possible(found, give_up_state=True)
    assert previewed(place, with_unit(stateless(), "second", max_instances=3)).given_up == ()
    assert previewed(place, with_alerts(stateless())).given_up == ()


def test_a_stream_that_goes_over_another_channel_is_named_as_well() -> None:
    two = stateless(channels=(Channel("left"), Channel("right")))
    now, then = with_unit(two, "first", channel="left"), with_unit(two, "first", channel="right")
    (said,) = preview(now, then, subscribers={"read": ("office",)}).given_up
    assert said == (
        "stream of operator read: it goes over channel right from then on, and office subscribed to it"
    )


@pytest.mark.parametrize("taken_away", [False, True])
def test_what_waits_of_a_stream_that_has_ended_is_read_to_its_end(tmp_path: Path, taken_away: bool) -> None:
    place = a_run(tmp_path, stateless())
    streams.subscribed(place, "read", OFFICE)
    write(place, 0)
    then = merged(stateless())
    if taken_away:
        then = with_operator(stateless(), "count", inputs=("numbers",))
        then = replace(then, operators=then.operators[1:], units=then.units[1:])
    go_on(place, then)
    assert streams.streams(place) == {}
    (listed,) = streams.listed(place)
    assert (listed.operator, listed.ended, listed.standings[0].waiting) == ("read", True, 1)
    records, number = streams.readable(place, "read", "office").read()
    assert [record["record_id"] for record in records] == ["r0"]
    assert streams.found(place, "read", "office").done(number) == 1
    with pytest.raises(ConfigurationError, match="nobody called shop"):
        streams.left(place, "read", "shop")
    with pytest.raises(ConfigurationError, match="there is no stream of read"):
        streams.subscribed(place, "read", Terms("shop"))
    streams.left(place, "read", "office")
    assert streams.listed(place) == []
    with pytest.raises(ConfigurationError, match="there is no stream of read"):
        streams.readable(place, "read", "office")


def test_what_waited_in_the_old_channel_is_read_before_what_comes_by_the_new_one(tmp_path: Path) -> None:
    two = stateless(channels=(Channel("left"), Channel("right")))
    place = a_run(tmp_path, with_unit(two, "first", channel="left"))
    streams.subscribed(place, "read", OFFICE)
    write(place, 0, "left")
    go_on(place, with_unit(two, "first", channel="right"))
    streams.subscribed(place, "read", OFFICE)
    write(place, 1, "right")
    for expected in ("r0", "r1"):
        (record,), number = streams.readable(place, "read", "office").read()
        assert record["record_id"] == expected
        streams.readable(place, "read", "office").done(number)
    streams.left(place, "read", "office")
    assert [(each.ended, each.standings) for each in streams.listed(place)] == [(False, ())]


def test_of_a_stream_on_a_broker_that_has_ended_the_topic_is_named_and_can_be_left(tmp_path: Path) -> None:
    place = a_run(tmp_path, stateless(channels=KAFKA))
    streams.subscribed(place, "read", OFFICE)
    go_on(place, merged(stateless(channels=KAFKA)))
    with pytest.raises(ConfigurationError, match=r"on Kafka: read topic \S*read at 10.0.0.1:9092 as group"):
        streams.readable(place, "read", "office")
    streams.left(place, "read", "office")
    assert streams.listed(place) == []


def test_one_subscribes_at_the_site_whose_run_keeps_the_records(tmp_path: Path) -> None:
    x, y = (a_run(tmp_path / site, apart(), places=PLACES, site=site) for site in ("x", "y"))
    assert (list(streams.streams(x)), list(streams.streams(y))) == ([], ["read"])
    with pytest.raises(ConfigurationError, match="not kept here: subscribe at site y"):
        streams.subscribed(x, "read", OFFICE)
    assert not (x.units.channels / "wan").exists()
    streams.subscribed(y, "read", OFFICE)
    assert streams.subscribers(y) == {"read": ("office",)}
    assert streams.other_sites(y, "read") == []


def test_files_are_kept_where_they_are_written_and_read(tmp_path: Path) -> None:
    both = with_unit(replace(apart(), channels=(Channel("files"),)), "second", sites=("x",))
    x, y = (
        a_run(tmp_path / site, both, places={"first": "x", "second": "x"}, site=site) for site in ("x", "y")
    )
    assert (list(streams.streams(x)), list(streams.streams(y))) == (["read"], [])


def test_of_a_stream_that_several_sites_read_each_has_to_know_who_subscribes(tmp_path: Path) -> None:
    topology = with_alerts(apart())
    topology = with_unit(topology, "third", sites=("x",))
    places = {**PLACES, "third": "x"}
    x, y = (a_run(tmp_path / site, topology, places=places, site=site) for site in ("x", "y"))
    assert (list(streams.streams(x)), list(streams.streams(y))) == (["read"], ["read"])
    assert (streams.other_sites(x, "read"), streams.other_sites(y, "read")) == (["y"], ["x"])
    whole = a_run(tmp_path, topology, places=places)
    assert streams.other_sites(whole, "read") == []
