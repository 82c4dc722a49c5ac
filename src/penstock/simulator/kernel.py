"""The compiled heart of the simulator: one queue, many slots, one interval, record by record.

Records are served first in, first out by whichever slot is free first. A record that a slot cannot finish
within the interval is held by the slot, so that a crash can put it back; nothing is ever lost or doubled.
Cost is linear in records. Fields of records and slots are rows of a few arrays, named below: what crosses
from Python to compiled code costs by the piece.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

ARRIVAL, ORIGIN, WORK, WAY = range(4)
"""Rows of a queue: when a record arrived, when it came into being, its service time at normal speed, which
way it came in."""
RECORD_ROWS = 4

OPENED, FREE, SLOWDOWN, BUSY, EXECUTED, OPEN = range(6)
"""Rows of the slots: usable since, can take its next record at, factor on the service time, time worked and
records finished since the last reading, 1 where it takes new records."""
HELD, HELD_START, HELD_ARRIVAL, HELD_ORIGIN, HELD_WORK, HELD_WAY = range(6, 12)
"""More of them: 1 where it holds a record, when that was begun, and the record's own rows."""
SLOT_ROWS = 12

DURATION, SERVICE, SERVICE_SQUARES, LATENCY, WITHIN, WITHIN_2, WITHIN_5 = range(7)
"""Sums over finished records: of durations, service times, their squares and latencies; how many kept the
SLO, twice and five times that."""
GAPS, GAP, GAP_SQUARES, LAST_ARRIVAL, BINS_BEGIN, BINS_END = range(7, 13)
"""More of a window's account: times between arrivals (number, sum, squares), the last arrival, which part of
the histograms is not empty."""
SUMS, WINDOW_ROWS = 7, 13

DURATIONS, LATENCIES = range(2)
"""Rows of a pair of histograms: end - arrival, end - origin."""

LEAST_S = 2.0**-14
"""Durations up to this (0.06 ms) share the first bin."""
BINS = 28 * 64 + 1
"""Bins of the duration histograms: 64 for each factor of two, up to 16 384 s; a bin's middle is within
0.8 % of every value in it."""
_SHIFT = 52 - 6
_FIRST = int(np.float64(LEAST_S).view(np.int64)) >> _SHIFT

MOST_BUCKETS = 4096
"""Spans that an interval is divided into at most, to keep what happens in it in order."""


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
def admit(arrival: Any, origin: Any, work: Any, way: int, queue: Any, fresh: int, tail: int) -> None:
    """Merge records, sorted, that all came in one way into the queue's part from `fresh` to `tail`."""
    last, place = tail - 1, tail + arrival.shape[0] - 1
    for index in range(arrival.shape[0] - 1, -1, -1):
        instant = arrival[index]
        while last >= fresh and queue[ARRIVAL, last] > instant:
            for row in range(RECORD_ROWS):
                queue[row, place] = queue[row, last]
            last -= 1
            place -= 1
        queue[ARRIVAL, place] = instant
        queue[ORIGIN, place] = origin[index]
        queue[WORK, place] = work[index]
        queue[WAY, place] = way
        place -= 1


@njit(cache=True)
def serve(
    begin_s: float,
    end_s: float,
    queue: Any,  # rows of the waiting records, sorted first in, first out
    head: int,  # first waiting record
    fresh: int,  # first record that was not there in the last interval
    tail: int,  # one past the last record that has arrived before end_s
    slots: Any,
    slo_s: float,
    histograms: Any,  # added to
    window: Any,  # added to
) -> tuple[int, Any, Any, Any]:
    """Serve until the end of the interval; the new head, and when each record was finished, when it came into
    being and which way it had come in, sorted by the instant it was finished.

    A slot's next record begins when its last one ends, so the list of ends is also the list of who is free
    first. It is kept as a calendar: an end is dropped into the span of time it falls into, and a span is put
    in order when time gets there. Numbers below the number of slots are what slots were doing before, the
    others are waiting records.
    """
    _count_gaps(queue[ARRIVAL, fresh:tail], window)
    free_s, held, opened = slots[FREE], slots[HELD], slots[OPEN]
    count = free_s.shape[0]
    first = head - count
    space = tail - first
    ends, who, slot_of = np.empty(space), np.empty(space, np.int64), np.empty(space, np.int64)
    when, next_in = np.empty(space), np.empty(space, np.int64)
    buckets = min(space, MOST_BUCKETS)
    scale = buckets / max(end_s - begin_s, 1e-9)
    calendar = np.empty(buckets + 1, np.int64)
    calendar[:] = -1
    now, front, back = -1, 0, 0
    for slot in range(count):
        free = free_s[slot]
        if free > end_s:
            if held[slot]:
                slots[BUSY, slot] += end_s - max(slots[HELD_START, slot], begin_s)
            continue
        if not held[slot] and (free == end_s or not opened[slot]):
            continue
        # One idle since before this interval gets its place at once; hundreds of them hardly cost.
        slot_of[slot] = slot
        back = _dropped(slot, free, begin_s, scale, calendar, now, when, next_in, ends, who, front, back)
    while head < tail:
        while front == back and now < buckets:
            now += 1
            back = _in_order(calendar[now], when, next_in, ends, who, front, back)
        if front == back:
            break
        slot = slot_of[who[front]]
        if not opened[slot]:
            front += 1
            continue
        # A record that a crash put back arrived long ago: it starts now at the earliest.
        start = max(max(queue[ARRIVAL, head], begin_s), ends[front])
        if start >= end_s:
            break
        front += 1
        free = start + queue[WORK, head] * slots[SLOWDOWN, slot]
        number = head - first
        head += 1
        slot_of[number] = slot
        back = _dropped(number, free, begin_s, scale, calendar, now, when, next_in, ends, who, front, back)
    while now < buckets:
        now += 1
        back = _in_order(calendar[now], when, next_in, ends, who, front, back)
    done, origins = _account(
        begin_s, end_s, queue, first, slots, ends[:back], who, slot_of, slo_s, histograms, window
    )
    return head, ends[:done], origins[:done], who[:done]


