"""Drawings show every node and every edge, and the page stands alone."""

from __future__ import annotations

import random
import re
from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given, settings
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.show import show
from penstock.topology.drawing import draw, page
from penstock.topology.file import dump_topology
from penstock.topology.layout import _inversions, layout
from penstock.topology.model import Operator, Sink, Source, Topology
from tests.fuzz.limits import within
from tests.topology.strategies import a_topology, topologies

SMALL = """\
                 ╭────────╮
                 │ s      │
                 │ source │
                 ╰────────╯
                      │
                      ▼
            ┌──────────────────┐
            │ a                │
            │ slo 1 s, ratio 1 │
            │ 1 core, 512 MiB  │
            └──────────────────┘
                      │
          ┌───────────┴──────────┐
          ▼                      ▼
┌──────────────────┐   ┌──────────────────┐
│ b                │   │ c                │
│ slo 1 s, ratio 1 │   │ slo 1 s, ratio 1 │
│ 1 core, 512 MiB  │   │ 1 core, 512 MiB  │
└──────────────────┘   └──────────────────┘
          │                      │
          │              ┌───────┘
          └────────┐     │
                   ▼     ▼
            ┌──────────────────┐
            │ d                │
            │ slo 1 s, ratio 1 │
            │ 1 core, 512 MiB  │
            └──────────────────┘
                      │
                      ▼
                  ╔══════╗
                  ║ out  ║
                  ║ sink ║
                  ╚══════╝"""


def test_a_small_topology_is_drawn_from_top_to_bottom():
    topology = Topology(
        "t",
        (Source("s"),),
        (Operator("a", ("s",)), Operator("b", ("a",)), Operator("c", ("a",)), Operator("d", ("b", "c"))),
        (Sink("out", ("d",)),),
    )
    lines = [line.rstrip() for line in draw(topology).plain.splitlines()]
    assert lines == SMALL.splitlines()


@settings(max_examples=20, deadline=None)
@given(topologies())
def test_every_node_is_drawn_and_every_edge_arrives(topology):
    text = draw(topology).plain
    names = [thing.name for part in (topology.sources, topology.operators, topology.sinks) for thing in part]
    for name in names:
        assert len(re.findall(rf"[│║] {re.escape(name)} +[│║]", text)) == 1
    edges = sum(len(thing.inputs) for part in (topology.operators, topology.sinks) for thing in part)
    # Edges out of one node may share their way past a layer, but each one has its own arrow head.
    assert text.count("▼") == edges


@settings(max_examples=20, deadline=None)
@given(topologies())
def test_layers_lead_downwards_and_lose_no_edge(topology):
    placed = layout(topology)
    level = {node.key: i for i, layer in enumerate(placed.layers) for node in layer}
    assert all(level[after] == level[before] + 1 for before, after in placed.edges)
    for thing in (*topology.operators, *topology.sinks):
        reached = {thing.name}
        for layer in placed.layers[::-1]:
            reached |= {a for a, b in placed.edges if b in reached and b in {n.key for n in layer}}
        assert set(thing.inputs) <= reached


@settings(max_examples=10, deadline=None)
@given(topologies())
def test_the_page_is_whole_and_loads_nothing(topology):
    html = page(topology)
    svg = ElementTree.fromstring(re.search(r"<svg.*</svg>", html, re.S).group(0))
    boxes = svg.findall("{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == len(topology.sources) + len(topology.operators) + len(topology.sinks)
    assert not re.search(r"<script|<link|src=|url\(http|@import", html)


def test_names_are_escaped_in_the_page():
    assert "<b>" not in page(a_topology(name="<b>bold"))


def test_the_command_draws_and_writes_a_page(tmp_path):
    file, html = tmp_path / "t.yaml", tmp_path / "pages" / "t.html"
    file.write_text(dump_topology(a_topology()), encoding="utf-8")
    app = Typer()
    app.command()(show)
    result = CliRunner().invoke(app, [str(file), "--html", str(html)])
    assert result.exit_code == 0, result.output
    assert "parse" in result.output
    assert "▼" in result.output
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_edges_that_cross_are_counted_as_pairs():
    random_ = random.Random(1)
    for _ in range(50):
        pairs = [(random_.randrange(6), random_.randrange(6)) for _ in range(12)]
        crossed = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(pairs, 2))
        assert _inversions(pairs) == crossed


def test_a_topology_in_which_everything_takes_everything_before_it_is_drawn():
    names = [f"o{number}" for number in range(80)]
    operators = tuple(Operator(name, tuple(names[:number]) or ("s",)) for number, name in enumerate(names))
    with within(120.0):
        drawn = draw(Topology("t", (Source("s"),), operators)).plain
    assert all(f"│ {name} " in drawn for name in names)
