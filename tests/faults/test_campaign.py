"""The short form of the campaign of faults: a few kinds on a real cluster, and the rules of drawing."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyspark
import pytest
from faults.campaign import drawn
from faults.ground import Ground
from faults.kinds import KINDS
from faults.outcomes import Outcome, Round
from faults.report import by_kind, figures, table, write_page
from faults.rounds import aside_of, load, save, set_aside, still_to_do
from faults.telling import EVERYTHING, host, told_of, unit

from faults import plain
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.controller.journal.journal import Journal
from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder

ROOT = Path(__file__).parents[2]
NOTHING = "nothing was told$"
SHORT = {
    "kill executor": ("kill -9 of an executor", r"\S+ of unit \S+ was lost \(", "executor anew"),
    "journal locked": ("the journal locked", f"the journal cannot be written|{NOTHING}", "nothing had to be"),
    "freeze controller short": ("SIGSTOP of the controller", NOTHING, "nothing had to be"),
    "second start": ("a second start on the same folder", r"refused with code [1-9]", "nothing had to be"),
    "torn status": (r"kill -9 .* status.json torn", "the controller came back", "controller anew"),
    "kill broker": ("kill -9 of the broker", "the broker at", "broker anew"),
}
"""Kinds with what was done, what was told of it and what healed it, each as it begins."""


def rows(page):
    """Every fault of a page, by its heads."""
    _, _, faults = page.read_text().partition("<h2>Every fault</h2>")
    head, *lines = faults.split("</tr>")
    heads = head.split("<th>")[1:]
    return [
        dict(zip(heads, map(html.unescape, re.findall("<td>(.*?)</td>", line)), strict=True))
        for line in lines[:-1]
    ]


def environment():
    """One in which the campaign is found."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def test_a_seed_draws_the_same_faults_again_and_each_kind_before_any_twice():
    names = [kind.name for kind in KINDS if "files" in kind.channels]

    first = drawn(200, 7, "files", ())
    assert first == drawn(200, 7, "files", ())
    assert first != drawn(200, 8, "files", ())
    assert sorted(first[: len(names)]) == sorted(names)
    assert set(drawn(10, 7, "files", ("kill driver",))) == {"kill driver"}


def test_a_skipped_fault_is_not_counted_and_a_lost_record_is_not_hidden():
    done = Outcome(1, "kill driver", "files", "", 0.0, processing_after_s=3.0)
    skipped = Outcome(2, "clock step", "files", "", 0.0, problem="skipped: no compiler")
    found = {f.name: f for f in figures([Round(1, "files", [done, skipped], lost=1)], Path("none"))}

    assert found["faults in the campaign"].here == 1
    assert found["faults in the campaign"].holds is False
    assert found["records lost"].holds is False
    assert Round(1, "files", [done, skipped]).clean
    assert not Round(1, "files", [done, skipped], lost=1).clean


def test_the_kinds_are_told_with_what_came_most_often_and_their_medians():
    told = [
        Outcome(n, "kill driver", "files", "", 0.0, after_s, after_s, f"first-{n} lost", 1.0, "first anew; a")
        for n, after_s in enumerate((3.0, 9.0, 5.0))
    ]
    (found,) = by_kind([*told, Outcome(4, "kill driver", "files", "", 0.0, problem="skipped: none")])

    assert (found.count, found.processing_after_s, found.noticed) == (3, 5.0, "first-# lost")
    assert "| kill driver | 3 | first-# lost | 1.0 | 5.0 | 5.0 | first anew | 7 s |" in table(
        told, {"kill driver": "7 s"}
    )