@njit(cache=True)
def _count_gaps(arrival: Any, window: Any) -> None:
    """Add the times between arrivals to a window's account."""
    before, total, squares = window[LAST_ARRIVAL], 0.0, 0.0
    if arrival.shape[0] and math.isnan(before):
        before = arrival[0]
        window[GAPS] -= 1.0
    for instant in arrival:
        gap = instant - before
        total += gap
        squares += gap * gap
        before = instant
    window[GAPS] += arrival.shape[0]
    window[GAP] += total
    window[GAP_SQUARES] += squares
    window[LAST_ARRIVAL] = before


@njit(cache=True, inline="always")
def _dropped(
    number: int,
    end: float,
    begin_s: float,
    scale: float,
    calendar: Any,
    now: int,  # the span whose ends are in order, as are all before it
    when: Any,
    next_in: Any,
    ends: Any,
    who: Any,
    front: int,
    back: int,
) -> int:
    """Put an end into the calendar, or in its place where its time has come; one past the last in order."""
    when[number] = end
    bucket = min(math.floor((end - begin_s) * scale), calendar.shape[0] - 1)
    if bucket > now:
        next_in[number] = calendar[bucket]
        calendar[bucket] = number
        return back
    next_in[number] = -1
    return _in_order(number, when, next_in, ends, who, front, back)


@njit(cache=True, inline="always")
def _in_order(number: int, when: Any, next_in: Any, ends: Any, who: Any, front: int, back: int) -> int:
    """Put a span's ends, which lie after all before `front`, in their places; one past the last."""
    while number >= 0:
        end = when[number]
        place = back
        back += 1
        while place > front and ends[place - 1] > end:
            ends[place] = ends[place - 1]
            who[place] = who[place - 1]
            place -= 1
        ends[place] = end
        who[place] = number
        number = next_in[number]
    return back


@njit(cache=True)
def _account(
    begin_s: float,
    end_s: float,
    queue: Any,
    first: int,
    slots: Any,
    ends: Any,  # becomes the ends of the finished records
    who: Any,  # becomes the ways they had come in
    slot_of: Any,
    slo_s: float,
    histograms: Any,
    window: Any,
) -> tuple[int, Any]:
    """Give the slots what they still hold, sum up the rest: how many records are finished, their origins."""
    free_s, busy_s, executed = slots[FREE], slots[BUSY], slots[EXECUTED]
    held, held_start = slots[HELD], slots[HELD_START]
    durations, latencies = histograms[DURATIONS], histograms[LATENCIES]
    count = free_s.shape[0]
    origins = np.empty(ends.shape[0])
    lowest, highest, done = BINS, -1, 0
    duration_sum = service_sum = square_sum = latency_sum = 0.0
    within = within_2 = within_5 = 0
    for place in range(ends.shape[0]):
        number, end = who[place], ends[place]
        slot = slot_of[number]
        if number < count:
            if not held[slot]:
                continue
            held[slot] = 0.0
            arrival, origin, way = slots[HELD_ARRIVAL, slot], slots[HELD_ORIGIN, slot], slots[HELD_WAY, slot]
            service = end - held_start[slot]
            busy_s[slot] += end - max(held_start[slot], begin_s)
        else:
            record = number + first
            arrival, origin, way = queue[ARRIVAL, record], queue[ORIGIN, record], queue[WAY, record]
            service = queue[WORK, record] * slots[SLOWDOWN, slot]
            free_s[slot] = end
            if end > end_s:
                held[slot] = 1.0
                held_start[slot] = end - service
                slots[HELD_ARRIVAL, slot] = arrival
                slots[HELD_ORIGIN, slot] = origin
                slots[HELD_WORK, slot] = queue[WORK, record]
                slots[HELD_WAY, slot] = way
                busy_s[slot] += end_s - held_start[slot]
                continue
            busy_s[slot] += service
        executed[slot] += 1.0
        ends[done] = end
        origins[done] = origin
        who[done] = int(way)
        done += 1
        duration, latency = end - arrival, end - origin
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
    window[BINS_BEGIN], window[BINS_END] = min(window[BINS_BEGIN], lowest), max(window[BINS_END], highest + 1)
    window[DURATION] += duration_sum
    window[SERVICE] += service_sum
    window[SERVICE_SQUARES] += square_sum
    window[LATENCY] += latency_sum
    window[WITHIN] += within
    window[WITHIN_2] += within_2
    window[WITHIN_5] += within_5
    return done, origins


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


