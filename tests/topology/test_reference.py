"""The reference page says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import yaml

from penstock.cli.reference import reference
from penstock.runs.known import known_names
from penstock.topology.file import parse_topology
from penstock.topology.grammar import GRAMMAR
from penstock.topology.model import (
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

PAGE = Path(__file__).resolve().parents[2] / "docs" / "topology-file.md"


def test_the_page_is_the_one_the_code_writes():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "write it again: python -m penstock.cli.reference > docs/topology-file.md"
    )


def test_the_first_example_of_the_page_is_right():
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S).group(1)
    assert [o.name for o in parse_topology(example, known_names()).operators] == ["count"]


def test_every_attribute_of_the_model_can_be_written_in_a_file():
    # Names are keys of their mapping; a topology's own units get the policy and filter of the top level.
    for section, model in (
        ("", Topology),
        ("sources", Source),
        ("operators", Operator),
        ("operators, service", Service),
        ("sinks", Sink),
        ("units", Unit),
        ("sites", Site),
        ("latency_bounds", LatencyBound),
        ("loop", LoopSettings),
    ):
        attributes = {field.name for field in fields(model)} - ({"name"} if section else set())
        written = {key.attribute for key in GRAMMAR[section]} - (
            {"policy", "filter"} if not section else set()
        )
        assert written == attributes, section


def test_every_key_has_a_meaning_and_a_form():
    for keys in GRAMMAR.values():
        assert len({key.name for key in keys}) == len(keys)
        assert all(key.meaning and key.form.words for key in keys)


def test_the_page_is_plain_markdown():
    text = PAGE.read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
    assert all(yaml.safe_load(part) is not None for part in re.findall(r"```yaml\n(.*?)```", text, re.S)[:1])
