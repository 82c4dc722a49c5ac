"""A campaign: rounds on a fresh run each, faults one after the other, and what must hold after each."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

from faults.ground import BTU_S, PRICE, UNITS, Ground, make_clock
from faults.kinds import KINDS, NARROW, WIDE, Kind, NotNowError
from faults.outcomes import NOTHING_TOLD, Outcome, Round
from faults.rounds import state_of_the_code
from faults.telling import told_of
from penstock.machine.processes import wait_until

START_S = 480.0
HEAL_S = 480.0
"""A fault that is not healed after so long has failed, and its round ends: many times what it takes on a busy
machine, so that what is slow is not taken for what hangs."""
DRAIN_S = 240.0
"""At the end nothing comes out any more where nothing came for so long."""
SETTLE_S = 1.0
"""The run is whole for so long before the next fault."""
EDGE_S = 3.0
"""How far the provider's records and the ledger may be apart: a tick, a look at the file, and its write."""


def drawn(count: int, seed: int, channel: str, only: Sequence[str]) -> list[str]:
    """The kinds of a campaign on a channel: each as often as the others, in an order that the seed draws."""
    rng = random.Random(f"{seed}-{channel}")
    names = [k.name for k in KINDS if channel in k.channels and (not only or k.name in only)]
    found: list[str] = []
    while names and len(found) < count:
        found += rng.sample(names, len(names))
    return found[:count]


