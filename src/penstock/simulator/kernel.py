"""The compiled heart of the simulator: one queue, many slots, one interval, record by record.

Records are served first in, first out by whichever slot is free first. A record that a slot has begun is
held by the slot until it is finished, so that a crash can put it back; nothing is ever lost or doubled.
Cost is linear in records (times the logarithm of the number of slots).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

BINS = 1200
"""Bins of the duration histograms: 0.1 ms to about 16 000 s, each 1.6 % wider than the last."""
LEAST_S = 1e-4
BINS_PER_E = 63.0
"""Bins for each factor of e; a bin's middle is within 0.8 % of every value in it."""


@njit(cache=True, inline="always")
def _bin(value: float) -> int:
    if value <= LEAST_S:
        return 0
    index = int(math.log(value * (1.0 / LEAST_S)) * BINS_PER_E) + 1
    return index if index < BINS else BINS - 1


@njit(cache=True)
def serve(
    begin_s: float,
    end_s: float,
    arrival: Any,  # of each waiting record, sorted first in, first out
    origin: Any,
    work: Any,  # service time of each record on a host of normal speed
    entry: Any,  # which way each record came in
    head: int,  # first waiting record
    count: int,  # one past the last record that has arrived before end_s
    free_s: Any,  # slots: when each can take its next record
    open_slot: Any,  # slots: whether it takes new records
    slowdown: Any,  # slots: factor on the service time
    held: Any,  # slots: 1 where it works on a record, described by the next five
    held_arrival: Any,
    held_origin: Any,
    held_work: Any,
    held_entry: Any,
    held_start: Any,
    busy_s: Any,  # slots: time worked (added to)
    executed: Any,  # slots: records finished (added to)
    out_end: Any,
    out_origin: Any,
    out_entry: Any,
    durations: Any,  # histogram of end - arrival (added to)
    latencies: Any,  # histogram of end - origin (added to)
    slo_s: float,
    sums: Any,  # added to: duration, service, service², latency, ≤ slo, ≤ 2 slo, ≤ 5 slo
) -> tuple[int, int]:
    """Serve until the end of the interval; the new head and the number of records finished.

    Finished records are in `out_*`, sorted by the instant they were finished.
    """
    slots = free_s.shape[0]
    heap = np.empty(slots, np.int64)
    size = 0
    for slot in range(slots):
        if open_slot[slot] and free_s[slot] < end_s:
            # Sift up: the heap's top is the slot that is free first (lowest number on a tie).
            place = size
            size += 1
            while place > 0:
                parent = (place - 1) // 2
                other = heap[parent]
                if free_s[other] < free_s[slot] or (free_s[other] == free_s[slot] and other < slot):
                    break
                heap[place] = other
                place = parent
            heap[place] = slot
    done = 0
    while head < count and size > 0:
        slot = heap[0]
        # A record that a crash put back arrived long ago: it starts now at the earliest.
        start = arrival[head] if arrival[head] > begin_s else begin_s
        if free_s[slot] > start:
            start = free_s[slot]
        if start >= end_s:
            break
        if held[slot]:
            done = _finish(
                slot, done, begin_s, free_s, held, held_arrival, held_origin, held_work, held_entry,
                held_start, busy_s, executed, out_end, out_origin, out_entry, durations, latencies, slo_s,
                sums,
            )  # fmt: skip
        took = work[head] * slowdown[slot]
        held[slot] = 1
        held_arrival[slot] = arrival[head]
        held_origin[slot] = origin[head]
        held_work[slot] = work[head]
        held_entry[slot] = entry[head]
        held_start[slot] = start
        free_s[slot] = start + took
        head += 1
        # Sift down, or drop the slot where it is busy beyond the interval.
        if free_s[slot] >= end_s:
            size -= 1
            slot = heap[size]
            if size == 0:
                break
        place = 0
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size:
                left, right = heap[child], heap[child + 1]
                if free_s[right] < free_s[left] or (free_s[right] == free_s[left] and right < left):
                    child += 1
            other = heap[child]
            if free_s[slot] < free_s[other] or (free_s[slot] == free_s[other] and slot < other):
                break
            heap[place] = other
            place = child
        heap[place] = slot
    for slot in range(slots):
        if held[slot]:
            if free_s[slot] <= end_s:
                done = _finish(
                    slot, done, begin_s, free_s, held, held_arrival, held_origin, held_work, held_entry,
                    held_start, busy_s, executed, out_end, out_origin, out_entry, durations, latencies,
                    slo_s, sums,
                )  # fmt: skip
            else:
                since = held_start[slot] if held_start[slot] > begin_s else begin_s
                busy_s[slot] += end_s - since
    _sort_by_end(out_end, out_origin, out_entry, done)
    return head, done


