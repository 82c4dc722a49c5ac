"""Files and models say the same: reading, writing, defaults, quantities, and lines."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.quantities import duration_s
from penstock.runs.known import known_names
from penstock.topology.file import dump_topology, duration_text, load_topology, parse_topology
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
from tests.topology.strategies import topologies

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "topologies").glob("*.yaml"))

FULL = """
name: clicks
sources:
  clicks: {workload: {name: sine, mean_per_s: 6000/min, period_s: 10 min}, share: 0.5, schema: user string}
operators:
  parse: {inputs: clicks, function: "jobs:parse", slo: 500 ms, service: 20 ms, on_error: skip}
  count:
    inputs: [parse, clicks]
    slo: 2
    cores: 0.5
    memory: 1 GiB
    stateful: yes
    ratio: 1 %
    service: {mean: 30 ms, cv: 1, shape: exponential}
    schema: count long
sinks:
  out: {inputs: [count], function: "jobs:write"}
units:
  all:
    operators: [parse, count]
    sites: edge
    policy: {name: threshold, up_queue: 20}
    filter: gaussian
    min_instances: 2
    max_instances: 8
    slots: 2
    channel: broker
sites:
  cloud:
    provider: {name: simulated, image_pull_s: 1 min}
    btu: 10 min
    flavours:
      small: {cores: 2, memory: 4 GiB, price: 0.60 USD/h}
      big: {cores: 8, memory: 16 GiB, price: 3, max_hosts: 2}
    distance: {edge: 20 ms}
  edge: {max_hosts: 3}
channels:
  broker: {kind: kafka, partitions: 8}
  files: {}
latency_bounds:
  - {bound: 2 s, source: clicks, sink: out}
loop: {monitoring: 10 s, provisioning: 1 min, blackout: [22:00-06:30], largest_step: 3, penalty: 0.001 USD}
"""


def test_every_key_of_a_file_arrives_in_the_model():
    assert parse_topology(FULL) == Topology(
        "clicks",
        (
            Source(
                "clicks", None, Choice("sine", {"mean_per_s": 100.0, "period_s": 600.0}), "user string", 0.5
            ),
        ),
        (
            Operator("parse", ("clicks",), "jobs:parse", 0.5, service=Service(0.02), on_error="skip"),
            Operator(
                "count", ("parse", "clicks"), None, 2.0, 0.5, 1024, True, 0.01,
                Service(0.03, 1.0, "exponential"), "count long",
            ),
        ),
        (Sink("out", ("count",), "jobs:write"),),
        (
            Unit(
                "all", ("parse", "count"), ("edge",),
                Choice("threshold", {"up_queue": 20}), Choice("gaussian"), 2, 8, 2, 2, "broker",
            ),
        ),
        (
            Site(
                "cloud", Choice("simulated", {"image_pull_s": 60.0}), 600.0,
                (
                    HostFlavour("small", 2.0, 4096, Decimal("0.1")),
                    HostFlavour("big", 8.0, 16384, Decimal(3), 2),
                ),
                currency="USD", distance_s={"edge": 0.02},
            ),
            Site("edge", max_hosts=3),
        ),
        (Channel("broker", "kafka", {"partitions": 8}), Channel("files")),
        (LatencyBound(2.0, "clicks", "out"),),
        LoopSettings(10.0, 60.0, largest_step=3, blackout=((22.0, 6.5),), penalty=Decimal("0.001")),
    )  # fmt: skip


def test_the_smallest_useful_file_takes_everything_else_from_the_defaults(tmp_path):
    file = tmp_path / "tiny.yaml"
    file.write_text("sources:\n  clicks:\noperators:\n  count: {inputs: clicks}\n")
    assert load_topology(file) == Topology("tiny", (Source("clicks"),), (Operator("count", ("clicks",)),))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_are_right(file):
    topology = load_topology(file, known_names())
    assert parse_topology(dump_topology(topology), known_names()) == topology


def test_the_smallest_example_has_fewer_than_fifteen_lines():
    smallest = next(file for file in EXAMPLES if file.stem == "smallest")
    assert len(smallest.read_text().splitlines()) < 15


@settings(max_examples=40, deadline=None)
@given(topologies())
def test_what_is_written_reads_as_an_equal_topology(topology):
    assert parse_topology(dump_topology(topology)) == topology


@given(st.floats(1e-6, 1e9, allow_nan=False) | st.integers(0, 10**7).map(lambda n: n / 1000))
def test_a_written_duration_reads_as_the_same_number(seconds):
    assert duration_s(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500 ms"), (15, "15 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (90, "90 s")],
)
def test_a_duration_is_written_in_the_unit_a_person_would_take(seconds, text):
    assert duration_text(seconds) == text


def test_a_policy_of_the_file_is_that_of_every_unit_that_names_none():
    topology = parse_topology(
        """
policy: {name: fixed}
filter: gaussian
sources: {s: {}}
operators: {a: {inputs: s}, b: {inputs: a}, c: {inputs: b}}
units:
  first: {operators: a, policy: threshold}
  second: {operators: b}
"""
    )
    assert {unit.name: (unit.policy.name, unit.filter.name) for unit in topology.units} == {
        "first": ("threshold", "gaussian"),
        "second": ("fixed", "gaussian"),
        "c": ("fixed", "gaussian"),
    }


def test_a_unit_starts_with_its_least_number_of_instances():
    text = "sources: {s: {}}\noperators: {a: {inputs: s}}\nunits: {u: {operators: a, min_instances: 3}}\n"
    assert parse_topology(text).units[0].initial_instances == 3


def test_names_that_yaml_takes_for_something_else_stay_names():
    text = "sources: {on: {}}\noperators: {1: {inputs: on}, no: {inputs: [1]}, 2026-01-01: {inputs: no}}\n"
    topology = parse_topology(text)
    assert [operator.name for operator in topology.operators] == ["1", "no", "2026-01-01"]


def test_anchors_and_merges_can_be_used():
    text = """
sources: {s: {}}
operators:
  a: &step {inputs: s, slo: 2 s, memory: 1 GiB}
  b: {<<: *step, inputs: a, slo: 3 s}
"""
    a, b = parse_topology(text).operators
    assert (a.slo_s, b.slo_s, b.memory_mib, b.inputs) == (2.0, 3.0, 1024, ("a",))


def test_the_path_of_a_trace_is_relative_to_the_file(tmp_path):
    (tmp_path / "load.csv").write_text("t,v\n0,1\n1,2\n")
    file = tmp_path / "t.yaml"
    file.write_text("sources: {s: {workload: {name: trace, path: load.csv}}}\noperators: {a: {inputs: s}}\n")
    topology = load_topology(file, known_names())
    assert topology.sources[0].workload.parameters["path"] == str(tmp_path / "load.csv")


def test_a_missing_file_and_one_that_is_no_text_are_told(tmp_path):
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(TopologyError, match="UTF-8"):
        load_topology(tmp_path / "binary.yaml")
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(tmp_path)
