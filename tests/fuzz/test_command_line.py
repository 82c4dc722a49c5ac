"""Whatever is typed, the command ends with words and an exit code within seconds, never with a traceback."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.test_commands import SMALLEST, penstock
from tests.fuzz.limits import tried, within

FILE = str(SMALLEST)
BAD: tuple[tuple[tuple[str, ...], str], ...] = (
    (("simulate", FILE, "--policy", "threshold:up_queue=["), "cannot read"),
    (("simulate", FILE, "--policy", "threshold:up_queue"), "name:parameter=value"),
    (("simulate", FILE, "--policy", "threshold:=3"), "name:parameter=value"),
    (("simulate", FILE, "--policy", ""), 'unknown policy ""'),
    (("simulate", FILE, "--policy", "fixed:instances=-3"), "1 or more, got -3"),
    (
        ("simulate", FILE, "--policy", "threshold:up_queue=many,down_queue=few"),
        "down_queue: expected a whole",
    ),
    (("simulate", FILE, "--policy", "threshold:up_queue=1e999"), "expected a whole number"),
    (("simulate", FILE, "--policy", "threshold:up_queue=2020-13-45"), "cannot read"),
    (("simulate", FILE, "--policy", "threshold:up_queue=!!bool x"), "cannot read '!!bool x'"),
    (("simulate", FILE, "--policy", 'threshold:up_queue=!!int ""'), "cannot read"),
    (("simulate", FILE, "--policy", 'threshold:up_queue=!!float ""'), "cannot read"),
    (("simulate", FILE, "--policy", "threshold:up_queue=!!timestamp x"), "cannot read"),
    (("simulate", FILE, "--policy", f"threshold:up_queue=0x{'f' * 5000}"), "cannot read"),
    (("simulate", FILE, "--policy", f"threshold:up_queue=0x{'f' * 900}"), "a number of many digits"),
    (("simulate", FILE, "--policy", "x:y=[&a [1],*a,*a]"), "unknown policy"),
    (("simulate", FILE, "--filter", "gaussian:t=nan"), "expected a number"),
    (("simulate", FILE, "--filter", "gaussian:t=-1"), "above 0"),
    (("simulate", FILE, "--filter", "kalman:calibration=/no/such"), "/no/such"),
    (("simulate", FILE, "--seed", "-1"), "--seed'"),
    (("simulate", FILE, "--seed", "x"), "--seed'"),
    (("simulate", FILE, "--duration", "-5 s"), "--duration: expected a duration above 0"),
    (("simulate", FILE, "--duration", "0"), "--duration: expected a duration above 0"),
    (("simulate", FILE, "--duration", "1e300 s"), "too big"),
    (("simulate", FILE, "--duration", "1e10 s"), "intervals"),
    (("simulate", FILE, "--duration", ""), "expected a duration"),
    (("simulate", FILE, "--btu", "-1 h"), "--btu: expected a duration above 0"),
    (("simulate", FILE, "--btu", "0 s"), "--btu: expected a duration above 0"),
    (("simulate", FILE, "--workload", "constant:level_per_s=1e12/s"), "records"),
    (("simulate", FILE, "--workload", "constant:level_per_s=-1"), "0 or more"),
    (("simulate", FILE, "--workload", "constant:rate_scale=1e308"), "workload"),
    (("simulate", FILE, "--workload", "random_walk:steps=1000000000000"), "from 1 to"),
    (("simulate", FILE, "--workload", "pyramid:step_per_s=1e-9/s"), "too small"),
    (("simulate", FILE, "--workload", "trace:path=/no/such"), "cannot read the trace"),
    (("simulate", FILE, "--workload", "trace"), "path"),
    (("simulate", FILE, "--out", "a\x00b"), "--out': Value error"),
    (("simulate", FILE, "--out", "x" * 400), "cannot make the folder"),
    (("simulate", FILE, "--warm-start", "/no/such"), "/no/such"),
    (("simulate", "a\x00b"), "file': Value error"),
    (("simulate", "."), "cannot be read"),
    (("simulate", "/dev/zero"), "larger than"),
    (("compare", FILE, "--policies", ""), "separated by commas"),
    (("compare", FILE, "--policies", "rate,,x"), 'unknown policy "x"'),
    (("compare", FILE, "--filters", ","), "separated by commas"),
    (("compare", FILE, "--btus", "x"), "--btus"),
    (("compare", FILE, "--btus", "-5 s"), "--btus: expected a duration above 0"),
    (("compare", FILE, "--seeds", "100000"), "runs"),
    (("compare", FILE, "--seeds", "-1"), "at least one seed"),
    (("compare", FILE, "--duration", "-5 s"), "--duration"),
    (("compare", FILE, "--jobs", "-1"), "--jobs'"),
    (("compare", FILE, "--keep", "-5"), "--keep: expected a share between 0 and 100 %"),
    (("compare", FILE, "--keep", "1e9"), "--keep: expected a share between 0 and 100 %"),
    (("compare", FILE, "--keep", "nan"), "--keep: expected a share between 0 and 100 %"),
    (("tune", FILE, "--keep", "101%"), "--keep: expected a share between 0 and 100 %"),
    (("tune", FILE, "--keep", "x"), "--keep: expected a share between 0 and 100 %"),
    (("tune", FILE, "--duration", "-5 s"), "--duration: expected a duration above 0"),
    (("tune", FILE, "--duration", "nan"), "--duration: expected a duration"),
    (("tune", FILE, "--duration", "1e10 s"), "intervals"),
    (("tune", FILE, "--seeds", "0"), "from 1 to 200 seeds"),
    (("tune", FILE, "--seeds", "100000"), "from 1 to 200 seeds"),
    (("tune", FILE, "--jobs", "-1"), "--jobs'"),
    (("tune", FILE, "--jobs", "100000"), "--jobs'"),
    (("tune", "no/such"), "no/such"),
    (("benchmark", FILE, "--to", "8/s", "--step", "4/s", "--hold", "1e10 s"), "intervals"),
    (("benchmark", FILE, "--to", "1e9/s", "--step", "1e8/s"), "records"),
    (("benchmark", FILE, "--to", "8/s", "--step", "1e-300/s"), "at most 200 steps"),
    (("benchmark", FILE, "--to", "8/s", "--step", "-1/s"), "loads above 0 that rise"),
    (("benchmark", FILE, "--to", "8/s", "--step", "4/s", "--hold", "-5 s"), "--hold: expected a duration"),
    (("study", "day", FILE, "--steps", "100000000"), "--steps'"),
    (("study", "day", FILE, "--length", "-5 s"), "--length: expected a duration above 0"),
    (("budget", FILE, "--bound", "-5 s"), "--bound"),
    (("budget", FILE, "--bound", "1e-9 s"), "no distribution"),
    (("budget", FILE, "--bound", "1e10 s", "--step", "1e-9 s"), "steps"),
    (("budget", FILE, "--bound", "2 s", "--step", "0"), "--step"),
    (("budget", FILE, "--bound", "2 s", "--rate", "-5/s"), "--rate"),
    (("budget", FILE, "--bound", "2 s", "--rate", "1e12/s"), "instances"),
    (("budget", FILE, "--bound", "2 s", "--solver", "x"), "expected a solver"),
    (("budget", FILE), "no latency bound"),
    (("workloads", "sine", "--span", "-5 s"), "--span"),
    (("workloads", "sine", "--set", "period_s=["), "cannot read"),
    (("workloads", "sine", "--set", "=3"), "parameter=value"),
    (("workloads", "sine", "--set", "period_s=1e308 d"), "too big"),
    (("workloads", "\x00"), "unknown workload"),
    (("check", "/no/such"), "cannot be read"),
    (("show", "/dev/null"), "empty"),
    (("nothing",), "No such command"),
    (("simulate",), "Missing argument"),
    (("simulate", FILE, "--no-such"), "No such option"),
)


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=lambda value: None)
def test_a_bad_command_is_refused_with_words(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    usage = (
        "No such",
        "Missing",
        "--seed'",
        "--jobs'",
        "--steps'",
        "--out'",
        "file'",
    )  # refused by the parser itself
    code = 2 if said.startswith(usage) else 1
    with within(20.0):
        shown = penstock(*arguments, folder=tmp_path, expect=code)
    assert said in re.sub(r"\s+", " ", shown)


VALUES = (
    "", " ", "-1", "0", "1", "1e3", "-5 s", "10 s", "1 min", "1e300 s", "1e-9 s", "nan", "inf", "x", "[",
    "]", "{}",
    "a=b", "standard=-1", "standard=1", "large=8x16GiB@1", "large=infx1GiB@nan", "count=0 s",
    "a:b=c", ":", "=", ",", ",,,", "threshold", "rate:target_ratio=2", "btu:observations=0",
    "fixed:instances=1",
    "kalman", "gaussian:window_s=0", "none", "constant:level_per_s=1", "sine:mean_per_s=0",
    "stepwise:levels_per_s=[1,2]",
    "threshold:up_queue=!!int x", "fixed:instances=!!bool x", "x=!!timestamp x",
    "../../etc", "/", "\x07", "🐢", "--", "-v", "'", '"', "a" * 300,
)  # fmt: skip
OPTIONS = {
    "simulate": ("--policy", "--filter", "--workload", "--btu", "--seed", "--duration"),
    "budget": ("--bound", "--step", "--rate", "--solver"),
    "workloads": ("--set", "--span"),
}


@pytest.mark.parametrize("seed", range(tried(3, 20)))
def test_odd_options_end_in_words_or_a_result(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    for number in range(6):
        command = random_.choice(tuple(OPTIONS))
        words = [command, "sine" if command == "workloads" else FILE]
        for option in random_.sample(OPTIONS[command], random_.randint(1, 2)):
            words += [option, random_.choice(VALUES)]
        if command == "simulate":
            words += ["--out", f"out-{number}", *([] if "--duration" in words else ["--duration", "2 min"])]
        with within(30.0):
            penstock(*words, folder=tmp_path, expect=(0, 1, 2))


REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (
        ("--duration", "--filter", "--warm-start", "--conf", "--site", "--port", "--code"),
        ("--policy", "no such"),
    ),
    "metrics": (("--serve",), ("--serve", "x")),
    "apply": (("--reason", "--revision"), ()),
    "serve": (("--host", "--port", "--peer"), ()),
    "attach": (("--slo", "--policy", "--max", "--min", "--interval", "--metrics"), ()),
}
"""Commands that go on for long or start something: their options, and last what none of them takes.

