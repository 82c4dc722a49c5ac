"""The compiled heart of the simulator: one queue, many slots, one interval, record by record.

Records are served first in, first out by whichever slot is free first. A record that a slot cannot finish
within the interval is held by the slot, so that a crash can put it back; nothing is ever lost or doubled.
Cost is linear in records (times the logarithm of the number of slots). Fields of records and slots are rows
of a few arrays, named below: what crosses from Python to compiled code costs by the piece.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

ARRIVAL, ORIGIN, WORK = range(3)
"""Rows of a queue: when a record arrived, when it came into being, its service time at normal speed."""
RECORD_ROWS = 3

OPENED, FREE, SLOWDOWN, HELD_ARRIVAL, HELD_ORIGIN, HELD_WORK, HELD_START, BUSY = range(8)
"""Rows of the slots: usable since, can take its next record at, factor on the service time, the record it
holds and when that was begun, time worked since the last reading."""
SLOT_ROWS = 8

OPEN, HELD, HELD_ENTRY, EXECUTED = range(4)
"""Rows of the slots in whole numbers: takes new records, holds one, which way that came in, records finished
since the last reading."""
SLOT_WHOLE_ROWS = 4

OUT_END, OUT_ORIGIN, OUT_ARRIVAL, OUT_SERVICE = range(4)
"""Rows of the records finished in an interval."""
OUT_ROWS = 4

DURATIONS, LATENCIES = range(2)
"""Rows of a pair of histograms: end - arrival, end - origin."""

LEAST_S = 2.0**-14
"""Durations up to this (0.06 ms) share the first bin."""
BINS = 28 * 64 + 1
"""Bins of the duration histograms: 64 for each factor of two, up to 16 384 s; a bin's middle is within
0.8 % of every value in it."""
_SHIFT = 52 - 6
_FIRST = int(np.float64(LEAST_S).view(np.int64)) >> _SHIFT


@njit(cache=True, inline="always")
def _bin(value: float) -> int:
    """A number's exponent and the first six bits of its fraction: a logarithm without computing one."""
    if value <= LEAST_S:
        return 0
    index = (np.float64(value).view(np.int64) >> _SHIFT) - _FIRST + 1
    return int(index) if index < BINS else BINS - 1


@njit(cache=True)
def _middle(index: int) -> float:
    """The middle of a bin; the first one's upper end."""
    if index == 0:
        return LEAST_S
    octave, part = divmod(index - 1, 64)
    return LEAST_S * 2.0**octave * (1.0 + (part + 0.5) / 64.0)


