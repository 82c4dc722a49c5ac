"""Random topologies that are right, for properties that must hold for all of them."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from penstock.topology.model import (
    Channel,
    Choice,
    HostFlavour,
    LatencyBound,
    LoopSettings,
    Operator,
    Service,
    Sink,
    Site,
    Source,
    Topology,
    Unit,
)

seconds = st.one_of(
    st.integers(1, 10**6).map(lambda n: n / 1000), st.floats(1e-3, 1e6, allow_nan=False), st.just(0.7)
)
amounts = st.decimals("0", "100", places=4, allow_nan=False)
functions = st.none() | st.sampled_from(["jobs:run", "jobs.clicks:count_all"])
choices = st.sampled_from(
    [
        Choice("threshold"),
        Choice("threshold", {"up_queue": 20}),
        Choice("fixed"),
        Choice("own", {"flag": True, "levels": (1, 2.5), "word": "on", "nothing": None, "wait_s": 3.5}),
    ]
)
workloads = st.none() | st.sampled_from(
    [Choice("sine"), Choice("stepwise", {"levels_per_s": (1.0, 2.0), "hold_s": 60.0})]
)
services = st.none() | st.builds(
    Service, seconds, st.floats(0, 3), st.sampled_from(["lognormal", "exponential", "deterministic"])
)


@st.composite
def sites(draw) -> tuple[Site, ...]:
    if draw(st.booleans()):
        return (Site("local"),)
    names = [f"site_{i}" for i in range(draw(st.integers(1, 3)))]
    currency = draw(st.sampled_from(["USD", "EUR"]))
    return tuple(
        Site(
            name,
            draw(st.sampled_from([Choice("simulated"), Choice("simulated", {"image_pull_s": 3.0})])),
            btu_s=draw(seconds),
            flavours=tuple(
                HostFlavour(
                    f"flavour_{i}",
                    draw(st.floats(64, 128)),
                    2**20,
                    draw(amounts),
                    draw(st.none() | st.just(3)),
                )
                for i in range(draw(st.integers(1, 2)))
            ),
            max_hosts=draw(st.integers(1, 100)),
            currency=draw(st.sampled_from(["", currency])),
            distance_s={other: draw(seconds) for other in names if other != name and draw(st.booleans())},
            master=draw(st.none() | st.just("spark://here:7077")),
        )
        for name in names
    )


@st.composite
def topologies(draw) -> Topology:
    """A topology without mistakes: inputs lead back, so there is no cycle; every source is taken."""
    sources = [
        Source(
            f"source_{i}",
            draw(functions),
            draw(workloads),
            draw(st.none() | st.just("user string, at timestamp")),
            draw(st.floats(0.01, 10)),
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    known = [source.name for source in sources]
    places = draw(sites())
    # Where real executors run, cores are whole and no instance is smaller than Spark's least.
    real = any(site.master is not None for site in places)
    operators: list[Operator] = []
    for i in range(draw(st.integers(1, 6))):
        # The first operator takes every source, so none is left over.
        inputs = (
            known if i == 0 else draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        )
        operators.append(
            Operator(
                f"operator_{i}",
                tuple(inputs),
                draw(functions),
                draw(seconds),
                1.0 if real else draw(st.floats(0.01, 1)),  # four slots of it fit the default host
                draw(st.integers(512 if real else 1, 1024)),
                draw(st.booleans()),
                draw(st.floats(0, 5)),
                draw(services),
                draw(st.none() | st.just("count long")),
                draw(st.sampled_from(["stop", "skip", "retry"])),
            )
        )
        known = [*known, operators[-1].name]
    sinks = [
        Sink(f"sink_{i}", (draw(st.sampled_from(operators)).name,), draw(functions))
        for i in range(draw(st.integers(0, 2)))
    ]
    channels = draw(
        st.sampled_from(
            [
                (Channel("files"),),
                (Channel("fast", "kafka", {"partitions": 4}), Channel("slow", "files", {"format": "json"})),
            ]
        )
    )
    units = []
    # Operators in a row make a unit, so units cannot wait for each other in a circle.
    rest = [operator.name for operator in operators]
    while rest and draw(st.booleans()):
        size = draw(st.integers(1, len(rest)))
        least = draw(st.integers(0, 3))
        most = draw(st.integers(max(1, least), 60))
        units.append(
            Unit(
                f"unit_{len(units)}" if draw(st.booleans()) or size > 1 else rest[0],
                tuple(rest[:size]),
                tuple(draw(st.lists(st.sampled_from([s.name for s in places]), unique=True, max_size=2))),
                draw(choices),
                draw(st.sampled_from([Choice("none"), Choice("gaussian", {"window_s": 30.0})])),
                least,
                most,
                draw(st.integers(least, most)),
                draw(st.integers(1, 4)),
                draw(st.none() | st.sampled_from([channel.name for channel in channels])),
            )
        )
        rest = rest[size:]
    loop = draw(
        st.just(LoopSettings())
        | st.builds(
            LoopSettings,
            seconds,
            seconds,
            seconds,
            st.none() | st.integers(1, 9),
            st.sampled_from([(), ((22.0, 6.5),), ((0.25, 1.0), (12.0, 24.0))]),
            st.none() | st.integers(0, 1000),
            st.booleans(),
            amounts,
        )
    )
    bounds = tuple(
        LatencyBound(
            draw(seconds),
            draw(st.none() | st.sampled_from([source.name for source in sources])),
            draw(st.none() | st.sampled_from([sink.name for sink in sinks])) if sinks else None,
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    return Topology(
        draw(st.sampled_from(["clicks", "on", "1", "a name with spaces"])),
        tuple(sources),
        tuple(operators),
        tuple(sinks),
        tuple(units),
        places,
        channels,
        bounds,
        loop,
    )


def a_topology(**changes) -> Topology:
    """A small topology for examples; every part can be replaced."""
    parts = {
        "name": "small",
        "sources": (Source("clicks", workload=Choice("sine")),),
        "operators": (
            Operator("parse", ("clicks",), slo_s=0.5),
            Operator("count", ("parse",), stateful=True),
        ),
        "sinks": (Sink("out", ("count",)),),
        "units": (Unit("all", ("parse", "count"), policy=Choice("threshold", {"up_queue": 20})),),
        "sites": (
            Site("cloud", flavours=(HostFlavour("small", 4.0, 8192, Decimal("0.1")),), btu_s=600.0),
            Site("edge", flavours=(HostFlavour("box", 2.0, 4096, Decimal("0.01")),)),
        ),
    }
    return Topology(**{**parts, **changes})
