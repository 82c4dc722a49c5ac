"""One unit in the simulator: its queue, its slots, and the account of what passed through.

Conservation is the invariant: every record that arrived waits, is in service, or is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.monitoring.measurements import InstanceReading, Measurement
from penstock.simulator.flows import Flow, Way
from penstock.simulator.kernel import (
    ARRIVAL,
    BINS,
    FREE,
    HELD,
    HELD_ARRIVAL,
    HELD_ENTRY,
    HELD_ORIGIN,
    HELD_WORK,
    OPEN,
    OPENED,
    ORIGIN,
    OUT_END,
    OUT_ORIGIN,
    OUT_ROWS,
    RECORD_ROWS,
    SLOT_ROWS,
    SLOT_WHOLE_ROWS,
    SLOWDOWN,
    WORK,
    append,
    close_window,
    read_slots,
    serve,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NO_WAYS: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Finished:
    """Records finished in a step, sorted by the instant they were finished."""

    end_s: Floats
    origin_s: Floats
    way: Ints


class Station:
    """The first-in-first-out queue of one unit and the slots that serve it."""

    def __init__(self, flow: Flow, slots: int, rng: np.random.Generator) -> None:
        self.flow = flow
        self.slots = slots
        """Slots of each instance."""
        self._work = [_Work(way, rng) for way in flow.ways]
        self._head = 0
        self._tail = 0
        self._queue: Floats = np.empty((RECORD_ROWS, 1024))
        self._entry: Ints = np.zeros(1024, np.int64)
        self._inbox: list[tuple[Floats, Floats, int]] = []
        """Records handed over and not yet arrived: instants, origins, and the way all of them come in by."""
        self._slots: Floats = np.zeros((SLOT_ROWS, 0))
        self._whole: Ints = np.zeros((SLOT_WHOLE_ROWS, 0), np.int64)
        self._owners: list[str] = []
        """Instances in the order of their slots."""
        self.arrived = 0
        self.done = 0
        self.histograms: Floats = np.zeros((2, BINS))
        self.sums: Floats = np.zeros(7)
        self._window: Floats = np.zeros((2, BINS))
        self._used: Ints = np.array([BINS, 0])
        """The window's first bin that is not empty, and one past its last."""
        self._window_sums: Floats = np.zeros(7)
        self._window_arrived = 0
        self._window_done = 0
        self._gaps: Floats = np.zeros(3)
        self._last_arrival_s = np.nan
        self._out: Floats = np.empty((OUT_ROWS, 1024))
        self._out_entry: Ints = np.empty(1024, np.int64)

    # -- slots -----------------------------------------------------------------------------------

    def add_slots(self, instance: str, from_s: float, slowdown: float = 1.0) -> None:
        """Give the unit an instance, whose slots are usable from an instant on."""
        fresh = np.zeros((SLOT_ROWS, self.slots))
        fresh[OPENED] = fresh[FREE] = from_s
        fresh[SLOWDOWN] = slowdown
        whole = np.zeros((SLOT_WHOLE_ROWS, self.slots), np.int64)
        whole[OPEN] = 1
        self._slots = np.concatenate((self._slots, fresh), axis=1)
        self._whole = np.concatenate((self._whole, whole), axis=1)
        self._owners.append(instance)

    def close_slots(self, instance: str) -> float:
        """Let an instance's slots take nothing new; when the last of its records will be finished."""
        mine = self._slots_of(instance)
        self._whole[OPEN, mine] = 0
        busy = self._slots[FREE, mine][self._whole[HELD, mine] == 1]
        return float(busy.max()) if busy.size else -np.inf

    def remove_slots(self, instance: str) -> int:
        """Take an instance's slots away now; records they still hold wait again. How many those were."""
        mine = self._slots_of(instance)
        held = [index for index in range(mine.start, mine.stop) if self._whole[HELD, index]]
        for index in held:
            self._put_back(index)
        self._slots = np.concatenate((self._slots[:, : mine.start], self._slots[:, mine.stop :]), axis=1)
        self._whole = np.concatenate((self._whole[:, : mine.start], self._whole[:, mine.stop :]), axis=1)
        self._owners.remove(instance)
        return len(held)

    def slow_down(self, instance: str, factor: float) -> None:
        """Everything an instance begins from now on takes so many times longer than usual."""
        self._slots[SLOWDOWN, self._slots_of(instance)] = factor

    def _slots_of(self, instance: str) -> slice:
        first = self._owners.index(instance) * self.slots
        return slice(first, first + self.slots)

    # -- records ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Records that have arrived and that no slot has begun."""
        return self._tail - self._head

    @property
    def in_service(self) -> int:
        """Records some slot works on."""
        return int(np.count_nonzero(self._whole[HELD]))

    def receive(self, arrival_s: Floats, origin_s: Floats, way: int) -> None:
        """Hand over records with the instants they arrive, sorted; they may lie in the future."""
        if arrival_s.size:
            self._inbox.append((arrival_s, origin_s, way))

    def step(self, begin_s: float, end_s: float) -> Finished:
        """Serve from one instant to another."""
        self._admit(end_s)
        space = self.waiting + self._slots.shape[1]
        if self._out_entry.size < space:
            self._out, self._out_entry = np.empty((OUT_ROWS, 2 * space)), np.empty(2 * space, np.int64)
        self._head, done = serve(
            begin_s, end_s, self._queue, self._entry, self._head, self._tail, self._slots, self._whole,
            self._out, self._out_entry, self._window, self._used, self.flow.slo_s, self._window_sums,
        )  # fmt: skip
        self.done += done
        self._window_done += done
        # One way in: everything came by it, and nobody asks.
        way = self._out_entry[:done].copy() if len(self.flow.ways) > 1 else _NO_WAYS
        return Finished(self._out[OUT_END, :done].copy(), self._out[OUT_ORIGIN, :done].copy(), way)

    def readings(self, now_s: float, interval_s: float) -> tuple[list[str], Floats, list[int]]:
        """Running instances, the share of the interval each worked, the records each finished in it.

        Asking begins a new interval.
        """
        size = len(self._owners)
        load, finished, which = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
        count = read_slots(now_s, interval_s, self.slots, self._slots, self._whole, load, finished, which)
        if count == size:
            return self._owners, load, finished.tolist()
        return [self._owners[i] for i in which[:count].tolist()], load[:count], finished[:count].tolist()

    def measured(
        self, now_s: float, interval_s: float, emitted: int, readings: tuple[InstanceReading, ...]
    ) -> Measurement:
        """What happened since the last measurement, and begin a new one."""
        arrived, done = self._window_arrived, self._window_done
        duration_sum, service_sum, service_squares, latency_sum = self._window_sums[:4].tolist()
        arrival_cv = _cv(*self._gaps.tolist())
        p95, p99, latency_p95 = close_window(
            done, self._window, self._used, self._window_sums, self.histograms, self.sums
        )
        self._window_arrived = self._window_done = 0
        self._gaps.fill(0.0)
        unit, waiting, in_service = self.flow.unit, self.waiting, self.in_service
        if not done:
            return Measurement(
                unit, now_s, interval_s, arrived, 0, emitted, waiting, in_service, arrival_cv=arrival_cv,
                readings=readings,
            )  # fmt: skip
        return Measurement(
            unit, now_s, interval_s, arrived, done, emitted, waiting, in_service, duration_sum / done, p95,
            p99, service_sum / done, arrival_cv, _cv(done, service_sum, service_squares), latency_sum / done,
            latency_p95, readings,
        )  # fmt: skip

    # -- inside ----------------------------------------------------------------------------------

    def _admit(self, end_s: float) -> None:
        """Move records that have arrived by now from the inbox into the queue, in order of arrival."""
        if not self._inbox:
            return
        here: list[tuple[Floats, Floats, int]] = []
        later: list[tuple[Floats, Floats, int]] = []
        for arrival, origin, way in self._inbox:
            cut = arrival.size if arrival[-1] < end_s else int(arrival.searchsorted(end_s))
            if cut:
                here.append((arrival[:cut], origin[:cut], way))
            if cut < arrival.size:
                later.append((arrival[cut:], origin[cut:], way))
        self._inbox = later
        if len(here) == 1:
            self._append(*here[0])
        elif here:
            arrival = np.concatenate([part[0] for part in here])
            order = arrival.argsort(kind="stable")
            origin = np.concatenate([part[1] for part in here])[order]
            ways = np.repeat([part[2] for part in here], [part[0].size for part in here])[order]
            self._append(arrival[order], origin, ways)

    def _append(self, arrival: Floats, origin: Floats, way: Ints | int) -> None:
        number = arrival.size
        if self._tail + number > self._entry.size:
            self._move(0, number)
        begin, end = self._tail, self._tail + number
        append(arrival, origin, self._queue, begin, self._last_arrival_s, self._gaps)
        if len(self.flow.ways) > 1:
            self._entry[begin:end] = way
        self._draw_work(way, self._queue[WORK, begin:end])
        self._tail = end
        self.arrived += number
        self._window_arrived += number
        self._last_arrival_s = float(arrival[-1])

    def _draw_work(self, way: Ints | int, work: Floats) -> None:
        """Fill in the service times of records that came in by one way, or each by its own."""
        if isinstance(way, int) or len(self._work) == 1:
            self._work[way if isinstance(way, int) else 0].fill(work)
            return
        for index, drawn in enumerate(self._work):
            mine = way == index
            found = np.empty(int(mine.sum()))
            drawn.fill(found)
            work[mine] = found

    def _put_back(self, slot: int) -> None:
        """Let the record a slot holds wait again, before all that arrived after it."""
        if self._head == 0:
            self._move(16)
        self._head -= 1
        place = self._head
        # Only records put back a moment ago can have arrived earlier: this stops after a few steps.
        arrival = self._slots[HELD_ARRIVAL, slot]
        while place + 1 < self._tail and self._queue[ARRIVAL, place + 1] < arrival:
            self._queue[:, place] = self._queue[:, place + 1]
            self._entry[place] = self._entry[place + 1]
            place += 1
        self._queue[ARRIVAL, place] = arrival
        self._queue[ORIGIN, place] = self._slots[HELD_ORIGIN, slot]
        self._queue[WORK, place] = self._slots[HELD_WORK, slot]
        self._entry[place] = self._whole[HELD_ENTRY, slot]
        self._whole[HELD, slot] = 0

    def _move(self, first: int, extra: int = 0) -> None:
        """Put the waiting records at another place of the arrays, growing them where needed."""
        waiting = self.waiting
        queue, entries = self._queue, self._entry
        needed = first + waiting + extra
        if entries.size < 2 * needed:
            queue, entries = np.empty((RECORD_ROWS, 4 * needed)), np.zeros(4 * needed, np.int64)
        queue[:, first : first + waiting] = self._queue[:, self._head : self._tail]
        entries[first : first + waiting] = self._entry[self._head : self._tail]
        self._queue, self._entry = queue, entries
        self._head, self._tail = first, first + waiting