def empty_window() -> Any:
    """The account of a window in which nothing has happened, before the first arrival."""
    window = np.zeros(WINDOW_ROWS)
    window[LAST_ARRIVAL], window[BINS_BEGIN] = np.nan, BINS
    return window


@njit(cache=True)
def close_window(
    now_s: float,
    interval_s: float,
    done: int,  # records finished in the window
    begins: Any,  # where each instance's slots begin; one past the last slot at the end
    window_histograms: Any,  # emptied
    window: Any,  # emptied
    histograms: Any,  # added to
    sums: Any,  # added to
    slots: Any,  # what they counted since the last reading is emptied
    load: Any,  # out: share of its time each running instance worked
    counts: Any,  # out: records each running instance finished, and its number
) -> tuple[int, int, int, float, float, float, float, float, float, float, float]:
    """Read a window, add it to the totals and begin a new one.

    Running instances, records in service, records that kept the SLO; then mean, p95 and p99 of the durations,
    mean service time, cv of the times between arrivals and of the service times, mean and p95 of the
    latencies, NaN where not known.
    """
    running, in_service = _read_slots(now_s, interval_s, begins, slots, load, counts)
    arrival_cv = _cv(window[GAPS], window[GAP], window[GAP_SQUARES])
    window[GAPS] = window[GAP] = window[GAP_SQUARES] = 0.0
    if done == 0:
        nan = np.nan
        return running, in_service, 0, nan, nan, nan, nan, arrival_cv, nan, nan, nan
    begin, end = int(window[BINS_BEGIN]), int(window[BINS_END])
    window[BINS_BEGIN], window[BINS_END] = BINS, 0
    p95 = _from_above(window_histograms[DURATIONS], end, done, 0.95)
    p99 = _from_above(window_histograms[DURATIONS], end, done, 0.99)
    latency_p95 = _from_above(window_histograms[LATENCIES], end, done, 0.95)
    duration_s, service_s, latency_s = (
        window[DURATION] / done, window[SERVICE] / done, window[LATENCY] / done
    )  # fmt: skip
    service_cv = _cv(done, window[SERVICE], window[SERVICE_SQUARES])
    for row in range(histograms.shape[0]):
        for index in range(begin, end):
            histograms[row, index] += window_histograms[row, index]
            window_histograms[row, index] = 0.0
    on_time = int(window[WITHIN])
    for index in range(SUMS):
        sums[index] += window[index]
        window[index] = 0.0
    return (
        running,
        in_service,
        on_time,
        duration_s,
        p95,
        p99,
        service_s,
        arrival_cv,
        service_cv,
        latency_s,
        latency_p95,
    )


@njit(cache=True)
def _cv(count: float, total: float, squares: float) -> float:
    """The coefficient of variation out of a count, a sum and a sum of squares; NaN where it is unknown."""
    if count <= 1 or total <= 0:
        return np.nan
    mean = total / count
    return math.sqrt(max(0.0, squares / count - mean * mean)) / mean


@njit(cache=True)
def _read_slots(
    now_s: float, interval_s: float, begins: Any, slots: Any, load: Any, counts: Any
) -> tuple[int, int]:
    """Read what every running instance did in the interval; how many run, and what all hold."""
    running = in_service = 0
    for instance in range(begins.shape[0] - 1):
        first, end = begins[instance], begins[instance + 1]
        busy, records = 0.0, 0
        for slot in range(first, end):
            busy += slots[BUSY, slot]
            records += int(slots[EXECUTED, slot])
            in_service += slots[HELD, slot] > 0
            slots[BUSY, slot] = slots[EXECUTED, slot] = 0.0
        opened_s = slots[OPENED, first]
        if slots[OPEN, first] and opened_s <= now_s:
            load[running] = busy / (max(min(interval_s, now_s - opened_s), 1e-9) * (end - first))
            counts[0, running] = records
            counts[1, running] = instance
            running += 1
    return running, in_service


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
