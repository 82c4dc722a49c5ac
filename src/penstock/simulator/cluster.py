"""The simulated cluster: the adapter through which the one control loop drives simulated hosts and queues.

It keeps no model of its own of hosts, leases or instances; it moves the shared ones along their
transition tables as virtual time passes, and serves records meanwhile. Everything is determined by the
topology, the seed and the actions.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.controller.cluster import Observation, Outcome
from penstock.errors import ConfigurationError
from penstock.infrastructure.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.infrastructure.placement import Room
from penstock.infrastructure.providers import SimulatedParameters, SimulatedProvider, provider_parameters
from penstock.monitoring.measurements import InstanceReading
from penstock.policies.actions import (
    Action,
    LeaseHost,
    MigrateInstance,
    ReleaseHost,
    StartInstance,
    StopInstance,
)
from penstock.simulator.faults import Fault
from penstock.simulator.flows import Edge, Entry, distance_s, flows_of
from penstock.simulator.kernel import BINS, add_to_histogram, passed_on
from penstock.simulator.station import Finished, Floats, Station, Window
from penstock.topology.model import Choice, Site, Topology
from penstock.workload import ArrivalStream, RateCurve, Workload, make_workload
from penstock.workload.arrivals import Process

SERVING = frozenset({InstanceState.STARTING, InstanceState.RUNNING, InstanceState.RETIRING})


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """What a simulated run adds to the topology: noise, arrivals, faults."""

    seed: int = 1
    process: Process = "regular"
    """How records arrive: `regular` (evenly, following the rate) or `poisson`."""
    reading_noise: float = 0.05
    """Standard deviation of the noise on utilisation readings."""
    memory_idle_ratio: float = 0.35
    """Memory an instance uses when it does nothing, as a share of its own."""
    memory_load_ratio: float = 0.3
    """Memory added at full load."""
    faults: tuple[Fault, ...] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    """Workloads by source, in place of the topology's."""