@njit(cache=True)
def serve(
    begin_s: float,
    end_s: float,
    queue: Any,  # rows of the waiting records, sorted first in, first out
    entry: Any,  # which way each waiting record came in
    head: int,  # first waiting record
    tail: int,  # one past the last record that has arrived before end_s
    slots: Any,
    whole: Any,  # the slots' rows in whole numbers
    out: Any,
    out_entry: Any,
    histograms: Any,  # added to
    used: Any,  # first of their bins that is not empty, and one past the last; widened
    slo_s: float,
    sums: Any,  # added to: duration, service, service², latency, ≤ slo, ≤ 2 slo, ≤ 5 slo
) -> tuple[int, int]:
    """Serve until the end of the interval; the new head and the number of records finished.

    Finished records are in `out`, sorted by the instant they were finished.
    """
    arrival, origin, work = queue[ARRIVAL], queue[ORIGIN], queue[WORK]
    free_s, slowdown, busy_s = slots[FREE], slots[SLOWDOWN], slots[BUSY]
    held_start, held, executed = slots[HELD_START], whole[HELD], whole[EXECUTED]
    count = free_s.shape[0]
    heap, key = np.empty(count, np.int64), np.empty(count)
    size, done = 0, 0
    for slot in range(count):
        free = free_s[slot]
        if held[slot]:
            since = max(held_start[slot], begin_s)
            if free > end_s:
                busy_s[slot] += end_s - since
                continue
            busy_s[slot] += free - since
            executed[slot] += 1
            held[slot] = 0
            out[OUT_END, done] = free
            out[OUT_ORIGIN, done] = slots[HELD_ORIGIN, slot]
            out[OUT_ARRIVAL, done] = slots[HELD_ARRIVAL, slot]
            out[OUT_SERVICE, done] = free - held_start[slot]
            out_entry[done] = whole[HELD_ENTRY, slot]
            done += 1
        if whole[OPEN, slot] and free < end_s:
            # Sift up: the heap's top is the slot that is free first (lowest number on a tie).
            place = size
            size += 1
            while place > 0:
                parent = (place - 1) // 2
                if key[parent] <= free:
                    break
                heap[place] = heap[parent]
                key[place] = key[parent]
                place = parent
            heap[place] = slot
            key[place] = free
    while head < tail and size > 0:
        slot, free = heap[0], key[0]
        # A record that a crash put back arrived long ago: it starts now at the earliest.
        start = max(max(arrival[head], begin_s), free)
        if start >= end_s:
            break
        free = start + work[head] * slowdown[slot]
        free_s[slot] = free
        if free <= end_s:
            busy_s[slot] += free - start
            executed[slot] += 1
            out[OUT_END, done] = free
            out[OUT_ORIGIN, done] = origin[head]
            out[OUT_ARRIVAL, done] = arrival[head]
            out[OUT_SERVICE, done] = free - start
            out_entry[done] = entry[head]
            done += 1
        else:
            busy_s[slot] += end_s - start
            held[slot] = 1
            slots[HELD_ARRIVAL, slot] = arrival[head]
            slots[HELD_ORIGIN, slot] = origin[head]
            slots[HELD_WORK, slot] = work[head]
            whole[HELD_ENTRY, slot] = entry[head]
            held_start[slot] = start
        head += 1
        # Sift down, or drop the slot where it is busy beyond the interval.
        if free >= end_s:
            size -= 1
            slot, free = heap[size], key[size]
        place = 0
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size:
                left, right = key[child], key[child + 1]
                if right < left or (right == left and heap[child + 1] < heap[child]):
                    child += 1
            if free < key[child] or (free == key[child] and slot < heap[child]):
                break
            heap[place] = heap[child]
            key[place] = key[child]
            place = child
        heap[place] = slot
        key[place] = free
    if done:
        _account(out, done, histograms, used, slo_s, sums)
    _sort_by_end(out[OUT_END], out[OUT_ORIGIN], out_entry, done)
    return head, done


@njit(cache=True)
def _account(out: Any, done: int, histograms: Any, used: Any, slo_s: float, sums: Any) -> None:
    """Add the finished records to the histograms and the sums."""
    durations, latencies = histograms[DURATIONS], histograms[LATENCIES]
    lowest, highest = BINS, 0
    duration_sum = service_sum = square_sum = latency_sum = 0.0
    within = within_2 = within_5 = 0
    for index in range(done):
        duration = out[OUT_END, index] - out[OUT_ARRIVAL, index]
        latency = out[OUT_END, index] - out[OUT_ORIGIN, index]
        service = out[OUT_SERVICE, index]
        duration_bin, latency_bin = _bin(duration), _bin(latency)
        durations[duration_bin] += 1
        latencies[latency_bin] += 1
        # A record is never younger than its stay here, so its latency's bin is never the lower one.
        lowest, highest = min(lowest, duration_bin), max(highest, latency_bin)
        duration_sum += duration
        service_sum += service
        square_sum += service * service
        latency_sum += latency
        within += duration <= slo_s
        within_2 += duration <= 2.0 * slo_s
        within_5 += duration <= 5.0 * slo_s
    used[0], used[1] = min(used[0], lowest), max(used[1], highest + 1)
    sums[0] += duration_sum
    sums[1] += service_sum
    sums[2] += square_sum
    sums[3] += latency_sum
    sums[4] += within
    sums[5] += within_2
    sums[6] += within_5


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
            return _middle(index)
    return _middle(histogram.shape[0] - 1)


