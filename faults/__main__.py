"""`python -m faults`: a campaign of faults; a page in build/faults.html, figures in build/faults.json.

A campaign is repeatable: the same seed draws the same faults in the same order. It goes round by round, each
on a fresh run, and `--continue` goes on with one of the same seed and count that was broken off. `--again`
does so too, and does the rounds anew that were not clean: for use after a repair, and told in the figures.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyspark

from faults import plain
from faults.campaign import Surroundings, drawn, run_round
from faults.kinds import KINDS
from faults.outcomes import Round
from faults.report import figures, table, write_page
from faults.rounds import aside_of, load, save, set_aside, still_to_do
from penstock.channels.kafka_jars import broker_jars, connector_jars
from penstock.machine.folders import cache_folder
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import print_figures, write_figures
from penstock.spark.training import ensure_archive

BUILD = Path("build")


def main() -> int:
    """Run the wanted rounds; the exit code is 1 where something was lost, doubled, leaked or not healed."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="faults in the whole campaign")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--channel", choices=("files", "kafka"), help="one channel; by default in turns")
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="may be given again")
    parser.add_argument("--round", type=int, default=45, metavar="N", help="faults in one round")
    parser.add_argument("--minutes", type=float, help="begin no fault after so long; see --continue")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="keep the rounds done before")
    parser.add_argument("--again", action="store_true", help="keep those that were clean, do the others anew")
    parser.add_argument("--list", action="store_true", help="show the kinds of faults")
    parser.add_argument("--build", type=Path, default=BUILD, help="where figures and page are written")
    given = parser.parse_args()
    if given.list:
        print("\n".join(kind.name for kind in KINDS))
        return 0
    unknown = sorted(set(given.only) - {kind.name for kind in KINDS})
    if unknown:
        parser.error(f"unknown kind {', '.join(unknown)}; known: {', '.join(kind.name for kind in KINDS)}")
    channels = [given.channel] if given.channel else ["files", "kafka"]
    if "kafka" in channels:
        # While the machine's network is still there; the campaign's own reaches no repository.
        connector_jars(cache_folder("jars"), pyspark.__version__)
        broker_jars(cache_folder("jars"))
    _own_network()
    share = -(-given.count // len(channels))
    states = {
        c: given.build / "faults" / f"{_named(given.seed, given.only)}-{c}.json" for c in ("files", "kafka")
    }
    rounds = {c: load(state) if given.go_on or given.again else [] for c, state in states.items()}
    if given.again:
        for channel, state in states.items():
            rounds[channel] = set_aside(rounds[channel], state)
    until_s = math.inf if given.minutes is None else time.monotonic() + 60 * given.minutes
    exit_on_sigterm()
    # Once, in the user's cache: each round has a cache of its own, which would be made ready anew.
    ensure_archive()
    with tempfile.TemporaryDirectory(prefix="penstock-faults-") as folder:
        around = Surroundings(Path(folder))
        for what, why in around.missing.items():
            _say(f"faults that need `{what}` are left out: {why}")
        while time.monotonic() < until_s:
            left = {
                c: still_to_do(partial(drawn, seed=given.seed, channel=c, only=given.only), share, rounds[c])
                for c in channels
            }
            channel = max(left, key=lambda c: len(left[c]))
            if not left[channel]:
                break
            found = run_round(
                1 + max((found.number for found in rounds[channel]), default=0),
                channel,
                left[channel][: given.round],
                given.seed,
                around,
                _say,
                until_s,
            )
            rounds[channel].append(found)
            save(rounds[channel], states[channel])
            _say(found.summary)
            if not found.outcomes:
                break
    every = [found for of_one in rounds.values() for found in of_one]
    aside = sum(len(load(aside_of(state))) for state in states.values()) if given.go_on or given.again else 0
    _report(every, aside, given.build)
    return 0 if every and all(found.clean for found in every) else 1


def _named(seed: int, only: Sequence[str]) -> str:
    """The name of a campaign: the same seed and kinds are the same campaign."""
    return "-".join([str(seed), *only]).replace(" ", "_")[:120]


def _say(text: str) -> None:
    print(text, flush=True)


def _report(rounds: Sequence[Round], aside: int, build: Path) -> None:
    found = figures(rounds, build, aside)
    write_figures(found, build / "faults.json")
    write_page(rounds, found, build / "faults.html")
    outcomes = [outcome for one in rounds for outcome in one.outcomes]
    (build / "faults" / "kinds.md").write_text(table(outcomes, plain.known(build)))
    print_figures(found, "faults")


def _own_network() -> None:
    """Go on in a network and among mounts of one's own, where that is allowed: nothing else is touched."""
    if os.environ.get("FAULTS_NETWORK") or sys.platform != "linux" or os.geteuid() != 0:
        return
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return
    inside = ["unshare", "--net", "--mount", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode == 0:
        os.environ["FAULTS_NETWORK"] = "own"
        os.execvp(inside[0], [*inside, sys.executable, "-m", "faults", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