@njit(cache=True, inline="always")
def _finish(
    slot: int, done: int, begin_s: float, free_s: Any, held: Any, held_arrival: Any, held_origin: Any,
    held_work: Any, held_entry: Any, held_start: Any, busy_s: Any, executed: Any, out_end: Any,
    out_origin: Any, out_entry: Any, durations: Any, latencies: Any, slo_s: float, sums: Any,
) -> int:  # fmt: skip
    end = free_s[slot]
    since = held_start[slot] if held_start[slot] > begin_s else begin_s
    busy_s[slot] += end - since
    executed[slot] += 1
    duration = end - held_arrival[slot]
    latency = end - held_origin[slot]
    service = end - held_start[slot]
    index = _bin(duration)
    durations[index] += 1
    # Straight from a source both are the same, and the logarithm is what costs.
    latencies[index if latency == duration else _bin(latency)] += 1
    sums[0] += duration
    sums[1] += service
    sums[2] += service * service
    sums[3] += latency
    if duration <= slo_s:
        sums[4] += 1.0
    if duration <= 2.0 * slo_s:
        sums[5] += 1.0
    if duration <= 5.0 * slo_s:
        sums[6] += 1.0
    out_end[done] = end
    out_origin[done] = held_origin[slot]
    out_entry[done] = held_entry[slot]
    held[slot] = 0
    return done + 1


@njit(cache=True)
def _sort_by_end(out_end: Any, out_origin: Any, out_entry: Any, done: int) -> None:
    """Insertion sort: finished records are nearly in order already, off by at most the slots."""
    for index in range(1, done):
        end = out_end[index]
        if out_end[index - 1] <= end:
            continue
        origin = out_origin[index]
        way = out_entry[index]
        place = index
        while place > 0 and out_end[place - 1] > end:
            out_end[place] = out_end[place - 1]
            out_origin[place] = out_origin[place - 1]
            out_entry[place] = out_entry[place - 1]
            place -= 1
        out_end[place] = end
        out_origin[place] = origin
        out_entry[place] = way


@njit(cache=True)
def percentile(histogram: Any, share: float) -> float:
    """The duration below which this share of a histogram lies; 0 where it is empty."""
    total = 0.0
    for count in histogram:
        total += count
    if total == 0.0:
        return 0.0
    wanted = share * total
    seen = 0.0
    for index in range(histogram.shape[0]):
        seen += histogram[index]
        if seen >= wanted:
            if index == 0:
                return LEAST_S
            return LEAST_S * math.exp((index - 0.5) / BINS_PER_E)
    return LEAST_S * math.exp((histogram.shape[0] - 1) / BINS_PER_E)


@njit(cache=True)
def _from_above(histogram: Any, total: int, share: float) -> float:
    """`percentile` of a histogram whose total is known; for a high share the top is where to look."""
    above = 0.0
    allowed = total - share * total
    for index in range(histogram.shape[0] - 1, 0, -1):
        above += histogram[index]
        if above > allowed:
            return LEAST_S * math.exp((index - 0.5) / BINS_PER_E)
    return LEAST_S


@njit(cache=True)
def close_window(
    done: int,
    window_durations: Any,
    window_latencies: Any,
    window_sums: Any,
    durations: Any,
    latencies: Any,
    sums: Any,
) -> tuple[float, float, float]:
    """Add a window to the totals and empty it; its durations' p95 and p99 and its latencies' p95."""
    if done == 0:
        return 0.0, 0.0, 0.0
    p95 = _from_above(window_durations, done, 0.95)
    p99 = _from_above(window_durations, done, 0.99)
    latency_p95 = _from_above(window_latencies, done, 0.95)
    for index in range(window_durations.shape[0]):
        durations[index] += window_durations[index]
        latencies[index] += window_latencies[index]
        window_durations[index] = 0.0
        window_latencies[index] = 0.0
    for index in range(window_sums.shape[0]):
        sums[index] += window_sums[index]
        window_sums[index] = 0.0
    return p95, p99, latency_p95


@njit(cache=True)
def read_slots(
    now_s: float,
    interval_s: float,
    slots: int,  # of each instance
    opened_s: Any,  # slots: since when it is usable
    open_slot: Any,
    busy_s: Any,  # emptied
    executed: Any,  # emptied
    load: Any,  # out: share of its time each running instance worked
    finished: Any,  # out: records each running instance finished
    which: Any,  # out: the numbers of the running instances
) -> int:
    """Read what every running instance did in the interval and begin a new one; how many there are."""
    count = 0
    for instance in range(opened_s.shape[0] // slots):
        first = instance * slots
        busy, records = 0.0, 0
        for slot in range(first, first + slots):
            busy += busy_s[slot]
            records += executed[slot]
            busy_s[slot] = 0.0
            executed[slot] = 0
        if open_slot[first] and opened_s[first] <= now_s:
            served_s = min(interval_s, now_s - opened_s[first])
            load[count] = busy / (max(served_s, 1e-9) * slots)
            finished[count] = records
            which[count] = instance
            count += 1
    return count


@njit(cache=True)
def gaps(arrival: Any, last_s: float, sums: Any) -> None:
    """Add up the number, the sum and the squares of the times between arrivals; last_s may be NaN."""
    before = last_s
    for instant in arrival:
        if not math.isnan(before):
            gap = instant - before
            sums[0] += 1.0
            sums[1] += gap
            sums[2] += gap * gap
        before = instant


@njit(cache=True)
def add_to_histogram(durations: Any, histogram: Any) -> float:
    """Add durations to a histogram; their sum."""
    total = 0.0
    for duration in durations:
        histogram[_bin(duration)] += 1
        total += duration
    return total