@njit(cache=True)
def _from_above(histogram: Any, end: int, total: int, share: float) -> float:
    """`percentile` of a histogram of known total and end; for a high share the top is where to look."""
    above = 0.0
    allowed = total - share * total
    for index in range(end - 1, 0, -1):
        above += histogram[index]
        if above > allowed:
            return _middle(index)
    return LEAST_S


@njit(cache=True)
def close_window(
    done: int, window: Any, used: Any, window_sums: Any, histograms: Any, sums: Any
) -> tuple[float, float, float]:
    """Add a window to the totals and empty it; its durations' p95 and p99 and its latencies' p95."""
    if done == 0:
        return 0.0, 0.0, 0.0
    begin, end = used[0], used[1]
    used[0], used[1] = BINS, 0
    p95 = _from_above(window[DURATIONS], end, done, 0.95)
    p99 = _from_above(window[DURATIONS], end, done, 0.99)
    latency_p95 = _from_above(window[LATENCIES], end, done, 0.95)
    for row in range(window.shape[0]):
        for index in range(begin, end):
            histograms[row, index] += window[row, index]
            window[row, index] = 0.0
    for index in range(window_sums.shape[0]):
        sums[index] += window_sums[index]
        window_sums[index] = 0.0
    return p95, p99, latency_p95


@njit(cache=True)
def read_slots(
    now_s: float,
    interval_s: float,
    each: int,  # slots of an instance
    slots: Any,
    whole: Any,
    load: Any,  # out: share of its time each running instance worked
    finished: Any,  # out: records each running instance finished
    which: Any,  # out: the numbers of the running instances
) -> int:
    """Read what every running instance did in the interval and begin a new one; how many there are."""
    count = 0
    for instance in range(slots.shape[1] // each):
        first = instance * each
        busy, records = 0.0, 0
        for slot in range(first, first + each):
            busy += slots[BUSY, slot]
            records += whole[EXECUTED, slot]
            slots[BUSY, slot] = 0.0
            whole[EXECUTED, slot] = 0
        opened_s = slots[OPENED, first]
        if whole[OPEN, first] and opened_s <= now_s:
            load[count] = busy / (max(min(interval_s, now_s - opened_s), 1e-9) * each)
            finished[count] = records
            which[count] = instance
            count += 1
    return count


@njit(cache=True)
def append(arrival: Any, origin: Any, queue: Any, tail: int, last_s: float, sums: Any) -> None:
    """Put records at the end of a queue; add the number, the sum and the squares of the times between
    arrivals to `sums`. `last_s`, the arrival before, may be NaN."""
    before = last_s
    if math.isnan(before):
        sums[0] -= 1.0
        before = arrival[0]
    total = squares = 0.0
    for index in range(arrival.shape[0]):
        instant = arrival[index]
        queue[ARRIVAL, tail + index] = instant
        queue[ORIGIN, tail + index] = origin[index]
        gap = instant - before
        total += gap
        squares += gap * gap
        before = instant
    sums[0] += arrival.shape[0]
    sums[1] += total
    sums[2] += squares


@njit(cache=True)
def add_to_histogram(durations: Any, histogram: Any) -> float:
    """Add durations to a histogram; their sum."""
    total = 0.0
    for duration in durations:
        histogram[_bin(duration)] += 1
        total += duration
    return total


@njit(cache=True)
def passed_on(end_s: Any, origin_s: Any, ratio: float, carry: float, whole: int) -> tuple[Any, Any]:
    """`whole` copies of finished records: on average `ratio` of each, spread evenly, after a carry."""
    number = end_s.shape[0]
    chosen_end, chosen_origin = np.empty(whole), np.empty(whole)
    for copy in range(whole):
        # Record k (from 1) brings the sum to carry + ratio k; copy m is due where that reaches m.
        record = math.ceil((copy + 1 - carry) / ratio - 1e-6) - 1
        record = min(max(record, 0), number - 1)
        chosen_end[copy] = end_s[record]
        chosen_origin[copy] = origin_s[record]
    return chosen_end, chosen_origin
