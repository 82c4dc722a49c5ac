"""`tune`: what it recommends is what kept with seeds it was not searched with, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from penstock.cli import tune
from penstock.cli.tune import CANDIDATES, Trial, candidates_for, checked, chosen_of, told
from penstock.topology.model import Choice
from tests.cli.test_commands import penstock

TOPOLOGY = """\
name: steady
sources:
  s: {workload: {name: constant, level_per_s: 40}}
operators:
  work: {inputs: s, slo: 2 s, service: 50 ms, cores: 1, memory: 1 GiB}
sites:
  cloud:
    btu: 10 min
    flavours:
      m: {cores: 2, memory: 8 GiB, price: 0.20 USD/h}
"""


def a_trial(name: str, cost: float, kept: float) -> Trial:
    return Trial(Choice(name), cost, kept, 0.0)


SEARCHED = [
    a_trial("a", 1.0, 0.9),
    a_trial("b", 2.0, 0.992),
    a_trial("c", 3.0, 0.995),
    a_trial("d", 4.0, 1.0),
]


def checks_where(kept: Mapping[str, float], keep: float = 0.99) -> list[Trial]:
    """What comes of a search where each candidate keeps so much with the other seeds."""
    return checked(SEARCHED, keep, lambda choice: a_trial(choice.name, 5.0, kept[choice.name]))


def test_the_cheapest_is_taken_where_it_holds() -> None:
    checks = checks_where({"b": 0.991})
    assert [trial.name for trial in checks] == ["b"]
    assert chosen_of(checks, 0.99).name == "b"
    assert told(checks, 0.99) == ["b kept 99.10% at cost 5 with seeds that were not searched with"]


def test_what_other_seeds_refute_is_not_recommended_but_the_next_cheapest() -> None:
    checks = checks_where({"b": 0.98, "c": 0.991})
    assert [trial.name for trial in checks] == ["b", "c"]
    assert chosen_of(checks, 0.99).name == "c"
    refuted, found = told(checks, 0.99)
    assert refuted.startswith("b kept 98.00%")
    assert found.startswith("c kept 99.10%")


def test_where_no_candidate_keeps_what_is_asked_it_is_said() -> None:
    refuted = checks_where({"b": 0.98, "c": 0.97, "d": 0.985})
    assert chosen_of(refuted, 0.99).name == "d"
    assert told(refuted, 0.99)[-1] == "no candidate keeps the 99.00% asked; this one is nearest"
    none = checked(SEARCHED[:1], 0.99, lambda choice: a_trial(choice.name, 1.0, 0.91))
    assert [trial.name for trial in none] == ["a"]
    assert "no candidate keeps the 99.00% asked" in told(none, 0.99)[-1]


def test_the_asked_share_is_among_what_auto_is_tried_with() -> None:
    assert Choice("auto", {"keep": 0.97}) in candidates_for(0.97)
    assert candidates_for(0.99) == CANDIDATES
    assert candidates_for(0.3) == CANDIDATES


def test_the_lines_to_paste_say_where_they_do_not_reach(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tune, "CANDIDATES", (Choice("fixed", {"instances": 4}),))
    file = tmp_path / "steady.yaml"
    file.write_text(TOPOLOGY)
    shown = penstock(
        "tune", file, "--keep", "40%", "--duration", "10 min", "--seeds", "1", "--jobs", "1", "--out", "here",
        folder=tmp_path,
    )  # fmt: skip
    pasted = shown[shown.index("\npolicy:") : shown.index("report:")]
    assert yaml.safe_load(pasted) == {"policy": {"name": "fixed", "instances": 4}}
    assert "a unit that names a policy of its own keeps that" in pasted
    assert "What was asked for" in (tmp_path / "here" / "report.html").read_text()
