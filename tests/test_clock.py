"""Two clocks, one shape."""

from __future__ import annotations

import time

import pytest

from penstock.clock import StepsBack, VirtualClock, WallClock


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
