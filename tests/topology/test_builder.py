"""The builder and the file say the same words and give the same topology."""

from __future__ import annotations

from decimal import Decimal

import pytest
import yaml
from hypothesis import given, settings

from penstock.errors import ConfigurationError, TopologyError
from penstock.runs.known import known_names
from penstock.topology.builder import TopologyBuilder
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Choice, Operator, Source, Topology
from tests.topology.strategies import topologies
from tests.topology.test_file import FULL


def test_a_built_topology_equals_that_of_the_file():
    built = (
        TopologyBuilder("clicks")
        .source(
            "clicks",
            workload=Choice("sine", {"mean_per_s": 100.0, "period_s": "10 min"}),
            share=0.5,
            schema="user string",
        )
        .operator("parse", "clicks", function="jobs:parse", slo="500 ms", service="20 ms", on_error="skip")
        .operator(
            "count",
            "parse",
            "clicks",
            slo=2,
            cores=0.5,
            memory="1 GiB",
            stateful=True,
            ratio=0.01,
            service={"mean": "30 ms", "cv": 1, "shape": "exponential"},
            schema="count long",
        )
        .sink("out", "count", function="jobs:write")
        .unit(
            "all",
            "parse",
            "count",
            sites=["edge"],
            policy=Choice("threshold", {"up_queue": 20}),
            filter="gaussian",
            min_instances=2,
            max_instances=8,
            slots=2,
            channel="broker",
        )
        .site(
            "cloud",
            provider=Choice("simulated", {"image_pull_s": 60}),
            btu="10 min",
            flavours={
                "small": {"cores": 2, "memory": "4 GiB", "price": "0.60 USD/h"},
                "big": {"cores": 8, "memory": "16 GiB", "price": Decimal(3), "max_hosts": 2},
            },
            distance={"edge": 0.02},
        )
        .site("edge", max_hosts=3)
        .channel("broker", kind="kafka", partitions=8)
        .channel("files")
        .latency_bound("2 s", source="clicks", sink="out")
        .loop(monitoring="10 s", provisioning=60, blackout=["22:00-06:30"])
        .loop(largest_step=3, penalty=Decimal("0.001"))
        .make(known_names())
    )
    assert built == parse_topology(FULL, known_names())


@settings(max_examples=15, deadline=None)
@given(topologies())
def test_every_topology_can_be_built(topology):
    document = yaml.safe_load(dump_topology(topology))
    builder = TopologyBuilder(topology.name)
    for section, add in (
        ("sources", builder.source),
        ("operators", builder.operator),
        ("sinks", builder.sink),
        ("units", builder.unit),
        ("sites", builder.site),
        ("channels", builder.channel),
    ):
        for name, keys in document.get(section, {}).items():
            add(name, **keys)
    for bound in document.get("latency_bounds", ()):
        builder.latency_bound(**bound)
    builder.loop(**document.get("loop", {}))
    assert builder.make() == topology


def test_the_smallest_builder_takes_the_defaults():
    built = TopologyBuilder("tiny").source("clicks").operator("count", "clicks").make()
    assert built == Topology("tiny", (Source("clicks"),), (Operator("count", ("clicks",)),))


def test_a_policy_for_all_units():
    built = (
        TopologyBuilder("t").source("s").operator("a", "s").policy("fixed").filter(Choice("gaussian")).make()
    )
    assert (built.units[0].policy, built.units[0].filter) == (Choice("fixed"), Choice("gaussian"))


def test_all_mistakes_of_a_built_topology_are_told_without_lines():
    builder = (
        TopologyBuilder("wrong")
        .source("s", workload="sin")
        .operator("a", "s", slo="5 parsecs")
        .operator("a", "s")
        .operator("b", "sss", slo=0)
    )
    with pytest.raises(TopologyError) as refused:
        builder.make(known_names())
    assert {m.code for m in refused.value.mistakes} == {
        "unknown-workload", "wrong-quantity", "doubled-name", "dangling-input", "not-positive",
    }  # fmt: skip
    assert all(m.file is None and m.line is None for m in refused.value.mistakes)


def test_a_value_no_file_could_hold_is_refused():
    with pytest.raises(ConfigurationError, match="expected numbers, text, lists and mappings"):
        TopologyBuilder("t").source("s").operator("a", "s", slo=object()).make()


@pytest.mark.parametrize("slo", [[16**5000], 16**5000], ids=["in a list", "alone"])
def test_a_number_of_thousands_of_digits_is_refused(slo):
    with pytest.raises(ConfigurationError, match="a dict that is too long to show"):
        TopologyBuilder("t").source("s").operator("a", "s", slo=slo).make()
