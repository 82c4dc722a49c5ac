"""The short form of the campaign of faults: a few kinds on a real cluster, and the rules of drawing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults.campaign import drawn
from faults.kinds import KINDS
from faults.outcomes import Outcome, Round
from faults.report import by_kind, figures, table
from faults.rounds import aside_of, load, save, set_aside, still_to_do

ROOT = Path(__file__).parents[2]
SHORT = ("kill executor", "journal locked", "freeze controller short")


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


def test_rounds_that_were_not_clean_are_kept_aside_and_their_faults_are_to_do_again(tmp_path):
    drawn_kinds = ["kill driver", "kill master", "kill driver", "second start"]
    clean = Round(1, "files", [Outcome(1, "kill driver", "files", "", 0.0)])
    lost = Round(2, "files", [Outcome(1, "kill master", "files", "", 0.0)], lost=1)
    state = tmp_path / "1-files.json"
    save([clean, lost], state)
    assert still_to_do(drawn_kinds, load(state)) == ["kill driver", "second start"]

    kept = set_aside(load(state), state)
    assert kept == load(state) == set_aside(kept, state) == [clean]
    assert load(aside_of(state)) == [lost]
    assert still_to_do(drawn_kinds, kept) == ["kill master", "kill driver", "second start"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_a_short_campaign_loses_doubles_and_leaks_nothing(tmp_path):
    command = [sys.executable, "-m", "faults", "--channel", "files", "--count", str(len(SHORT))]
    command += [part for kind in SHORT for part in ("--only", kind)]
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [*command, "--build", str(tmp_path)], cwd=ROOT, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = {f["name"]: f for f in json.loads((tmp_path / "faults.json").read_text())}
    assert found["faults in the campaign"]["here"] == len(SHORT)
    assert found["records in"]["here"] == found["records out"]["here"] > 0
    for name in ("records lost", "records doubled", "leases, hosts, processes and files leaked"):
        assert found[name]["here"] == 0
    assert (tmp_path / "faults.html").exists()
