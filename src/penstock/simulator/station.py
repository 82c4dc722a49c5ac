"""One unit in the simulator: its queue, its slots, and the account of what passed through.

Conservation is the invariant: every record that arrived waits, is in service, or is done.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.monitoring.measurements import Counted, InstanceReading, Measurement
from penstock.simulator.flows import Flow, Way
from penstock.simulator.kernel import (
    ARRIVAL,
    BINS,
    FREE,
    HELD,
    HELD_ARRIVAL,
    HELD_ORIGIN,
    HELD_WAY,
    HELD_WORK,
    OPEN,
    OPENED,
    ORIGIN,
    RECORD_ROWS,
    SLOT_ROWS,
    SLOWDOWN,
    SUMS,
    WAY,
    WORK,
    admit,
    close_window,
    empty_window,
    serve,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SERVICE = 3
"""Where among the kernel's statistics the mean work on a record stands."""
_Part = tuple[Floats, Floats, int, str]
"""Records on their way in: their instants, their origins, the way they come in by, and who sent them."""


class Finished(NamedTuple):
    """Records finished in a step, sorted by the instant they were finished."""

    end_s: Floats
    origin_s: Floats
    way: Ints


class Window(NamedTuple):
    """What a station saw since it was last asked."""

    names: list[str]
    """Running instances."""
    load: Floats
    """The share of the interval each of them worked."""
    executed: list[int]
    """The records each of them finished."""
    arrived: int
    done: int
    waiting: int
    in_service: int
    on_time: int
    statistics: list[float]
    """Durations and the like as the kernel tells them, NaN where not known."""