def test_what_is_told_of_others_is_not_taken_for_what_was_told_of_a_fault():
    news = [
        (1.0, "the feeder of source numbers died; it is started again and goes on"),
        (2.0, "unit first-extra went down (it ended); it is started again in 1 s"),
        (3.0, "first-7 of unit first was lost (2); another is asked for"),
        (4.0, "unit first went down (it ended); it is started again in 1 s"),
        (5.0, "unit first is down"),
        (6.0, "host host-1 failed: host host-1 died; last lines of its log:\nunit second"),
        (7.0, "second-8 was lost with host host-1; it is asked for on host-12"),
        (8.0, "the Spark master died or hung; it was started again"),
        (9.0, "the controller came back and adopted first, second"),
        (10.0, "the broker at 127.0.0.1:9092 takes no connections: it is started again"),
        (11.0, "the journal cannot be written, nothing is decided until it can: database is locked"),
        (12.0, "unit second: the clock was set back by 60 s; its query starts anew"),
        (13.0, "unit second: the disk is full: records wait in the source until there is room"),
        (14.0, "unit second went down (silent for 11 s); it is started again in 1 s"),
    ]

    def when(*about):
        return [at_s for at_s, _ in told_of(about, news)]

    assert when(unit("first")) == [4.0, 5.0]
    assert when(unit("second")) == [12.0, 13.0, 14.0]
    assert when(host("host-1")) == [6.0, 7.0]
    assert when("executor") == [3.0]
    assert when("feeder") == [1.0]
    assert when("master") == [8.0]
    assert when("controller") == [9.0]
    assert when("broker") == [10.0]
    assert when("journal", unit("first")) == [4.0, 5.0, 11.0]
    assert when("disk") == [11.0, 13.0]
    assert when("clock") == [12.0]
    assert when("heartbeats") == [14.0]
    assert when() == []
    assert when(*EVERYTHING) == [at_s for at_s, _ in news]


def test_what_is_told_at_one_time_is_heard_in_the_order_it_was_told_in(tmp_path):
    ground = Ground(tmp_path / "run", "files", "test-news")
    try:
        ground.folder.mkdir()
        journal = Journal(ground.place.journal)
        told = [(5.0, "host b failed: it died"), (5.0, "a-1 was lost with host b"), (9.0, "host b is back")]
        for at_s, text in told:
            journal.notice(at_s, text)
        assert ground.news_after(0, 0) == told
        assert ground.news_after(ground.newest("notice") - 1, 0) == told[2:]
    finally:
        ground.close()


def test_a_page_and_a_table_say_where_nothing_was_told(tmp_path):
    short = Outcome(1, "freeze master short", "files", "SIGSTOP", 3.0, 1.0, 2.0, healed="nothing")
    killed = Outcome(
        2, "kill master", "files", "kill -9", 0.0, 1.0, 2.0, "the master died", 0.5, "master anew"
    )
    skipped = Outcome(3, "clock step", "files", "", 0.0, problem="skipped: no compiler")
    once = replace(short, kind="kill master")
    write_page([Round(1, "files", [short, killed, skipped, once])], [], tmp_path / "page.html")

    found = rows(tmp_path / "page.html")
    assert [(row["kind"], row["noticed"], row["after, s"]) for row in found] == [
        ("freeze master short", "nothing was told", ""),
        ("kill master", "the master died", "0.5"),
        ("clock step", "", ""),
        ("kill master", "nothing was told", ""),
    ]
    assert [row["healed by"] for row in found] == ["nothing", "master anew", "", "nothing"]
    lines = table([short, killed, skipped, once], {})
    assert "| freeze master short | 1 | nothing was told |" in lines
    assert "| kill master | 2 | the master died (told 1 times of 2) | 0.5 |" in lines


def test_for_what_was_skipped_others_are_drawn_within_a_bound_and_by_the_seed():
    draw = partial(drawn, seed=7, channel="files", only=("kill driver", "kill master", "clock step"))
    names = draw(6)

    def tried(count, *skipped):
        outcomes = [Outcome(n, kind, "files", "", 0.0) for n, kind in enumerate(draw(count))]
        for n in skipped:
            outcomes[n].problem = "skipped: there was no master just then"
        return [Round(1, "files", outcomes)]

    assert still_to_do(draw, 6, tried(4)) == names[4:]
    assert still_to_do(draw, 6, tried(4, 1)) == draw(7)[4:]
    assert still_to_do(draw, 6, tried(6, 1, 2)) == draw(8)[6:]
    assert still_to_do(draw, 6, tried(8, 1, 2)) == []
    assert still_to_do(draw, 6, tried(12, *range(12))) == []


