"""The simulator agrees with queueing theory: M/M/c on the mean wait, a deterministic queue exactly."""

from __future__ import annotations

import math

import pytest

from penstock.simulator import SimulationSettings, simulate
from penstock.topology.model import Choice, LoopSettings, Topology
from tests.builders import AT_ONCE, a_flavour, a_site, a_topology, an_operator

PER_S = 1000.0


def one_operator(servers: int, service_s: float, shape: str, per_s: float, monitoring_s: float) -> Topology:
    return a_topology(
        operators=[an_operator("a", service_s=service_s, shape=shape)],
        policy=Choice("fixed"),
        initial_instances=servers,
        per_s=per_s,
        sites=[a_site(times=AT_ONCE, flavours=[a_flavour(cores=64.0, memory_mib=65536)])],
        loop=LoopSettings(monitoring_s=monitoring_s, provisioning_s=monitoring_s),
    )


def mean_wait_s(servers: int, arrival_per_s: float, service_s: float) -> float:
    """Erlang C: P(wait) / (c μ - λ)."""
    offered = arrival_per_s * service_s
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    rest = sum(offered**k / math.factorial(k) for k in range(servers))
    return last / (rest + last) / (servers / service_s - arrival_per_s)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(("load", "records"), [(0.5, 1_000_000), (0.7, 1_500_000), (0.9, 4_000_000)])
def test_the_mean_wait_of_mmc_is_within_five_per_cent(servers: int, load: float, records: int) -> None:
    service_s = load * servers / PER_S
    topology = one_operator(servers, service_s, "exponential", PER_S, 100.0)
    settings = SimulationSettings(seed=5, process="poisson")
    unit = simulate(topology, settings, duration_s=records / PER_S).units["a"]
    assert unit.processed == pytest.approx(records, rel=0.01)
    wait_s = unit.durations.mean_s - service_s
    assert wait_s == pytest.approx(mean_wait_s(servers, PER_S, service_s), rel=0.05)


def test_a_deterministic_queue_below_saturation_never_waits() -> None:
    topology = one_operator(2, 0.25, "deterministic", 8.0, 15.0)
    unit = simulate(topology, duration_s=600.0).units["a"]
    # A record comes every 0.125 s, the first after 0.0625 s; two slots just keep up.
    assert (unit.arrived, unit.processed, unit.left) == (4800, 4798, 2)
    assert unit.durations.mean_s == pytest.approx(0.25, rel=1e-12)
    assert unit.compliance.real_time == unit.processed
    assert unit.largest_queue == 0


def test_a_deterministic_queue_above_saturation_grows_exactly() -> None:
    topology = one_operator(1, 0.5, "deterministic", 4.0, 15.0)
    unit = simulate(topology, duration_s=600.0).units["a"]
    # Record k comes at 0.125 + 0.25 k and is finished at 0.125 + 0.5 (k + 1): it takes 0.5 + 0.25 k.
    done = 1199
    assert (unit.arrived, unit.processed, unit.left) == (2400, done, 1201)
    assert unit.durations.mean_s == pytest.approx(0.5 + 0.25 * (done - 1) / 2, rel=1e-12)
    assert unit.largest_queue == 1200
    # The SLO is 1 s: records 0, 1 and 2 keep it, up to 6 keep twice and up to 18 five times of it.
    assert (unit.compliance.real_time, unit.compliance.near_real_time, unit.compliance.relaxed) == (3, 7, 19)