class Station:
    """The first-in-first-out queue of one unit and the slots that serve it."""

    def __init__(self, flow: Flow, slots: int, rng: np.random.Generator, places: int = 1) -> None:
        self.flow = flow
        self.slots = slots
        """Slots of an instance, where it is not said otherwise."""
        self.places = places
        """Records a slot has in hand at once, each so many times as long as its work. A row each."""
        self.steady = False
        """Whether the work on a record is measured as its mean, not as that of the records just finished."""
        self.partitions: int | None = None
        """So many slots can get records at a time; any number where it is not said."""
        self._work = [_Work(replace(way, mean_s=way.mean_s * places), rng) for way in flow.ways]
        self._head = 0
        self._tail = 0
        self._queue: Floats = np.empty((RECORD_ROWS, 1024))
        self._inbox: list[_Part] = []
        """Records handed over and not yet arrived."""
        self._slots: Floats = np.zeros((SLOT_ROWS, 0))
        self._owners: list[str] = []
        """Instances in the order of their slots."""
        self._begins: Ints = np.zeros(1, np.int64)
        """Where each instance's slots begin; one past the last slot at the end."""
        self._shrinking: set[str] = set()
        """Instances some of whose slots take nothing new and go when they are free."""
        self.arrived = 0
        self.done = 0
        several = len(flow.producers) > 1
        self._came_from = dict.fromkeys(flow.producers, 0) if several else {}
        """What came in since the last measurement, by producer; of one alone it is all that came in."""
        self.histograms: Floats = np.zeros((2, BINS))
        self.sums: Floats = np.zeros(SUMS)
        self._window_histograms: Floats = np.zeros((2, BINS))
        self._window: Floats = empty_window()
        self._read_arrived = 0
        self._read_done = 0

    # -- slots -----------------------------------------------------------------------------------

    def add_slots(
        self, instance: str, from_s: float, slowdown: float = 1.0, slots: int | None = None
    ) -> None:
        """Give the unit an instance, whose slots are usable from an instant on."""
        fresh = _fresh((self.slots if slots is None else slots) * self.places, from_s, slowdown)
        self._slots = np.concatenate((self._slots, fresh), axis=1)
        self._owners.append(instance)
        self._begins = np.append(self._begins, self._slots.shape[1])

    def resize(self, instance: str, slots: int, from_s: float) -> None:
        """Give an instance another number of slots; those that go finish the record they hold first."""
        self._shed(instance)
        mine = self._slots_of(instance)
        opened = [index for index in range(mine.start, mine.stop) if self._slots[OPEN, index]]
        more = slots * self.places - len(opened)
        if more > 0:
            # An instance that still starts gets slots that open with its others.
            usable_s = max(from_s, float(self._slots[OPENED, mine.start]))
            fresh = _fresh(more, usable_s, float(self._slots[SLOWDOWN, mine.start]))
            parts = (self._slots[:, : mine.stop], fresh, self._slots[:, mine.stop :])
            self._slots = np.concatenate(parts, axis=1)
            self._begins[self._owners.index(instance) + 1 :] += more
        elif more < 0:
            # The first slot stays: it tells how long the instance serves.
            leaving = sorted(opened[1:], key=lambda index: (self._slots[HELD, index], -index))[:-more]
            self._slots[OPEN, leaving] = 0.0
            self._shrinking.add(instance)
            self._shed(instance)

    def _shed(self, instance: str) -> None:
        """Drop slots of an instance that take nothing new and hold nothing; not those of one that retires."""
        mine = self._slots_of(instance)
        part = self._slots[:, mine]
        if instance not in self._shrinking or not part[OPEN, 0]:
            return
        gone = [mine.start + i for i in range(part.shape[1]) if not part[OPEN, i] and not part[HELD, i]]
        if gone:
            self._slots = np.delete(self._slots, gone, axis=1)
            self._begins[self._owners.index(instance) + 1 :] -= len(gone)
        if all(self._slots[OPEN, self._slots_of(instance)]):
            self._shrinking.discard(instance)

    def close_slots(self, instance: str) -> float:
        """Let an instance's slots take nothing new; when the last of its records will be finished."""
        mine = self._slots[:, self._slots_of(instance)]
        mine[OPEN] = 0.0
        return float(mine[FREE].max(where=mine[HELD] == 1.0, initial=-np.inf))

    def remove_slots(self, instance: str) -> int:
        """Take an instance's slots away now; records they still hold wait again. How many those were."""
        mine = self._slots_of(instance)
        held = [index for index in range(mine.start, mine.stop) if self._slots[HELD, index]]
        for index in held:
            self._put_back(index)
        self._slots = np.concatenate((self._slots[:, : mine.start], self._slots[:, mine.stop :]), axis=1)
        place = self._owners.index(instance)
        after = self._begins[place + 1 :] - (mine.stop - mine.start)
        self._begins = np.concatenate((self._begins[:place], after))
        self._owners.pop(place)
        self._shrinking.discard(instance)
        return len(held)

    def slow_down(self, instance: str, factor: float) -> None:
        """Everything an instance begins from now on takes so many times longer than usual."""
        self._slots[SLOWDOWN, self._slots_of(instance)] = factor

    def _slots_of(self, instance: str) -> slice:
        place = self._owners.index(instance)
        return slice(int(self._begins[place]), int(self._begins[place + 1]))

    # -- records ---------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Records that have arrived and that no slot has begun."""
        return self._tail - self._head

    @property
    def in_service(self) -> int:
        """Records some slot works on."""
        return int(np.count_nonzero(self._slots[HELD]))

    def receive(self, arrival_s: Floats, origin_s: Floats, way: int, producer: str = "") -> None:
        """Hand over a producer's records with the instants they arrive, sorted, maybe in the future."""
        if arrival_s.size:
            self._inbox.append((arrival_s, origin_s, way, producer))

    def step(self, begin_s: float, end_s: float) -> Finished:
        """Serve from one instant to another."""
        if self.partitions is not None:
            self._share_out(self.partitions, begin_s)
        fresh = self._admit(end_s)
        self._head, end, origin, way = serve(
            begin_s, end_s, self._queue, self._head, fresh, self._tail, self._slots,
            self.flow.slo_s, self._window_histograms, self._window,
        )  # fmt: skip
        self.done += end.size
        return Finished(end, origin, way)

    def read(self, now_s: float, interval_s: float) -> Window:
        """What happened since the last call."""
        for instance in tuple(self._shrinking):
            self._shed(instance)
        names = self._owners
        load, counts = np.empty(len(names)), np.empty((2, len(names)), np.int64)
        arrived, done = self.arrived - self._read_arrived, self.done - self._read_done
        self._read_arrived, self._read_done = self.arrived, self.done
        running, in_service, on_time, *statistics = close_window(
            now_s, interval_s, done, self._begins, self._window_histograms, self._window, self.histograms,
            self.sums, self._slots, load, counts,
        )  # fmt: skip
        executed, which = counts.tolist()
        if running < len(names):
            names, load, executed = [names[i] for i in which[:running]], load[:running], executed[:running]
        return Window(names, load, executed, arrived, done, self.waiting, in_service, on_time, statistics)

    def measured(
        self,
        now_s: float,
        interval_s: float,
        emitted: int,
        window: Window,
        readings: tuple[InstanceReading, ...],
        emitted_by: dict[str, int] | None = None,
    ) -> Measurement:
        """A window as a measurement."""
        # What is not equal to itself is NaN.
        known: list[Any] = [None if value != value else value for value in window.statistics]
        if known[_SERVICE] is not None:
            steady_s = sum(way.mean_s for way in self.flow.ways) / len(self.flow.ways)
            known[_SERVICE] = steady_s if self.steady else known[_SERVICE] / self.places
        values: list[Any] = [
            self.flow.unit, now_s, interval_s, window.arrived, window.done, emitted, window.waiting,
            window.in_service, *known, readings, window.on_time, _taken(self._came_from), _taken(emitted_by),
        ]  # fmt: skip
        return Measurement(*values)

    # -- inside ----------------------------------------------------------------------------------

    def _share_out(self, partitions: int, now_s: float) -> None:
        """Let the first open slots have a partition each; the others get no record while these are there."""
        left = partitions * self.places
        for index in range(self._slots.shape[1]):
            if not self._slots[OPEN, index]:
                continue
            if left > 0:
                if np.isinf(self._slots[FREE, index]):
                    self._slots[FREE, index] = max(now_s, self._slots[OPENED, index])
                left -= 1
            elif not self._slots[HELD, index]:
                self._slots[FREE, index] = np.inf

    def _admit(self, end_s: float) -> int:
        """Move records that have arrived by now from the inbox into the queue; where the first of them is."""
        number = 0
        here: list[_Part] = []
        later: list[_Part] = []
        for part in self._inbox:
            arrival, origin, way, producer = part
            if arrival[-1] < end_s:
                here.append(part)
                number += arrival.size
                continue
            cut = int(arrival.searchsorted(end_s))
            number += cut
            here.append((arrival[:cut], origin[:cut], way, producer))
            later.append((arrival[cut:], origin[cut:], way, producer))
        self._inbox = later
        if self._tail + number > self._queue.shape[1]:
            self._move(0, number)
        fresh = self._tail
        for arrival, origin, way, producer in here:
            admit(arrival, origin, self._work[way].next(arrival.size), way, self._queue, fresh, self._tail)
            self._tail += arrival.size
            if self._came_from:
                self._came_from[producer] += arrival.size
        self.arrived += number
        return fresh

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
            place += 1
        self._queue[ARRIVAL, place] = arrival
        self._queue[ORIGIN, place] = self._slots[HELD_ORIGIN, slot]
        self._queue[WORK, place] = self._slots[HELD_WORK, slot]
        self._queue[WAY, place] = self._slots[HELD_WAY, slot]
        self._slots[HELD, slot] = 0.0

    def _move(self, first: int, extra: int = 0) -> None:
        """Put the waiting records at another place of the arrays, growing them where needed."""
        waiting, queue = self.waiting, self._queue
        needed = first + waiting + extra
        if queue.shape[1] < 2 * needed:
            queue = np.empty((RECORD_ROWS, 4 * needed))
        queue[:, first : first + waiting] = self._queue[:, self._head : self._tail]
        self._queue = queue
        self._head, self._tail = first, first + waiting


