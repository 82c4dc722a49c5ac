"""One unit in the simulator: its queue, its slots, and the account of what passed through.

Conservation is the invariant: every record that arrived waits, is in service, or is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.monitoring.measurements import InstanceReading, Measurement
from penstock.simulator.flows import Flow, Way
from penstock.simulator.kernel import BINS, close_window, gaps, read_slots, serve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_QUEUE_FIELDS = ("arrival", "origin", "work")
_SLOT_FLOATS = (
    "opened_s",
    "free_s",
    "slowdown",
    "held_arrival",
    "held_origin",
    "held_work",
    "held_start",
    "busy_s",
)
_NO_WAYS: Ints = np.empty(0, np.int64)
_SLOT_INTS = ("held", "held_entry", "executed", "open_slot")


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
        self._rng = rng
        self._sigma = [_log_sigma(way) for way in flow.ways]
        self._head = 0
        self._tail = 0
        self._queue: dict[str, Floats] = {name: np.empty(1024) for name in _QUEUE_FIELDS}
        self._entry: Ints = np.empty(1024, np.int64)
        self._inbox: list[tuple[Floats, Floats, int]] = []
        """Records handed over and not yet arrived: instants, origins, and the way all of them come in by."""
        self._slot: dict[str, NDArray[Any]] = {
            **{name: np.empty(0) for name in _SLOT_FLOATS},
            **{name: np.empty(0, np.int64) for name in _SLOT_INTS},
        }
        self._owners: list[str] = []
        """Instances in the order of their slots."""
        self.arrived = 0
        self.done = 0
        self.durations: Floats = np.zeros(BINS)
        self.latencies: Floats = np.zeros(BINS)
        self.sums: Floats = np.zeros(7)
        self._window_durations: Floats = np.zeros(BINS)
        self._window_latencies: Floats = np.zeros(BINS)
        self._window_sums: Floats = np.zeros(7)
        self._window_arrived = 0
        self._window_done = 0
        self._gaps: Floats = np.zeros(3)
        self._last_arrival_s = np.nan
        self._out: tuple[Floats, Floats, Ints] = (np.empty(1024), np.empty(1024), np.empty(1024, np.int64))

    # -- slots -----------------------------------------------------------------------------------

    def add_slots(self, instance: str, from_s: float, slowdown: float = 1.0) -> None:
        """Give the unit an instance, whose slots are usable from an instant on."""
        count = len(self._slot["free_s"]) + self.slots
        fresh = {"opened_s": from_s, "free_s": from_s, "slowdown": slowdown, "open_slot": 1}
        for name, old in self._slot.items():
            grown = np.full(count, fresh.get(name, 0), old.dtype)
            grown[: len(old)] = old
            self._slot[name] = grown
        self._owners.append(instance)

    def close_slots(self, instance: str) -> float:
        """Let an instance's slots take nothing new; when the last of its records will be finished."""
        mine = self._slots_of(instance)
        self._slot["open_slot"][mine] = 0
        busy = self._slot["free_s"][mine][self._slot["held"][mine] == 1]
        return float(busy.max()) if busy.size else -np.inf

    def remove_slots(self, instance: str) -> int:
        """Take an instance's slots away now; records they still hold wait again. How many those were."""
        mine = self._slots_of(instance)
        held = [index for index in range(mine.start, mine.stop) if self._slot["held"][index]]
        for index in held:
            self._put_back(index)
        for name, old in self._slot.items():
            self._slot[name] = np.delete(old, mine)
        self._owners.remove(instance)
        return len(held)

    def slow_down(self, instance: str, factor: float) -> None:
        """Everything an instance begins from now on takes so many times longer than usual."""
        self._slot["slowdown"][self._slots_of(instance)] = factor

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
        return int(self._slot["held"].sum())

    def receive(self, arrival_s: Floats, origin_s: Floats, way: int) -> None:
        """Hand over records with the instants they arrive, sorted; they may lie in the future."""
        if arrival_s.size:
            self._inbox.append((arrival_s, origin_s, way))

    def step(self, begin_s: float, end_s: float) -> Finished:
        """Serve from one instant to another."""
        self._admit(end_s)
        slot, queue = self._slot, self._queue
        space = self.waiting + len(slot["free_s"])
        if self._out[0].size < space:
            self._out = (np.empty(2 * space), np.empty(2 * space), np.empty(2 * space, np.int64))
        out_end, out_origin, out_entry = self._out
        self._head, done = serve(
            begin_s, end_s, queue["arrival"], queue["origin"], queue["work"], self._entry, self._head,
            self._tail, slot["free_s"], slot["open_slot"], slot["slowdown"], slot["held"],
            slot["held_arrival"], slot["held_origin"], slot["held_work"], slot["held_entry"],
            slot["held_start"], slot["busy_s"], slot["executed"], out_end, out_origin, out_entry,
            self._window_durations, self._window_latencies, self.flow.slo_s, self._window_sums,
        )  # fmt: skip
        self.done += done
        self._window_done += done
        # One way in: everything came by it, and nobody asks.
        way = out_entry[:done].copy() if len(self.flow.ways) > 1 else _NO_WAYS
        return Finished(out_end[:done].copy(), out_origin[:done].copy(), way)

    def readings(self, now_s: float, interval_s: float) -> tuple[list[str], Floats, list[int]]:
        """Running instances, the share of the interval each worked, the records each finished in it.

        Asking begins a new interval.
        """
        size, slot = len(self._owners), self._slot
        load, finished, which = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
        count = read_slots(
            now_s, interval_s, self.slots, slot["opened_s"], slot["open_slot"], slot["busy_s"],
            slot["executed"], load, finished, which,
        )  # fmt: skip
        return [self._owners[i] for i in which[:count].tolist()], load[:count], finished[:count].tolist()

    def measured(
        self, now_s: float, interval_s: float, emitted: int, readings: tuple[InstanceReading, ...]
    ) -> Measurement:
        """What happened since the last measurement, and begin a new one."""
        arrived, done = self._window_arrived, self._window_done
        duration_sum, service_sum, service_squares, latency_sum = self._window_sums[:4].tolist()
        arrival_cv = _cv(*self._gaps.tolist())
        p95, p99, latency_p95 = close_window(
            done, self._window_durations, self._window_latencies, self._window_sums, self.durations,
            self.latencies, self.sums,
        )  # fmt: skip
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
        self._reserve(number)
        place = slice(self._tail, self._tail + number)
        self._queue["arrival"][place] = arrival
        self._queue["origin"][place] = origin
        self._queue["work"][place] = self._draw_work(way, number)
        self._entry[place] = way
        self._tail += number
        self.arrived += number
        self._window_arrived += number
        gaps(arrival, self._last_arrival_s, self._gaps)
        self._last_arrival_s = float(arrival[-1])

    def _draw_work(self, way: Ints | int, number: int) -> Floats:
        ways = self.flow.ways
        if isinstance(way, int):
            return _draws(ways[way], self._sigma[way], number, self._rng)
        if len(ways) == 1:
            return _draws(ways[0], self._sigma[0], number, self._rng)
        work = np.empty(number)
        for index, kind in enumerate(ways):
            mine = way == index
            work[mine] = _draws(kind, self._sigma[index], int(mine.sum()), self._rng)
        return work

    def _put_back(self, slot: int) -> None:
        """Let the record a slot holds wait again, before all that arrived after it."""
        if self._head == 0:
            self._move(16)
        self._head -= 1
        place = self._head
        # Only records put back a moment ago can have arrived earlier: this stops after a few steps.
        while place + 1 < self._tail and (
            self._queue["arrival"][place + 1] < self._slot["held_arrival"][slot]
        ):
            for values in (*self._queue.values(), self._entry):
                values[place] = values[place + 1]
            place += 1
        for field in ("arrival", "origin", "work"):
            self._queue[field][place] = self._slot[f"held_{field}"][slot]
        self._entry[place] = self._slot["held_entry"][slot]
        self._slot["held"][slot] = 0

    def _reserve(self, number: int) -> None:
        if self._tail + number > self._entry.size:
            self._move(0, number)

    def _move(self, first: int, extra: int = 0) -> None:
        """Put the waiting records at another place of the arrays, growing them where needed."""
        waiting = self.waiting
        size = max(1024, 2 * (first + waiting + extra))
        for name in _QUEUE_FIELDS:
            grown = np.empty(size)
            grown[first : first + waiting] = self._queue[name][self._head : self._tail]
            self._queue[name] = grown
        entries = np.empty(size, np.int64)
        entries[first : first + waiting] = self._entry[self._head : self._tail]
        self._entry = entries
        self._head, self._tail = first, first + waiting


def _cv(count: float, total: float, squares: float) -> float | None:
    """The coefficient of variation out of a count, a sum and a sum of squares; None where it is unknown."""
    if count <= 1 or total <= 0:
        return None
    mean = total / count
    return float(max(0.0, squares / count - mean * mean) ** 0.5 / mean)


def _log_sigma(way: Way) -> float:
    """The σ of a lognormal whose coefficient of variation is the way's."""
    return float(np.sqrt(np.log1p(way.cv**2)))


def _draws(way: Way, sigma: float, number: int, rng: np.random.Generator) -> Floats:
    if way.shape == "deterministic" or (way.shape == "lognormal" and sigma == 0.0):
        return np.full(number, way.mean_s)
    if way.shape == "exponential":
        return rng.standard_exponential(number) * way.mean_s
    # Mean of exp(σ z - σ²/2) is 1.
    values = rng.standard_normal(number)
    values *= sigma
    values -= 0.5 * sigma * sigma
    np.exp(values, out=values)
    values *= way.mean_s
    return values
