"""The watcher's own rules: which controller hangs, and which one had come up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from penstock.clock import WallClock, counted_s
from penstock.controller.status import Status
from penstock.runs.anchor import ANCHOR, FILE, clock_of
from penstock.runs.service import COMING_UP_S, Pulse
from penstock.trying import PAUSES


def a_status(at_s):
    return Status("run", at_s, (), (), "0")


def test_a_controller_that_ticks_does_not_hang_and_one_that_stopped_to_does():
    pulse = Pulse(a_status(0.0), 0.0, silence_s=20.0)
    for second in range(1, 100):
        assert not pulse.hangs(a_status(float(second)), float(second))

    assert not pulse.hangs(a_status(99.0), 109.0)
    assert not pulse.hangs(a_status(99.0), 119.0)
    assert pulse.hangs(a_status(99.0), 120.0)


def test_one_that_comes_up_may_take_longer_and_a_status_left_by_an_earlier_one_is_no_sign_of_life():
    pulse = Pulse(a_status(5.0), 0.0, silence_s=20.0)
    for second in range(0, int(COMING_UP_S), 5):
        assert not pulse.hangs(a_status(5.0), float(second))

    assert pulse.hangs(a_status(5.0), COMING_UP_S + 1)


def test_time_in_which_the_watcher_itself_was_frozen_is_no_silence():
    pulse = Pulse(None, 0.0, silence_s=20.0)
    pulse.hangs(a_status(1.0), 1.0)

    assert not pulse.hangs(a_status(1.0), 1000.0)
    assert not pulse.hangs(a_status(1.0), 1006.0)
    assert pulse.hangs(a_status(1.0), 1012.0)


def test_only_a_controller_that_ticked_for_a_while_had_come_up():
    pulse = Pulse(None, 0.0, silence_s=20.0)
    assert not pulse.lasted(PAUSES.held_s + 1)

    pulse.hangs(a_status(1.0), 1.0)
    assert not pulse.lasted(PAUSES.held_s - 1)
    assert pulse.lasted(PAUSES.held_s + 1)


def test_a_run_keeps_its_clock_through_a_step_of_the_machines_and_not_through_a_boot(tmp_path):
    first = clock_of(tmp_path)
    file = tmp_path / FILE
    kept = json.loads(file.read_text())
    # As after a step of an hour: a clock made now has another anchor, the run's stays.
    file.write_text(json.dumps({**kept, ANCHOR: kept[ANCHOR] - 3600.0}))

    assert clock_of(tmp_path).anchor_s == first.anchor_s - 3600.0
    assert abs(WallClock().now_s() - clock_of(tmp_path).now_s() - 3600.0) < 5.0

    file.write_text(json.dumps({**kept, "boot": "another", ANCHOR: 1.0}))
    assert abs(clock_of(tmp_path).now_s() - WallClock().now_s()) < 5.0

    file.write_text('{"boot": "')
    assert abs(clock_of(tmp_path).now_s() - WallClock().now_s()) < 5.0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="there is one clock alone")
def test_a_clock_of_before_suspends_were_counted_goes_on_from_where_it_stood(tmp_path, monkeypatch):
    first = clock_of(tmp_path)
    file = tmp_path / FILE
    boot = json.loads(file.read_text())["boot"]
    slept_s, step_s = 600.0, 3600.0
    monkeypatch.setattr(time, "monotonic", lambda: counted_s() - slept_s)
    # As the version before wrote it, an hour before the machine's clock was set.
    file.write_text(json.dumps({"boot": boot, "anchor_s": first.anchor_s + slept_s - step_s}))
    stood_s = first.now_s() - step_s

    for _ in range(2):
        assert stood_s <= clock_of(tmp_path).now_s() < stood_s + 5.0
    assert "anchor_s" not in json.loads(file.read_text()), "who does not count them must not go by it"


CONTROLLER = """
from penstock.machine.processes import wait_until
from penstock.runs.service import told_by_signals
told = told_by_signals()
print("ready", flush=True)
raise SystemExit(0 if wait_until(lambda: bool(told), 30.0, poll_s=0.05) else 1)
"""
COMMAND = """
from penstock.machine.processes import interrupt_on_signals, wait_until
interrupt_on_signals()
try:
    print("ready", flush=True)
    wait_until(lambda: False, 30.0, poll_s=0.05)
except KeyboardInterrupt:
    raise SystemExit(0)
raise SystemExit(1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", [CONTROLLER, COMMAND], ids=["controller", "penstock run"])
def test_what_is_started_with_sigint_ignored_still_ends_when_it_is_told(program: str, number: int) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a shell does for what it starts with &
    try:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(30) == 0