Where nothing is last, the file or folder they get is none they can take."""
SHORT = ("--jobs", "1", "--policies", "fixed")
JUDGED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "compare": (
        ("--filters", "--btus", "--duration", "--workload", "--keep", "--jobs"),
        (*SHORT, "--seeds", "1", "--duration", "1 min"),
    ),
    "replay": (
        (
            "--policies",
            "--btu",
            "--minimum",
            "--increment",
            "--prices",
            "--flavours",
            "--spot",
            "--taken",
            "--free",
            "--slo",
        ),
        SHORT,
    ),
}
"""Commands that simulate: their options, and before them what makes it short."""
ASKED = {
    "explain": ("--at", "--unit", "--last"),
    "bill": ("--by", "--format", "--topology", "--record"),
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    penstock("simulate", FILE, "--duration", "2 min", "--out", folder / "run", folder=folder)
    return folder / "run"


def odd(random_: random.Random, options: Sequence[str]) -> list[str]:
    """Some of these options with odd values."""
    chosen = random_.sample(options, random_.randint(1, min(3, len(options))))
    return [word for option in chosen for word in (option, random_.choice(VALUES))]


@pytest.mark.parametrize("command", REFUSED)
@pytest.mark.parametrize("seed", range(tried(2, 10)))
def test_odd_options_start_nothing_that_is_refused(
    command: str, seed: int, journal: Path, tmp_path: Path
) -> None:
    random_ = random.Random(f"{command}-{seed}")
    for name, text in (("torn.yaml", "units: ["), ("empty", ""), ("runs", "")):
        (tmp_path / name).write_text(text)
    options, never = REFUSED[command]
    good = FILE if command == "run" else str(journal)
    for _ in range(4):
        # What is attached to is run as Python runs it, whose own error has a traceback.
        files = () if command == "attach" else ("torn.yaml", "empty")
        wrong = random_.choice(("empty/no-such", "a\x00b", *files))
        words = [command, *odd(random_, options), *never, good if never and random_.random() < 0.7 else wrong]
        with within(30.0):
            penstock(*words, *([FILE] if command == "apply" else []), folder=tmp_path, expect=(1, 2))
    assert {path.name for path in tmp_path.iterdir()} == {"torn.yaml", "empty", "runs"}


@pytest.mark.parametrize("command", JUDGED)
@pytest.mark.parametrize("seed", range(tried(2, 20)))
def test_odd_options_of_what_simulates_end_in_words_or_a_result(
    command: str, seed: int, journal: Path, tmp_path: Path
) -> None:
    random_ = random.Random(f"{command}-{seed}")
    options, short = JUDGED[command]
    good = FILE if command == "compare" else str(journal)
    for _ in range(4):
        with within(60.0):
            penstock(command, good, *short, *odd(random_, options), folder=tmp_path, expect=(0, 1, 2))


BAD_OF_A_RUN: tuple[tuple[tuple[str, ...], str], ...] = (
    (("replay", "--btu", "0 s"), "--btu: expected a duration above 0"),
    (("replay", "--btu", ""), "--btu: expected a duration"),
    (("replay", "--minimum", "-5 s"), "--minimum: expected a duration above 0"),
    (("replay", "--increment", "0 s"), "--increment: expected a duration above 0"),
    (("replay", "--free", "-5 h"), "--free: expected a duration above 0"),
    (("replay", "--slo", "-5 s"), "--slo: expected a duration above 0"),
    (("replay", "--slo", "nan"), "--slo: expected a duration"),
    (("replay", "--slo", "count=0 s"), "--slo: expected a duration above 0"),
    (("replay", "--slo", "count=1 s,2 s"), "expected one SLO"),
    (("replay", "--flavours", "large=8x16GiB@NaN"), "expected a flavour"),
    (("replay", "--flavours", "large=8x16GiB@sNaN"), "expected a flavour"),
    (("replay", "--flavours", "large=8x16GiB@1e999999"), "expected a flavour"),
    (("replay", "--flavours", "large=8x16GiB@-1"), "price: expected 0 or more"),
    (("replay", "--flavours", "large=-8x16GiB@1"), "cores: expected more than 0"),
    (("replay", "--flavours", "large=nanx16GiB@1"), "expected a flavour"),
    (("replay", "--flavours", "large=infx16GiB@1"), "expected a flavour"),
    (("replay", "--flavours", "large=1e300x16GiB@1"), "cores: expected at most"),
    (("replay", "--flavours", "large=8x-16GiB@1"), "memory: expected more than 0"),
    (("replay", "--flavours", "a=8x16GiB@1,a=8x16GiB@1"), "is there twice"),
    (("replay", "--prices", "standard=NaN"), "expected a price"),
    (("replay", "--prices", "standard=-inf"), "expected a price"),
    (("replay", "--prices", "standard=-1"), "price: expected 0 or more"),
    (("replay", "--spot", "nan"), "a share of the price above 0"),
    (("replay", "--spot", "-1"), "a share of the price above 0"),
    (("replay", "--spot", "0.5", "--taken", "-5 s"), "--taken: expected a duration above 0"),
    (("replay", "--jobs", "-1"), "--jobs'"),
    (("replay", "--jobs", "100000"), "--jobs'"),
    (("replay", "--policies", "fixed:instances=-3"), "1 or more, got -3"),
)


@pytest.mark.parametrize(("arguments", "said"), BAD_OF_A_RUN, ids=lambda value: None)
def test_what_is_asked_of_a_run_is_refused_with_words(
    arguments: tuple[str, ...], said: str, journal: Path, tmp_path: Path
) -> None:
    with within(20.0):
        code = 2 if said.startswith("--jobs'") else 1
        shown = penstock(*arguments, journal, folder=tmp_path, expect=code)
    assert said in re.sub(r"\s+", " ", shown)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(tried(2, 20)))
def test_odd_questions_about_a_run_end_in_words_or_an_answer(
    seed: int, journal: Path, tmp_path: Path
) -> None:
    random_ = random.Random(seed)
    for _ in range(6):
        command = random_.choice(tuple(ASKED))
        target = random_.choice((str(journal), str(journal), "no-such"))
        with within(30.0):
            penstock(command, *odd(random_, ASKED[command]), target, folder=tmp_path, expect=(0, 1, 2))