class Surroundings:
    """What this machine allows: small disks, a faked clock, a network of its own, narrow or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing: dict[str, str] = {}
        self.clock = make_clock(folder)
        if isinstance(self.clock, str):
            self.missing["clock"] = self.clock
        lonely = _no_network_of_its_own()
        for what, problem in (
            ("mount", _no_mount(folder)),
            ("cut", lonely),
            ("delay", lonely or _no_queue()),
        ):
            if problem is not None:
                self.missing[what] = problem

    def disk(self, place: Path, mib: int) -> None:
        """Mount a small disk at a place, where that is allowed."""
        place.mkdir(parents=True, exist_ok=True)
        if "mount" not in self.missing:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", str(place)], check=True
            )

    def undisk(self, place: Path) -> None:
        """Take it away."""
        if "mount" not in self.missing:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _no_mount(folder: Path) -> str | None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting a small disk needs the superuser"
    place = folder / "probe"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode != 0:
        return f"a small disk cannot be mounted: {done.stderr.strip()}"
    subprocess.run(["umount", str(place)], check=True)
    return None


def _no_network_of_its_own() -> str | None:
    if os.environ.get("FAULTS_NETWORK") != "own":
        return "cutting connections needs a network of its own (superuser, `unshare`, `ip`)"
    return None


def _no_queue() -> str | None:
    if shutil.which(NARROW[0]) is None:
        return "delaying connections needs `tc`"
    done = subprocess.run(NARROW, capture_output=True, text=True)
    if done.returncode != 0:
        return f"connections cannot be delayed: {done.stderr.strip()}"
    subprocess.run(WIDE, check=True)
    return None


def run_round(
    number: int,
    channel: str,
    kinds: Sequence[str],
    seed: int,
    around: Surroundings,
    say: Callable[[str], None],
    until_s: float = math.inf,
) -> Round:
    """One run with these faults, one after the other, and all checks at its end.

    No fault begins after `until_s` of the monotonic clock: the rest is left to the next round.
    """
    found = Round(number, channel, code=state_of_the_code())
    began_s = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix=f"penstock-faults-{number}-", dir=around.folder))
    folder = root / "run"
    around.disk(folder, 600)
    checkpoint = folder / "units" / "first" / "checkpoint"
    around.disk(checkpoint, 16)
    clock = around.clock if not isinstance(around.clock, str) else None
    ground = Ground(folder, channel, f"faults-{os.getpid()}-{number}", clock)
    rng = random.Random(seed * 1000 + number)
    by_name = {kind.name: kind for kind in KINDS}
    try:
        ground.start()
        if not whole_within(ground, START_S):
            found.problems.append(f"the run did not start: {ground.what_is_wrong()}")
            return found
        say(f"round {number} on {channel}: running after {time.monotonic() - began_s:.0f} s")
        for name in kinds:
            if time.monotonic() > until_s:
                break
            outcome = _one_fault(len(found.outcomes) + 1, by_name[name], ground, rng, around)
            found.outcomes.append(outcome)
            say(_line(outcome))
            if outcome.problem is not None and not outcome.skipped:
                break
        _end(ground, found)
    except Exception as error:
        found.problems.append(f"{type(error).__name__}: {error}")
    finally:
        found.took_s = time.monotonic() - began_s
        if not found.clean:
            _keep(ground, number)
        ground.close()
        around.undisk(checkpoint)
        around.undisk(folder)
        shutil.rmtree(root, ignore_errors=True)
    return found


def _line(outcome: Outcome) -> str:
    told = [f"{outcome.number:3d} {outcome.kind}: {outcome.text}"]
    if outcome.processing_after_s is not None:
        told.append(f"processing after {outcome.processing_after_s:.1f} s")
    if outcome.whole_after_s is not None:
        told.append(f"whole after {outcome.whole_after_s:.1f} s")
    if outcome.noticed:
        told.append(f"noticed after {outcome.noticed_after_s:.1f} s: {outcome.noticed[:90]}")
    elif not outcome.skipped:
        told.append(NOTHING_TOLD)
    if outcome.problem:
        told.append(f"PROBLEM {outcome.problem}")
    return "; ".join(told)


def whole_within(ground: Ground, limit_s: float) -> bool:
    """Whether the run became whole and stayed so for a moment."""
    since_s: list[float] = []

    def settled() -> bool:
        ground.results.look()
        if ground.what_is_wrong() is not None:
            since_s.clear()
            return ground.watcher is not None and ground.watcher.poll() is not None
        since_s.append(time.monotonic())
        return since_s[-1] - since_s[0] >= SETTLE_S

    return wait_until(settled, limit_s, poll_s=0.25) and ground.what_is_wrong() is None


def _one_fault(number: int, kind: Kind, ground: Ground, rng: random.Random, around: Surroundings) -> Outcome:
    outcome = Outcome(number, kind.name, ground.channel, "", 0.0)
    if kind.needs in around.missing:
        outcome.problem = f"skipped: {around.missing[kind.needs]}"
        return outcome
    notice, life, before = ground.newest("notice"), ground.newest("life"), _processes(ground)
    began_s, at_s = time.monotonic(), time.time()
    ground.results.look()
    already = max(ground.fed(), ground.results.greatest)
    try:
        injected = kind.do(ground, rng)
    except NotNowError as error:
        outcome.problem = f"skipped: there was no {error} just then"
        return outcome
    outcome.text = injected.text
    undone_s: float | None = None if injected.undo else time.monotonic()
    whole_s: float | None = None
    deadline_s = began_s + HEAL_S + injected.hold_s
    while True:
        now_s = time.monotonic()
        ground.results.look()
        if outcome.processing_after_s is None and ground.results.greatest > already + 2:
            outcome.processing_after_s = now_s - began_s
        wrong = ground.what_is_wrong()
        over = outcome.processing_after_s is not None and wrong is None and now_s - began_s > 2.0
        if injected.refused is not None and not outcome.noticed:
            if (code := injected.refused.poll()) is not None:
                outcome.noticed, outcome.noticed_after_s = f"refused with code {code}", now_s - began_s
            over = over and code is not None
        healed = over and injected.until is not None and injected.until()
        if undone_s is None and (now_s - began_s >= injected.hold_s or healed):
            assert injected.undo is not None
            if healed:
                outcome.whole_after_s = now_s - began_s
            injected.undo()
            undone_s = time.monotonic()
            outcome.held_s = undone_s - began_s
        elif over and undone_s is not None:
            whole_s = whole_s or now_s
            if now_s - whole_s >= SETTLE_S:
                if outcome.whole_after_s is None:
                    outcome.whole_after_s = whole_s - began_s
                break
        else:
            whole_s = None
        if now_s > deadline_s or (ground.watcher is not None and ground.watcher.poll() is not None):
            outcome.problem = f"not healed after {now_s - began_s:.0f} s: {wrong or 'nothing came out'}"
            if undone_s is None and injected.undo is not None:
                injected.undo()
            break
        time.sleep(0.2)
    if injected.refused is not None and injected.refused.poll() in (None, 0):
        outcome.problem = f"the second start was not refused: {injected.refused.poll()}"
        if injected.refused.poll() is None:
            injected.refused.kill()
    news = told_of(injected.about, ground.news_after(notice, life))
    if news:
        outcome.noticed = news[0][1].splitlines()[0][:160]
        outcome.noticed_after_s = max(0.0, news[0][0] - at_s)
    anew = [role for role, pids in _processes(ground).items() if pids - before.get(role, set())]
    by = [f"{role} anew" for role in anew] or ["nothing had to be started anew"]
    outcome.healed = "; ".join([*by, *(text.splitlines()[0][:100] for _, text in news[1:3])])
    return outcome


def _processes(ground: Ground) -> dict[str, set[int]]:
    """The processes of the run by what they are: what is another one afterwards was started anew."""
    found = {role: {pid} for role, pid in ground.roles().items()}
    return {**found, "executor": set(ground.executors())}


def _end(ground: Ground, found: Round) -> None:
    """Stop the run, start it once more to bring out what waited, stop it again; then count everything."""
    if ground.watcher is not None and ground.watcher.poll() is None:
        code = ground.stop()
        if code != 0:
            found.problems.append(f"the run ended with code {code}: {ground.log.read_text()[-400:]}")
    if left := ground.left():
        found.leaked += [f"process {p.pid} after the run's end" for p in left]
    fed = ground.fed_in_all()
    if fed is None:
        found.problems.append("the feeder did not say how much it wrote")
        return
    found.records_in = fed

    def ended() -> bool:
        return ground.watcher is not None and ground.watcher.poll() is not None

    def all_out() -> bool:
        ground.results.look()
        return len(ground.results.seen) >= fed or ended()

    def goes_on(before: int) -> bool:
        return all_out() or len(ground.results.seen) > before

    ground.start(feed=False)
    # Where all is out already it would be told to stop before it could listen.
    wait_until(lambda: all(map(ground.pid, UNITS)) or ended(), START_S, poll_s=0.3)
    before = -1
    while before < len(ground.results.seen) < fed:
        before = len(ground.results.seen)
        wait_until(functools.partial(goes_on, before), DRAIN_S, poll_s=0.3)
    cleaned = wait_until(lambda: _unread(ground) < 30, 15.0, poll_s=0.5)
    code = ground.stop()
    ground.results.look()
    if code != 0:
        found.problems.append(f"the drained run ended with code {code}: {ground.log.read_text()[-400:]}")
    found.records_out = len(ground.results.seen)
    found.lost = sum(number not in ground.results.seen for number in range(fed))
    found.doubled = ground.results.doubled
    if len(ground.results.seen) > fed - found.lost:
        found.problems.append("there are records that nobody wrote")
    if not cleaned:
        found.leaked.append(f"{_unread(ground)} files of read records: no cleaner runs")
    wait_until(lambda: not ground.left(), 10.0)
    found.leaked += [f"process {p.pid} after the drained run's end" for p in ground.left()]
    found.leaked += [f"lease of {host} is open after the end" for host in sorted(ground.open_leases())]
    found.leaked += [f"host {host} is there after the end" for host in ground.provider_hosts()]
    _compare_bills(ground, found)


def _unread(ground: Ground) -> int:
    folders = [ground.folder / "sources", ground.folder / "channels"]
    return sum(len(files) for folder in folders for _, _, files in os.walk(folder))


def _compare_bills(ground: Ground, found: Round) -> None:
    """What was paid beside what the provider's own records come to, host by host, and the sum of it."""
    rows = ground.rows("SELECT host, units FROM lease")
    charged = sum((Decimal(str(row[0])) for row in ground.rows("SELECT amount FROM charge")), Decimal(0))
    leased = {str(host): int(str(units)) for host, units in rows}
    per_unit = ground.rows("SELECT price_per_btu FROM lease LIMIT 1")
    price = Decimal(str(per_unit[0][0])) if per_unit else PRICE
    units = [0, 0, 0]
    """Paid, and by the provider's records at least and at most."""
    for host, given in ground.hosts.items():
        until_s = given.gone_s or time.time()
        least = _units((given.ending_s or until_s) - given.given_s - EDGE_S)
        most = _units(until_s - given.given_s + EDGE_S)
        paid = leased.pop(host, None)
        if paid is None:
            found.leaked.append(f"host {host} was given and never leased")
        elif not least <= paid <= most:
            found.problems.append(
                f"host {host}: {paid} units paid, the provider's records say {least} to {most}"
            )
        units = [total + more for total, more in zip(units, (paid or 0, least, most), strict=True)]
    found.leaked += [
        f"lease of {host}, which the provider never gave" for host, paid in leased.items() if paid
    ]
    found.bill, found.bill_by_provider = str(charged), f"{units[1] * price} to {units[2] * price}"
    if charged != units[0] * price:
        found.problems.append(f"the bill is {charged}, its leases come to {units[0] * price}")


def _units(span_s: float) -> int:
    return max(1, math.ceil(span_s / BTU_S))


def _keep(ground: Ground, number: int) -> None:
    """Keep logs and small files of a round that went wrong."""
    target = Path("build") / "faults" / f"round-{ground.channel}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for pattern in (
        "*.log",
        "*.json",
        "journal.sqlite*",
        "units/*/driver.log",
        "cluster/logs/*",
        "cluster/*.json",
    ):
        for file in ground.folder.glob(pattern):
            with contextlib.suppress(OSError):
                shutil.copy(file, target / "-".join(file.relative_to(ground.folder).parts))
    for unit in UNITS:
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(ground.folder / "units" / unit / "checkpoint", target / f"checkpoint-{unit}")
    with contextlib.suppress(OSError):
        shutil.copy(ground.log, target / "watcher.log")