def test_a_measurement_of_plain_spark_that_fails_does_not_stop_the_campaign(tmp_path):
    for name in ("pyproject.toml", "constraints.txt", "stamp-1", "stamp-2", "build"):
        (tmp_path / name).touch()  # a file where plain Spark's figures would go
    bin_folder = Path(sys.executable).parent
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "faults", f"BIN={bin_folder}"]
    done = subprocess.run(
        [*command, "ARGS=--list", "TO_RUN=stamp-1", "STAMP=stamp-2"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )

    assert "NotADirectoryError" in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-len(KINDS) :] == [kind.name for kind in KINDS]


def test_what_was_not_measured_of_plain_spark_is_said_to_be(tmp_path):
    beside = plain.known(tmp_path)
    assert set(beside.values()) == {"not measured"}
    assert set(beside) < {kind.name for kind in KINDS}
    killed = Outcome(1, "kill driver", "files", "", 0.0, 3.0)
    assert table([killed], beside).splitlines()[-1].endswith("| not measured |")


def test_rounds_that_were_not_clean_are_kept_aside_and_their_faults_are_to_do_again(tmp_path):
    drawn_kinds = ["kill driver", "kill master", "kill driver", "second start"]
    clean = Round(1, "files", [Outcome(1, "kill driver", "files", "", 0.0)])
    lost = Round(2, "files", [Outcome(1, "kill master", "files", "", 0.0)], lost=1)
    state = tmp_path / "1-files.json"
    save([clean, lost], state)
    assert still_to_do(lambda n: drawn_kinds[:n], 4, load(state)) == ["kill driver", "second start"]

    kept = set_aside(load(state), state)
    assert kept == load(state) == set_aside(kept, state) == [clean]
    assert load(aside_of(state)) == [lost]
    assert still_to_do(lambda n: drawn_kinds[:n], 4, kept) == ["kill master", "kill driver", "second start"]


@pytest.fixture
def channel():
    """The channel between the units; where Kafka's jars cannot be fetched it is of files, as sources are."""
    try:
        broker_jars(cache_folder("jars"))
        connector_jars(cache_folder("jars"), pyspark.__version__)
    except ClusterError:
        return "files"
    return "kafka"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_campaign_loses_doubles_and_leaks_nothing(channel, tmp_path):
    kinds = [kind.name for kind in KINDS if kind.name in SHORT and channel in kind.channels]
    command = [sys.executable, "-m", "faults", "--channel", channel, "--count", str(len(kinds))]
    command += [part for kind in kinds for part in ("--only", kind)]
    done = subprocess.run(
        [*command, "--build", str(tmp_path)], cwd=ROOT, env=environment(), capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = {f["name"]: f for f in json.loads((tmp_path / "faults.json").read_text())}
    assert found["faults in the campaign"]["here"] == len(kinds)
    assert found["records in"]["here"] == found["records out"]["here"] > 0
    for name in ("records lost", "records doubled", "leases, hosts, processes and files leaked"):
        assert found[name]["here"] == 0
    found_rows = {row["kind"]: row for row in rows(tmp_path / "faults.html")}
    assert found_rows.keys() == set(kinds)
    for kind, row in found_rows.items():
        did, told, healed = SHORT[kind]
        assert re.match(did, row["what was done"]), row
        assert re.match(told, row["noticed"]), row
        assert re.search(healed, row["healed by"]), row
        assert float(row["processing after, s"]) > 0
        assert float(row["whole after, s"]) > 0
        assert row["problem"] == ""