def _cv(count: float, total: float, squares: float) -> float | None:
    """The coefficient of variation out of a count, a sum and a sum of squares; None where it is unknown."""
    if count <= 1 or total <= 0:
        return None
    mean = total / count
    return float(max(0.0, squares / count - mean * mean) ** 0.5 / mean)


class _Work:
    """Random service times of one way, drawn ahead: many small draws cost more than a large one."""

    AHEAD = 2048

    def __init__(self, way: Way, rng: np.random.Generator) -> None:
        self._way = way
        self._rng = rng
        # The σ of a lognormal whose coefficient of variation is the way's.
        self._sigma = math.sqrt(math.log1p(way.cv**2))
        self._ready: Floats = np.empty(0)
        self._at = 0

    def fill(self, work: Floats) -> None:
        """Put the next service times into an array."""
        have, want = self._ready.size - self._at, work.size
        if want > have:
            work[:have] = self._ready[self._at :]
            self._ready = self._drawn(max(self.AHEAD, want - have))
            self._at, work = 0, work[have:]
        work[:] = self._ready[self._at : self._at + work.size]
        self._at += work.size

    def _drawn(self, number: int) -> Floats:
        shape, mean_s = self._way.shape, self._way.mean_s
        if shape == "deterministic" or mean_s <= 0 or (shape == "lognormal" and self._sigma == 0.0):
            return np.full(number, mean_s)
        if shape == "exponential":
            return self._rng.standard_exponential(number) * mean_s
        # Mean of exp(σ z - σ²/2) is 1.
        values = self._rng.standard_normal(number)
        values *= self._sigma
        values += math.log(mean_s) - 0.5 * self._sigma**2
        return np.exp(values, out=values)
