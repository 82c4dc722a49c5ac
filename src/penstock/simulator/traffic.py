"""Records on their way: drawn by the sources, served by the stations, sent on along the edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.simulator.flows import Edge, Entry, flows_of
from penstock.simulator.kernel import BINS, add_to_histogram, passed_on
from penstock.simulator.station import Finished, Floats, Station
from penstock.topology.model import Topology
from penstock.workload import ArrivalStream, RateCurve, Workload, make_workload
from penstock.workload.arrivals import Process


class Traffic:
    """Every station of a topology and the records that go through them, up to an instant."""

    def __init__(
        self,
        topology: Topology,
        seed: int,
        process: Process,
        workloads: Mapping[str, Workload],
        services: np.random.SeedSequence,
        delay_s: Callable[[str, str], float],
    ) -> None:
        """`delay_s` is how long a record travels from one unit to another, now."""
        self.topology = topology
        self._seed = seed
        self._process = process
        self._workloads = workloads
        self._delay_s = delay_s
        flows, entries = flows_of(topology)
        self.stations = {
            flow.unit: Station(flow, unit.slots, np.random.default_rng(drawn), unit.places)
            for flow, drawn in zip(flows, services.spawn(len(flows)), strict=True)
            for unit in (topology.unit_by_name[flow.unit],)
        }
        self._edges: dict[str, tuple[Edge, ...]] = {flow.unit: flow.edges for flow in flows}
        self._carry: dict[tuple[str, int], float] = {}
        self._streams = self._open_streams(entries)
        self.now_s = 0.0
        self.emitted: dict[str, int] = {}
        """Records each unit sent on since somebody cleared this."""
        self.emitted_by: dict[str, dict[str, int]] = {
            flow.unit: {edge.operator: 0 for edge in flow.edges} for flow in flows if len(flow.edges) > 1
        }
        """The same by operator, each record once; of units with one way out that is all they sent."""
        self.end_to_end = np.zeros(BINS)
        self.end_to_end_sum_s = 0.0
        self.delivered = 0
        self.emitted_by_sources = {source.name: 0 for source in topology.sources}

    def serve(self, end_s: float) -> None:
        """Let records arrive and be served until an instant."""
        begin_s = self.now_s
        if end_s <= begin_s:
            return
        for name, (stream, targets) in self._streams.items():
            arrival = stream.until(end_s)
            self.emitted_by_sources[name] += int(arrival.size)
            for unit, way in targets:
                self.stations[unit].receive(arrival, arrival, way, name)
        for unit, station in self.stations.items():
            finished = station.step(begin_s, end_s)
            self._send_on(unit, station, finished)
        self.now_s = end_s

    def _send_on(self, unit: str, station: Station, finished: Finished) -> None:
        if not finished.end_s.size:
            return
        single = len(station.flow.ways) == 1
        for number, edge in enumerate(self._edges[unit]):
            if single:
                end_s, origin_s = finished.end_s, finished.origin_s
            else:
                mine = finished.way == edge.way
                end_s, origin_s = finished.end_s[mine], finished.origin_s[mine]
            if edge.ratio != 1.0:
                end_s, origin_s = self._passed_on((unit, number), edge.ratio, end_s, origin_s)
            if not end_s.size:
                continue
            self.emitted[unit] = self.emitted.get(unit, 0) + int(end_s.size)
            if edge.first and unit in self.emitted_by:
                self.emitted_by[unit][edge.operator] += int(end_s.size)
            if edge.target is None:
                self._deliver(end_s - origin_s)
            else:
                delay_s = self._delay_s(unit, edge.target)
                arrival_s = end_s + delay_s if delay_s else end_s
                self.stations[edge.target].receive(arrival_s, origin_s, edge.target_way, edge.operator)

    def _passed_on(
        self, edge: tuple[str, int], ratio: float, end_s: Floats, origin_s: Floats
    ) -> tuple[Floats, Floats]:
        """The records sent on: on average `ratio` for each, spread evenly, the rest carried to the next."""
        carry = self._carry.get(edge, 0.0)
        due = carry + ratio * end_s.size
        # The tolerance keeps 300 × 1/300 from missing the whole by one bit.
        whole = int(due + 1e-9)
        self._carry[edge] = due - whole
        if whole == 0:
            return end_s[:0], origin_s[:0]
        sent: tuple[Floats, Floats] = passed_on(end_s, origin_s, ratio, carry, whole)
        return sent

    def _deliver(self, latency_s: NDArray[np.float64]) -> None:
        self.end_to_end_sum_s += add_to_histogram(latency_s, self.end_to_end)
        self.delivered += int(latency_s.size)

    def _open_streams(self, entries: Sequence[Entry]) -> dict[str, tuple[_Arrivals, list[tuple[str, int]]]]:
        streams = {}
        rngs = np.random.SeedSequence([self._seed, 7]).spawn(len(self.topology.sources))
        for source, seed in zip(self.topology.sources, rngs, strict=True):
            workload = self._workloads.get(source.name)
            if workload is None:
                if source.workload is None:
                    raise ConfigurationError(
                        f"source {source.name} has no workload; a simulated run needs one for every source"
                    )
                workload = make_workload(source.workload)
            targets = [(entry.unit, entry.way) for entry in entries if entry.source == source.name]
            rng = np.random.default_rng(seed)
            if source.share != 1.0:
                workload = _Share(workload, source.share)
            stream = ArrivalStream(workload, rng, self._process)
            streams[source.name] = (_Arrivals(stream), targets)
        return streams


class _Arrivals:
    """A source's arrivals, drawn for some minutes ahead: many small draws cost more than a large one."""

    AHEAD_S = 300.0

    def __init__(self, stream: ArrivalStream) -> None:
        self._stream = stream
        self._ready: NDArray[np.float64] = np.empty(0)
        self._drawn_s = 0.0

    def until(self, end_s: float) -> NDArray[np.float64]:
        """The arrivals from where the last call ended up to an instant."""
        if end_s > self._drawn_s:
            self._drawn_s = end_s + self.AHEAD_S
            self._ready = np.concatenate((self._ready, self._stream.until(self._drawn_s)))
        cut = int(np.searchsorted(self._ready, end_s, side="left"))
        taken, self._ready = self._ready[:cut], self._ready[cut:]
        return taken


class _Share:
    """A workload of which a source emits a share."""

    name: ClassVar[str] = "share"

    def __init__(self, workload: Workload, share: float) -> None:
        self._workload = workload
        self.curve: RateCurve = workload.curve.scaled(share, 1.0)

    def rate_per_s(self, t_s: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.curve.rate_per_s(t_s)

    def duration_s(self) -> float | None:
        return self._workload.duration_s()
