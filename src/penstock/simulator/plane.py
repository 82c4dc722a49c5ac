"""The simulated plane: where simulated units run, on a virtual clock.

It keeps no book of hosts, leases or instances: the fleet does. Here is only what really happens below it,
as executors do on a cluster: they start on their host, serve, retire, crash and are started again while they
are wanted. Everything is determined by the topology, the seed and what is wanted.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.fleet.deployment import Host, HostState, InstanceState
from penstock.fleet.ports import SeenInstance, Submission, UnitReport, Wanted, WantedInstance
from penstock.fleet.units import UnitState
from penstock.infrastructure.placement import Room
from penstock.monitoring.measurements import InstanceReading, Measurement
from penstock.simulator.faults import Fault
from penstock.simulator.flows import distance_s, readers_of
from penstock.simulator.provider import SimulatedProvider, simulated_times
from penstock.simulator.station import Station, Window
from penstock.simulator.traffic import Traffic
from penstock.topology.model import Site, Topology
from penstock.workload import Workload
from penstock.workload.arrivals import Process

_SHOWN = frozenset({InstanceState.STARTING, InstanceState.RUNNING, InstanceState.RETIRING})


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """What a simulated run adds to the topology: noise, arrivals, faults."""

    seed: int = 1
    process: Process = "regular"
    """How records arrive: `regular` (evenly, following the rate) or `poisson`."""
    reading_noise: float = 0.05
    """Standard deviation of the noise on utilisation readings."""
    memory_noise: float | None = None
    """The same of memory alone; as `reading_noise` where it is not known."""
    memory_idle_ratio: float = 0.35
    """Memory an instance uses when it does nothing, as a share of its own."""
    memory_load_ratio: float = 0.3
    """Memory added at full load."""
    faults: tuple[Fault, ...] = ()
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    """Workloads by source, in place of the topology's."""
    steady_service: bool = False
    """Whether the work on a record is measured as its mean, for what varies is its wait for a micro-batch."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """By source, how many slots of a unit can read it at a time; any number where it is not said."""


@dataclass(slots=True)
class _Executor:
    """One start of an instance: it waits for room, starts, serves, retires."""

    id: str
    wanted: WantedInstance
    unit: str
    host: str | None
    state: InstanceState = InstanceState.REQUESTED
    running_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Slowdown:
    """How many times longer everything takes on a host, and until when."""

    factor: float
    until_s: float


class SimulatedPlane:
    """Units on a virtual clock. It catches up with the clock whenever it is asked or told something."""

    def __init__(self, topology: Topology, settings: SimulationSettings | None = None) -> None:
        self.topology = topology
        self.settings = settings = settings or SimulationSettings()
        seeds = np.random.SeedSequence(settings.seed).spawn(4)
        self.traffic = Traffic(
            topology, settings.seed, settings.process, settings.workloads, seeds[0], self._delay_s
        )
        for unit, station in self.traffic.stations.items():
            station.partitions = readers_of(topology, unit, settings.partitions)
            station.steady = settings.steady_service
        self._noise = np.random.default_rng(seeds[1])
        self._times = np.random.default_rng(seeds[2])
        self._parameters = {site.name: simulated_times(site.provider) for site in topology.sites}
        self.providers = {
            site.name: SimulatedProvider(site, self._parameters[site.name], np.random.default_rng(seed))
            for site, seed in zip(topology.sites, seeds[3].spawn(len(topology.sites)), strict=True)
        }
        for provider in self.providers.values():
            provider.when_gone.append(self._host_gone)
            provider.when_taken.append(lambda host, at_s: self._at(at_s, "taken", "", host))
        self._observed_s = 0.0
        self._units: dict[str, dict[str, _Executor]] = {unit.name: {} for unit in topology.units}
        """What runs or waits for room of each unit, by the fleet's names."""
        self._attempts: dict[str, int] = {}
        """Which attempt runs of every unit that was submitted."""
        self._shown: dict[str, tuple[SeenInstance, ...]] = dict.fromkeys(self._units, ())
        self._changed: set[str] = set()
        self._images: dict[str, set[str]] = {}
        self._slow: dict[str, _Slowdown] = {}
        self._used: dict[str, Room] = {}
        """Cores and memory taken on each host by what starts, runs or retires."""
        self._queue_for_room: list[_Executor] = []
        self._closed: list[tuple[str, str]] = []
        self._events: list[tuple[float, int, str, str, str]] = []
        self._event_number = 0
        self._starts: Counter[str] = Counter()
        self._notices: list[str] = []
        for number, fault in enumerate(settings.faults):
            self._at(fault.at_s, "fault", "", str(number))

    @property
    def stations(self) -> Mapping[str, Station]:
        """The queue and the slots of every unit."""
        return self.traffic.stations

    # -- the port --------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """A simulated application runs at once; what an earlier attempt had running ends with it."""
        unit = submission.unit
        if self._attempts.get(unit, submission.attempt) != submission.attempt:
            for executor in tuple(self._units[unit].values()):
                self._drop(executor)
        self._attempts[unit] = submission.attempt
        self.tell(unit, submission.wanted, self.traffic.now_s)

    def tell(self, unit: str, wanted: Wanted, now_s: float) -> None:
        """Start what is missing, retire and drop what is not wanted any more."""
        self._catch_up(now_s)
        mine = self._units[unit]
        names = {instance.name for instance in wanted.instances}
        going = {*wanted.retire, *wanted.kill}
        for executor in [e for name, e in mine.items() if name not in names or e.id in going]:
            if executor.id in wanted.kill:
                self._drop(executor)
            elif executor.id in wanted.retire:
                self._retire(executor)
            elif executor.state is not InstanceState.RETIRING:
                self._drop(executor)
        for instance in wanted.instances:
            known = mine.get(instance.name)
            if known is None:
                self._wait_for_room(instance, unit)
            elif known.state is InstanceState.REQUESTED and known.host != instance.host:
                known.wanted, known.host = instance, instance.host
            elif known.wanted.cores != instance.cores:
                self._resize(known, instance)
        self._give_room(self.traffic.now_s)

    def reports(self, now_s: float) -> tuple[Sequence[UnitReport], Sequence[str]]:
        """Catch up with the clock and tell what happened since the last time."""
        self._catch_up(now_s)
        for unit in self._changed:
            self._shown[unit] = tuple(
                SeenInstance(e.id, e.state, e.host, e.running_s, e.wanted.name)
                for e in self._units[unit].values()
                if e.state in _SHOWN
            )
        self._changed.clear()
        measured = self._measured(now_s)
        reports = [
            UnitReport(
                unit, now_s, UnitState.RUNNING, f"{unit}-{attempt}", self._shown[unit], measured.get(unit)
            )
            for unit, attempt in self._attempts.items()
        ]
        notices, self._notices = self._notices, []
        return reports, notices

    def _measured(self, now_s: float) -> dict[str, Measurement]:
        interval_s = now_s - self._observed_s
        if interval_s <= 0:
            return {}
        stations, emitted, sent = self.traffic.stations, self.traffic.emitted, self.traffic.emitted_by
        windows = {unit: station.read(now_s, interval_s) for unit, station in stations.items()}
        readings = self._readings(windows)
        self._observed_s = now_s
        found = {
            unit: stations[unit].measured(
                now_s, interval_s, emitted.get(unit, 0), window, readings[unit], sent.get(unit)
            )
            for unit, window in windows.items()
        }
        emitted.clear()
        return found

    # -- starting and going ----------------------------------------------------------------------

    def _wait_for_room(self, instance: WantedInstance, unit: str) -> None:
        self._starts[instance.name] += 1
        number = self._starts[instance.name]
        # Its first start bears its name; a later one must be told apart from it.
        identity = instance.name if number == 1 else f"{instance.name}.{number}"
        executor = _Executor(identity, instance, unit, instance.host)
        self._units[unit][instance.name] = executor
        self._queue_for_room.append(executor)

    def _give_room(self, at_s: float) -> None:
        """Start what waits for room, in the order it was asked for."""
        still: list[_Executor] = []
        for executor in self._queue_for_room:
            if self._units[executor.unit].get(executor.wanted.name) is not executor:
                continue
            host = executor.host or self._any_host(executor)
            if host is None or not self._room(host).holds(executor.wanted.cores, executor.wanted.memory_mib):
                still.append(executor)
                continue
            self._begin(executor, host, at_s)
        self._queue_for_room = still

    def _begin(self, executor: _Executor, host: str, at_s: float) -> None:
        known = self._host(host)
        assert known is not None
        times = self._parameters[known.site]
        up_s = self.providers[known.site].up_s(host)
        start_s = float(self._times.uniform(times.instance_start_least_s, times.instance_start_most_s))
        images = self._images.setdefault(host, set())
        if executor.unit not in images:
            start_s += times.image_pull_s
            images.add(executor.unit)
        running_s = max(at_s, up_s) + start_s
        executor.state, executor.host = InstanceState.STARTING, host
        self._changed.add(executor.unit)
        wanted = executor.wanted
        self._used[host] = self._used.get(host, Room(0.0, 0)).more(wanted.cores, wanted.memory_mib)
        slowdown = self._slow.get(host, _Slowdown(1.0, 0.0)).factor
        slots = self.topology.slots_of(executor.unit, wanted.cores)
        self.stations[executor.unit].add_slots(executor.id, running_s, slowdown, slots)
        self._at(running_s, "running", executor.unit, executor.id)

    def _resize(self, executor: _Executor, wanted: WantedInstance) -> None:
        """It has other slots from now on, in place; a slot takes no time to come and none to go."""
        before, executor.wanted = executor.wanted, wanted
        if executor.state not in _SHOWN or executor.host is None:
            return
        used = self._used[executor.host].less(before.cores, before.memory_mib)
        self._used[executor.host] = used.more(wanted.cores, wanted.memory_mib)
        slots = self.topology.slots_of(executor.unit, wanted.cores)
        self.stations[executor.unit].resize(executor.id, slots, self.traffic.now_s)

    def _retire(self, executor: _Executor) -> None:
        """It takes nothing new, finishes what it has begun, and goes; one that starts is gone at once."""
        if executor.state is InstanceState.RETIRING:
            return
        if executor.state is not InstanceState.RUNNING:
            self._drop(executor)
            return
        last_s = self.stations[executor.unit].close_slots(executor.id)
        executor.state = InstanceState.RETIRING
        self._changed.add(executor.unit)
        stop_s = self._parameters[self._site_of(executor.host)].instance_stop_s
        self._at(max(last_s, self.traffic.now_s) + stop_s, "gone", executor.unit, executor.id)

    def _leave(self, executor: _Executor, at_s: float) -> None:
        """It has finished its last record; its closed slots go once serving gets here."""
        self._closed.append((executor.unit, executor.id))
        self._forget(executor, at_s)

    def _drop(self, executor: _Executor) -> int:
        """It is no more, from now on; how many records it held and gave back."""
        shown = executor.state in _SHOWN
        put_back = self.stations[executor.unit].remove_slots(executor.id) if shown else 0
        self._forget(executor, self.traffic.now_s)
        return put_back

    def _forget(self, executor: _Executor, at_s: float) -> None:
        del self._units[executor.unit][executor.wanted.name]
        self._changed.add(executor.unit)
        if executor.host is not None and executor.state in _SHOWN:
            wanted = executor.wanted
            self._used[executor.host] = self._used[executor.host].less(wanted.cores, wanted.memory_mib)
        if self._queue_for_room:
            self._give_room(at_s)

    def _host_gone(self, host: str) -> None:
        """A host was given back: what was still on it is gone with it."""
        for executor in self._on(host):
            self._drop(executor)

    # -- time ------------------------------------------------------------------------------------

    def _at(self, instant_s: float, kind: str, unit: str, subject: str) -> None:
        heapq.heappush(self._events, (instant_s, self._event_number, kind, unit, subject))
        self._event_number += 1

    def _catch_up(self, now_s: float) -> None:
        """Serve records until now, stopping only at events that change who serves from then on.

        What starts has slots that open at the right instant, and what is gone had closed its slots before:
        neither needs a stop.
        """
        while self._events and self._events[0][0] <= now_s:
            at_s, _, kind, unit, subject = heapq.heappop(self._events)
            if kind in ("running", "gone"):
                executor = self._by_id(unit, subject)
                if executor is None:
                    continue
                if kind == "gone":
                    self._leave(executor, at_s)
                elif executor.state is InstanceState.STARTING:
                    executor.state, executor.running_s = InstanceState.RUNNING, at_s
                    self._changed.add(unit)
                continue
            self.traffic.serve(at_s)
            if kind == "fault":
                self.strike(self.settings.faults[int(subject)])
            elif kind == "taken":
                self.strike(Fault(at_s, "host_crash", subject))
            elif subject in self._slow and self._slow[subject].until_s <= at_s:
                del self._slow[subject]
                self._set_speed(subject, 1.0)
        self.traffic.serve(now_s)
        for unit, identity in self._closed:
            self.stations[unit].remove_slots(identity)
        self._closed.clear()

    # -- faults ----------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Let a fault happen now."""
        if fault.kind == "instance_crash":
            for executor in self._executors():
                named = fault.target in (None, executor.wanted.name, executor.id)
                if executor.state in _SHOWN and named and fault.unit in (None, executor.unit):
                    self._crash(executor, "crashed")
                    return
            return
        hosts = [
            host for provider in self.providers.values() for host in provider.hosts(self.traffic.now_s)
            if host.state is HostState.UP and fault.target in (None, host.id)
        ]  # fmt: skip
        if not hosts:
            return
        host, now_s = hosts[0], self.traffic.now_s
        if fault.kind == "host_crash":
            self.providers[host.site].fail(host.id)
            for executor in self._on(host.id):
                self._crash(executor, f"died with host {host.id}")
            self._notices.append(f"host {host.id} crashed")
        else:
            # A later slowdown of the same host takes the place of an earlier one.
            self._slow[host.id] = _Slowdown(fault.factor, now_s + fault.duration_s)
            self._set_speed(host.id, fault.factor)
            self._at(now_s + fault.duration_s, "recover", "", host.id)
            self._notices.append(f"host {host.id} is {fault.factor:g} times slower")

    def _crash(self, executor: _Executor, how: str) -> None:
        """It dies. While it is wanted another is started in its place, as Spark does with executors."""
        wanted = executor.state is not InstanceState.RETIRING
        put_back = self._drop(executor)
        self._notices.append(f"instance {executor.wanted.name} {how}; {put_back} records wait again")
        if wanted:
            self._wait_for_room(executor.wanted, executor.unit)
            self._give_room(self.traffic.now_s)

    def _set_speed(self, host: str, factor: float) -> None:
        for executor in self._on(host):
            if executor.state in _SHOWN:
                self.stations[executor.unit].slow_down(executor.id, factor)

    # -- looking ---------------------------------------------------------------------------------

    def _executors(self) -> list[_Executor]:
        """All that runs or waits, oldest first."""
        found = [executor for mine in self._units.values() for executor in mine.values()]
        return sorted(found, key=lambda e: (e.running_s is None, e.running_s or 0.0))

    def _on(self, host: str) -> list[_Executor]:
        return [e for mine in self._units.values() for e in mine.values() if e.host == host]

    def _by_id(self, unit: str, identity: str) -> _Executor | None:
        mine = self._units[unit]
        known = mine.get(identity)
        if known is not None and known.id == identity:
            return known
        return next((executor for executor in mine.values() if executor.id == identity), None)

    def _readings(self, windows: Mapping[str, Window]) -> dict[str, tuple[InstanceReading, ...]]:
        """What every running instance reads on its own utilisation, by unit; all noise in one draw."""
        settings = self.settings
        load = np.concatenate([window.load for window in windows.values()])
        of_memory = settings.reading_noise if settings.memory_noise is None else settings.memory_noise
        noise = self._noise.standard_normal((2, load.size)) * [[settings.reading_noise], [of_memory]]
        noise[0] += load
        noise[1] += settings.memory_idle_ratio + settings.memory_load_ratio * load
        cpu, memory = noise.clip(0.0, 1.0).tolist()
        found, begin = {}, 0
        for unit, window in windows.items():
            end = begin + len(window.names)
            mine = self._units[unit]
            names = [name if name in mine else self._name_of(unit, name) for name in window.names]
            rows = map(InstanceReading, names, cpu[begin:end], memory[begin:end], window.executed)
            found[unit] = tuple(rows)
            begin = end
        return found

    def _name_of(self, unit: str, identity: str) -> str:
        executor = self._by_id(unit, identity)
        return identity if executor is None else executor.wanted.name

    def _host(self, host: str) -> Host | None:
        for provider in self.providers.values():
            known = provider.host(host, self.traffic.now_s)
            if known is not None:
                return known
        return None

    def _site_of(self, host: str | None) -> str:
        known = None if host is None else self._host(host)
        return known.site if known is not None else self.topology.sites[0].name

    def _room(self, host: str) -> Room:
        """Room on a host now: what starts, runs or still retires takes its part."""
        known = self._host(host)
        if known is None or known.state is HostState.FAILED:
            return Room(0.0, 0)
        used = self._used.get(host, Room(0.0, 0))
        return Room(known.flavour.cores - used.cores, known.flavour.memory_mib - used.memory_mib)

    def _any_host(self, executor: _Executor) -> str | None:
        for site in self.topology.sites_of(executor.unit):
            for host in self.providers[site.name].hosts(self.traffic.now_s):
                if self._room(host.id).holds(executor.wanted.cores, executor.wanted.memory_mib):
                    return host.id
        return None

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
            self._site_of(e.host) for e in self._units[unit].values() if e.state is InstanceState.RUNNING
        )
        return max(allowed, key=lambda site: running[site.name])