class SimulatedCluster:
    """A cluster on a virtual clock. It catches up with the clock whenever it is observed."""

    def __init__(self, topology: Topology, settings: SimulationSettings | None = None) -> None:
        self.topology = topology
        self.settings = settings = settings or SimulationSettings()
        flows, entries = flows_of(topology)
        seeds = np.random.SeedSequence(settings.seed).spawn(4)
        service_seeds = seeds[0].spawn(len(flows))
        self.stations = {
            flow.unit: Station(flow, topology.unit_by_name[flow.unit].slots, np.random.default_rng(seed))
            for flow, seed in zip(flows, service_seeds, strict=True)
        }
        self._edges: dict[str, tuple[Edge, ...]] = {flow.unit: flow.edges for flow in flows}
        self._carry: dict[tuple[str, int], float] = {}
        self._noise = np.random.default_rng(seeds[1])
        self._times = np.random.default_rng(seeds[2])
        self._providers = {
            site.name: SimulatedProvider(_simulated_times(site.provider), np.random.default_rng(seed))
            for site, seed in zip(topology.sites, seeds[3].spawn(len(topology.sites)), strict=True)
        }
        self._parameters = {site.name: _simulated_times(site.provider) for site in topology.sites}
        self._streams = self._open_streams(entries)
        self._now_s = 0.0
        self._observed_s = 0.0
        self._instances: dict[str, Instance] = {}
        self._running_s: dict[str, float] = {}
        self._images: dict[str, set[str]] = {}
        self._slow: dict[str, _Slowdown] = {}
        self._draining: set[str] = set()
        self._shown_hosts: dict[str, tuple[tuple[Host, int, bool], Host]] = {}
        self._used: dict[str, Room] = {}
        """Cores and memory taken on each host by instances that start, run or retire."""
        self._queue_for_room: list[str] = []
        self._replaces: dict[str, str] = {}
        self._closed: list[tuple[str, str]] = []
        self._events: list[tuple[float, int, str, str]] = []
        self._event_number = 0
        self._notices: list[str] = []
        self._emitted: dict[str, int] = {}
        self.end_to_end = np.zeros(BINS)
        self.end_to_end_sum_s = 0.0
        self.delivered = 0
        self.emitted_by_sources = {source.name: 0 for source in topology.sources}
        for number, fault in enumerate(settings.faults):
            self._at(fault.at_s, "fault", str(number))

    # -- the port --------------------------------------------------------------------------------

    def observe(self, now_s: float) -> Observation:
        """Catch up with the clock and tell what happened since the last observation."""
        self._catch_up(now_s)
        interval_s = now_s - self._observed_s
        if interval_s <= 0:
            return Observation(now_s, (), self._taken_notices())
        windows = {unit: station.read(now_s, interval_s) for unit, station in self.stations.items()}
        readings = self._readings(windows)
        measurements = tuple(
            self.stations[unit].measured(
                now_s, interval_s, self._emitted.get(unit, 0), window, readings[unit]
            )
            for unit, window in windows.items()
        )
        self._observed_s = now_s
        self._emitted.clear()
        return Observation(now_s, measurements, self._taken_notices())

    def deployment(self) -> Deployment:
        """Hosts and instances as they are at the virtual instant reached so far."""
        hosts = {}
        for provider in self._providers.values():
            for host in provider.hosts(self._now_s):
                hosts[host.id] = self._shown(host)
        return Deployment(hosts, dict(self._instances))

    def enact(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Carry out actions at this instant."""
        self._catch_up(now_s)
        return tuple(Outcome(action, self._enact(action)) for action in actions)

    # -- actions ---------------------------------------------------------------------------------

    def _enact(self, action: Action) -> str | None:
        if isinstance(action, LeaseHost):
            flavour = self.topology.site_by_name[action.site].flavour(action.flavour)
            self._providers[action.site].lease(action.host, action.site, flavour, self._now_s)
        elif isinstance(action, ReleaseHost):
            self._draining.add(action.host)
            self._release_if_empty(action.host)
        elif isinstance(action, StartInstance):
            return self._start(action.instance, action.unit, action.host)
        elif isinstance(action, StopInstance):
            self._stop(action.instance)
        elif isinstance(action, MigrateInstance):
            error = self._start(action.replacement, action.unit, action.to_host)
            if error is not None:
                return error
            self._retire_when_running(action.instance, action.replacement)
        return None

    def _start(self, name: str, unit: str, host: str | None) -> str | None:
        if name in self._instances or name in self._running_s:
            return None
        if host is not None:
            known = self._host(host)
            if known is None:
                return f"host {host} does not exist"
            if known.state is HostState.FAILED or host in self._draining:
                return f"host {host} takes no instances: it failed or is being released"
        topology = self.topology
        self._instances[name] = Instance(
            name, unit, host, InstanceState.REQUESTED, topology.unit_cores(unit),
            topology.unit_memory_mib(unit), self._now_s,
        )  # fmt: skip
        self._queue_for_room.append(name)
        self._give_room(self._now_s)
        return None

    def _give_room(self, at_s: float) -> None:
        """Start the instances that wait for room, in the order they were asked for."""
        still: list[str] = []
        for name in self._queue_for_room:
            instance = self._instances.get(name)
            if instance is None or instance.state is not InstanceState.REQUESTED:
                continue
            host = instance.host or self._any_host(instance)
            if host is None or not self._room(host).holds(instance.cores, instance.memory_mib):
                still.append(name)
                continue
            self._begin(instance, host, at_s)
        self._queue_for_room = still

    def _begin(self, instance: Instance, host: str, at_s: float) -> None:
        known = self._host(host)
        assert known is not None
        times = self._parameters[known.site]
        up_s = self._providers[known.site].up_s(host)
        start_s = float(self._times.uniform(times.instance_start_least_s, times.instance_start_most_s))
        images = self._images.setdefault(host, set())
        if instance.unit not in images:
            start_s += times.image_pull_s
            images.add(instance.unit)
        running_s = max(at_s, up_s) + start_s
        self._instances[instance.id] = instance.moved(InstanceState.STARTING, host=host)
        self._running_s[instance.id] = running_s
        self._used[host] = self._used.get(host, Room(0.0, 0)).more(instance.cores, instance.memory_mib)
        slowdown = self._slow.get(host, _Slowdown(1.0, 0.0)).factor
        self.stations[instance.unit].add_slots(instance.id, running_s, slowdown)
        self._at(running_s, "running", instance.id)

    def _stop(self, name: str) -> None:
        instance = self._instances.get(name)
        if instance is None or instance.state is InstanceState.RETIRING:
            return
        if instance.state is not InstanceState.RUNNING:
            self._drop(name, InstanceState.STOPPED)
            return
        last_s = self.stations[instance.unit].close_slots(name)
        self._instances[name] = instance.moved(InstanceState.RETIRING)
        site = self._host_site(instance.host)
        self._at(max(last_s, self._now_s) + self._parameters[site].instance_stop_s, "gone", name)

    def _retire_when_running(self, name: str, replacement: str) -> None:
        new = self._instances.get(replacement)
        if new is not None and new.state is InstanceState.RUNNING:
            self._stop(name)
        else:
            self._replaces[replacement] = name

    def _leave(self, name: str, at_s: float) -> None:
        """A retired instance has finished its last record; its closed slots go once serving gets here."""
        instance = self._instances.pop(name)
        instance.moved(InstanceState.STOPPED)
        self._closed.append((instance.unit, name))
        self._free(instance, at_s)

    def _drop(self, name: str, state: InstanceState) -> int:
        """An instance is no more, from now on; how many records it held and gave back."""
        instance = self._instances.pop(name)
        instance.moved(state)
        serving = instance.state in SERVING
        put_back = self.stations[instance.unit].remove_slots(name) if serving else 0
        self._free(instance, self._now_s)
        return put_back

    def _free(self, instance: Instance, at_s: float) -> None:
        host = instance.host
        if host is not None:
            if instance.state in SERVING:
                self._used[host] = self._used[host].less(instance.cores, instance.memory_mib)
            self._release_if_empty(host)
        if self._queue_for_room:
            self._give_room(at_s)

    def _release_if_empty(self, host: str) -> None:
        if host not in self._draining:
            return
        known = self._host(host)
        if known is None:
            self._draining.discard(host)
        elif known.state is HostState.FAILED or not any(i.host == host for i in self._instances.values()):
            self._providers[known.site].release(host, self._now_s)
            self._draining.discard(host)

    # -- time ------------------------------------------------------------------------------------

    def _at(self, instant_s: float, kind: str, subject: str) -> None:
        heapq.heappush(self._events, (instant_s, self._event_number, kind, subject))
        self._event_number += 1

    def _catch_up(self, now_s: float) -> None:
        """Serve records until now, stopping only at events that change who serves from then on.

        An instance that starts has slots that open at the right instant, and one that is gone had closed
        its slots before: neither needs a stop.
        """
        while self._events and self._events[0][0] <= now_s:
            at_s, _, kind, subject = heapq.heappop(self._events)
            if kind == "running":
                if subject in self._replaces:
                    self._serve(at_s)
                self._on_running(subject, at_s)
            elif kind == "gone":
                if subject in self._instances:
                    self._leave(subject, at_s)
            else:
                self._serve(at_s)
                if kind == "fault":
                    self._strike(self.settings.faults[int(subject)])
                elif subject in self._slow and self._slow[subject].until_s <= at_s:
                    del self._slow[subject]
                    self._set_speed(subject, 1.0)
        self._serve(now_s)
        for unit, name in self._closed:
            self.stations[unit].remove_slots(name)
        self._closed.clear()

    def _on_running(self, name: str, at_s: float) -> None:
        instance = self._instances.get(name)
        if instance is None or instance.state is not InstanceState.STARTING:
            return
        self._instances[name] = instance.moved(InstanceState.RUNNING, running_s=at_s)
        predecessor = self._replaces.pop(name, None)
        if predecessor is not None:
            self._stop(predecessor)

    def _serve(self, end_s: float) -> None:
        begin_s = self._now_s
        if end_s <= begin_s:
            return
        for name, (stream, targets) in self._streams.items():
            arrival = stream.until(end_s)
            self.emitted_by_sources[name] += int(arrival.size)
            for unit, way in targets:
                self.stations[unit].receive(arrival, arrival, way)
        for unit, station in self.stations.items():
            finished = station.step(begin_s, end_s)
            self._send_on(unit, station, finished)
        self._now_s = end_s

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
            self._emitted[unit] = self._emitted.get(unit, 0) + int(end_s.size)
            if edge.target is None:
                self._deliver(end_s - origin_s)
            else:
                delay_s = self._delay_s(unit, edge.target)
                arrival_s = end_s + delay_s if delay_s else end_s
                self.stations[edge.target].receive(arrival_s, origin_s, edge.target_way)

    def _delay_s(self, unit: str, target: str) -> float:
        """How long a record travels between two units: between the sites most of each runs at."""
        if len(self.topology.sites) == 1:
            return 0.0
        return distance_s(self._main_site(unit), self._main_site(target))

    def _main_site(self, unit: str) -> Site:
        allowed = self.topology.sites_of(unit)
        if len(allowed) == 1:
            return allowed[0]
        running = Counter(
            self._host_site(i.host) for i in self._instances.values()
            if i.unit == unit and i.state is InstanceState.RUNNING
        )  # fmt: skip
        return max(allowed, key=lambda site: running[site.name])

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

    # -- faults ----------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "instance_crash":
            running = [
                i for i in self._instances.values()
                if i.state in SERVING and fault.target in (None, i.id) and fault.unit in (None, i.unit)
            ]  # fmt: skip
            if running:
                self._crash(running[0], "crashed")
            return
        hosts = [
            host for provider in self._providers.values() for host in provider.hosts(self._now_s)
            if host.state is HostState.UP and fault.target in (None, host.id)
        ]  # fmt: skip
        if not hosts:
            return
        host = hosts[0]
        if fault.kind == "host_crash":
            self._providers[host.site].fail(host.id)
            for instance in [i for i in self._instances.values() if i.host == host.id]:
                self._crash(instance, f"died with host {host.id}")
            self._notices.append(f"host {host.id} crashed")
        else:
            # A later slowdown of the same host takes the place of an earlier one.
            self._slow[host.id] = _Slowdown(fault.factor, self._now_s + fault.duration_s)
            self._set_speed(host.id, fault.factor)
            self._at(self._now_s + fault.duration_s, "recover", host.id)
            self._notices.append(f"host {host.id} is {fault.factor:g} times slower")

    def _crash(self, instance: Instance, how: str) -> None:
        self._queue_for_room = [name for name in self._queue_for_room if name != instance.id]
        put_back = self._drop(instance.id, InstanceState.FAILED)
        self._notices.append(f"instance {instance.id} {how}; {put_back} records wait again")

    def _set_speed(self, host: str, factor: float) -> None:
        for instance in self._instances.values():
            if instance.host == host and instance.state in SERVING:
                self.stations[instance.unit].slow_down(instance.id, factor)

    # -- looking ---------------------------------------------------------------------------------

    def _readings(self, windows: Mapping[str, Window]) -> dict[str, tuple[InstanceReading, ...]]:
        """What every running instance reads on its own utilisation, by unit; all noise in one draw."""
        settings = self.settings
        load = np.concatenate([window.load for window in windows.values()])
        noise = self._noise.standard_normal((2, load.size)) * settings.reading_noise
        noise[0] += load
        noise[1] += settings.memory_idle_ratio + settings.memory_load_ratio * load
        cpu, memory = noise.clip(0.0, 1.0).tolist()
        found, begin = {}, 0
        for unit, window in windows.items():
            end = begin + len(window.names)
            rows = map(InstanceReading, window.names, cpu[begin:end], memory[begin:end], window.executed)
            found[unit] = tuple(rows)
            begin = end
        return found

    def _shown(self, host: Host) -> Host:
        """A host with its images, draining where it is; kept until something about it changes."""
        images = self._images.get(host.id, ())
        draining = host.id in self._draining and host.state in (HostState.STARTING, HostState.UP)
        key = (host, len(images), draining)
        known = self._shown_hosts.get(host.id)
        if known is None or known[0] != key:
            shown = replace(host, images=frozenset(images)) if images else host
            known = (key, shown.moved(HostState.DRAINING) if draining else shown)
            self._shown_hosts[host.id] = known
        return known[1]

    def _host(self, host: str) -> Host | None:
        for provider in self._providers.values():
            known = provider.host(host, self._now_s)
            if known is not None:
                return known
        return None

    def _host_site(self, host: str | None) -> str:
        known = None if host is None else self._host(host)
        return known.site if known is not None else self.topology.sites[0].name

    def _room(self, host: str) -> Room:
        """Room on a host now: instances that start, run or still retire take theirs."""
        known = self._host(host)
        if known is None or known.state is HostState.FAILED or host in self._draining:
            return Room(0.0, 0)
        used = self._used.get(host, Room(0.0, 0))
        return Room(known.flavour.cores - used.cores, known.flavour.memory_mib - used.memory_mib)

    def _any_host(self, instance: Instance) -> str | None:
        for site in self.topology.sites_of(instance.unit):
            for host in self._providers[site.name].hosts(self._now_s):
                if self._room(host.id).holds(instance.cores, instance.memory_mib):
                    return host.id
        return None

    def _taken_notices(self) -> tuple[str, ...]:
        taken, self._notices = tuple(self._notices), []
        return taken

    def _open_streams(self, entries: Sequence[Entry]) -> dict[str, tuple[_Arrivals, list[tuple[str, int]]]]:
        streams = {}
        rngs = np.random.SeedSequence([self.settings.seed, 7]).spawn(len(self.topology.sources))
        for source, seed in zip(self.topology.sources, rngs, strict=True):
            workload = self.settings.workloads.get(source.name)
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
            stream = ArrivalStream(workload, rng, self.settings.process)
            streams[source.name] = (_Arrivals(stream), targets)
        return streams


@dataclass(frozen=True, slots=True)
class _Slowdown:
    """How many times longer everything takes on a host, and until when."""

    factor: float
    until_s: float


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


def _simulated_times(choice: Choice) -> SimulatedParameters:
    """The times of a site; a site that is not simulated is given the default times."""
    parameters = provider_parameters(choice)
    return parameters if isinstance(parameters, SimulatedParameters) else SimulatedParameters()
