"""Two clocks, one shape."""

from __future__ import annotations

import time

import pytest

from penstock.clock import StepsBack, TimesOfDay, VirtualClock, WallClock


def test_the_virtual_clock_jumps_forward_and_never_back() -> None:
    clock = VirtualClock(10.0)
    clock.wait_until(25.0)
    clock.wait_until(5.0)
    assert clock.now_s() == 25.0


def test_the_wall_clock_waits_until_the_instant_and_not_at_all_for_the_past() -> None:
    clock = WallClock()
    wanted_s = clock.now_s() + 0.02
    clock.wait_until(wanted_s)
    assert clock.now_s() >= wanted_s
    clock.wait_until(0.0)
    assert abs(clock.now_s() - time.time()) < 60.0


def test_setting_the_machines_clock_moves_the_wall_clock_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0.0 <= clock.now_s() - before_s < 60.0


def test_a_clock_that_is_set_back_is_noticed_once_and_one_that_is_set_forward_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told_s, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + told_s[0])
    steps = StepsBack()
    assert steps.since_last_s() == 0.0

    told_s[0] = 3600.0
    assert steps.since_last_s() == 0.0
    told_s[0] = 0.0
    assert steps.since_last_s() == pytest.approx(3600.0, abs=5.0)
    assert steps.since_last_s() == 0.0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform cannot tell")
def test_the_wall_clock_goes_on_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # it stands still in a suspend
    slept_s = 3600.0
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: real(which) + slept_s)
    assert slept_s <= clock.now_s() - before_s < slept_s + 60.0


class Machine:
    """A machine whose clock can be set, and a run's clock on it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counted_s, self.step_s = 1000.0, 0.0
        patch.setattr("penstock.clock.counted_s", lambda: self.counted_s)
        patch.setattr(time, "time", lambda: 1e9 + self.counted_s + self.step_s)
        self.clock = WallClock()
        self.times = TimesOfDay(self.clock)

    def later(self, by_s: float) -> float:
        """Let some time pass; the time of day then."""
        self.counted_s += by_s
        return time.time()


@pytest.mark.parametrize("step_s", [3600.0, 5.0, -5.0, -3600.0])
def test_times_of_day_before_and_after_a_step_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    machine = Machine(monkeypatch)
    before_s, then_s = machine.later(1.0), machine.clock.now_s()
    assert machine.times.at_s(before_s) == then_s

    machine.step_s = step_s
    after_s = machine.later(0.5)
    assert machine.times.at_s(after_s) == pytest.approx(machine.clock.now_s())
    assert machine.times.at_s(before_s) == pytest.approx(then_s)

    far_s, far_then_s = machine.later(20_000.0), machine.clock.now_s()
    machine.later(10.0)
    assert machine.times.at_s(far_s) == pytest.approx(far_then_s), "older than the step is long"


def test_a_clock_that_was_set_before_anybody_looked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.step_s = 3600.0
    told_s = machine.later(100.0)
    machine.later(1.0)
    times = TimesOfDay(WallClock(machine.clock.anchor_s))  # a process that comes up with the run's anchor
    assert times.at_s(told_s) == pytest.approx(machine.clock.now_s() - 1.0)
