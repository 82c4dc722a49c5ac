"""The short form of `make clouds`' large fleet: a slow, failing API, and the books are right at the end."""

from __future__ import annotations

from benchmarks.slow_cloud import lease_many

from penstock.providers.cloud_pauses import Pace


def test_a_slow_failing_api_holds_up_no_tick_and_bends_no_bill() -> None:
    pace = Pace(list_every_s=0.5, settle_s=1.0, shortest_pause_s=0.1, longest_pause_s=1.0, beat_s=0.05)
    found = lease_many(60, call_s=0.3, failing_ratio=0.05, pace=pace, units=3)
    assert (found.leaked, found.doubled, found.open_leases) == (0, 0, 0)
    assert found.up_s < 60.0
    assert max(found.busy_s[1:]) < 0.1, "no call of the API is in a tick"
    assert abs(found.difference) < 0.005