def _taken(counts: dict[str, int] | None) -> tuple[Counted, ...]:
    """What was counted; counting begins anew."""
    if not counts:
        return ()
    found = tuple(Counted(name, records) for name, records in counts.items())
    counts.update(dict.fromkeys(counts, 0))
    return found


def _fresh(slots: int, from_s: float, slowdown: float) -> Floats:
    """Slots that hold nothing, usable from an instant on."""
    fresh = np.zeros((SLOT_ROWS, slots))
    fresh[OPENED] = fresh[FREE] = from_s
    fresh[SLOWDOWN] = slowdown
    fresh[OPEN] = 1.0
    return fresh


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

    def next(self, number: int) -> Floats:
        """The next service times."""
        if self._at + number > self._ready.size:
            drawn = self._drawn(max(self.AHEAD, number))
            self._ready = np.concatenate((self._ready[self._at :], drawn))
            self._at = 0
        begin, self._at = self._at, self._at + number
        return self._ready[begin : self._at]

    def _drawn(self, number: int) -> Floats:
        shape, mean_s = self._way.shape, self._way.mean_s
        if shape == "deterministic" or mean_s <= 0 or (shape == "lognormal" and self._sigma == 0.0):
            return np.full(number, mean_s)
        if shape == "exponential":
            return self._rng.standard_exponential(number) * mean_s
        # Mean of exp(σ z - σ²/2) is 1. Seven digits are enough for a time that is random anyway, and are
        # had in a quarter of the time.
        values = self._rng.standard_normal(number)
        values *= self._sigma
        values += math.log(mean_s) - 0.5 * self._sigma**2
        return np.exp(values.astype(np.float32)).astype(np.float64)
