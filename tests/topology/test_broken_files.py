"""Two hundred broken files: each gives an error that names its mistake and its line, never a traceback.

A right file is broken in one known way at a random place; the way of breaking knows what the error must
name. Afterwards the same file is broken in ways nobody thought of, and must still not end in a traceback.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.check import check
from penstock.errors import TopologyError
from penstock.runs.known import known_names
from penstock.topology.file import parse_topology
from penstock.topology.graph import find_cycles

RIGHT: dict[str, Any] = {
    "name": "right",
    "sources": {
        "clicks": {"workload": {"name": "sine", "mean_per_s": "50/s", "period_s": "10 min"}, "share": 0.5},
        "views": {"workload": "constant"},
    },
    "operators": {
        "parse": {
            "inputs": ["clicks"],
            "slo": "50 ms",
            "cores": 0.5,
            "memory": "256 MiB",
            "service": "20 ms",
        },
        "clean": {"inputs": ["views"], "slo": "1 s", "function": "jobs:clean", "on_error": "skip"},
        "join": {"inputs": ["parse", "clean"], "slo": "2 s", "stateful": True, "ratio": "10 %"},
        "score": {"inputs": ["join"], "slo": "80 ms", "service": {"mean": "5 ms", "shape": "exponential"}},
        "alert": {"inputs": ["score", "join"], "slo": "100 ms"},
    },
    "sinks": {"alerts": {"inputs": ["alert"]}, "archive": {"inputs": ["join"]}},
    "units": {
        "ingest": {"operators": ["parse", "clean"], "sites": ["cloud", "edge"], "max_instances": 20},
        "fraud": {
            "operators": ["score", "alert"],
            "policy": {"name": "threshold", "up_queue": 30},
            "filter": {"name": "gaussian"},
            "min_instances": 2,
            "channel": "broker",
        },
    },
    "sites": {
        "cloud": {
            "provider": {"name": "simulated", "image_pull_s": "10 s"},
            "btu": "10 min",
            "flavours": {"small": {"cores": 2, "memory": "4 GiB", "price": "0.10 USD/h"}},
            "distance": {"edge": "20 ms"},
        },
        "edge": {
            "btu": "1 s",
            "flavours": {"box": {"cores": 2, "memory": "4 GiB", "price": 1, "max_hosts": 4}},
        },
    },
    "channels": {"broker": {"kind": "kafka", "partitions": 4}, "files": {"kind": "files"}},
    "latency_bounds": [{"bound": "2 s", "source": "clicks", "sink": "alerts"}],
    "loop": {"monitoring": "15 s", "provisioning": "1 min", "blackout": ["22:00-06:00"], "penalty": 0.001},
}

Document = dict[str, Any]


@dataclass
class Broken:
    """A broken file: its document or text, the words its error must have, and the kind of the mistake."""

    document: Document | str
    words: tuple[str, ...]
    code: str


def _pick(rng: random.Random, things: Any) -> Any:
    return rng.choice(sorted(things))


def _misspelt(rng: random.Random, word: str) -> str:
    """The word with one letter left out, and thus near to the right one."""
    at = rng.randrange(1, len(word) - 1)
    changed = word[:at] + word[at + 1 :]
    return changed if changed != word else word + "x"


def a_cycle(d: Document, rng: random.Random) -> Broken:
    length = rng.randint(1, 4)
    chain = ["join", "score", "alert"][: min(length, 3)]
    if length == 4:
        d["operators"]["late"] = {"inputs": ["alert"]}
        chain = ["join", "score", "alert", "late"]
    d["operators"]["join"]["inputs"].append(chain[-1])
    # The cycle that is told is one of those there are; every arrow of it must be an edge.
    return Broken(d, ("cycle", "join →", "→ join"), "cycle")


def an_unknown_input(d: Document, rng: random.Random) -> Broken:
    section = rng.choice(["operators", "sinks"])
    name = _pick(rng, d[section])
    wanted = _misspelt(rng, rng.choice(d[section][name]["inputs"]))
    d[section][name]["inputs"].append(wanted)
    return Broken(d, (f'"{name}"', f'"{wanted}"', "did you mean"), "dangling-input")


def an_input_from_a_sink(d: Document, rng: random.Random) -> Broken:
    name = _pick(rng, d["operators"])
    d["operators"][name]["inputs"].append("archive")
    return Broken(d, (f'"{name}"', '"archive" is a sink'), "dangling-input")


def no_inputs(d: Document, rng: random.Random) -> Broken:
    name = rng.choice(["parse", "clean"])
    d["operators"][name].pop("inputs")
    return Broken(d, (f'operator "{name}"', "not reached from any source"), "unreachable")


def an_island(d: Document, rng: random.Random) -> Broken:
    d["operators"]["lonely"] = {"slo": "1 s"}
    d["operators"]["follower"] = {"inputs": ["lonely"]}
    name = rng.choice(["lonely", "follower"])
    return Broken(d, (f'operator "{name}"', "not reached from any source"), "unreachable")


def a_doubled_name(d: Document, rng: random.Random) -> Broken:
    section = rng.choice(["sources", "operators", "sinks", "units", "sites", "channels"])
    name = _pick(rng, d[section])
    lines = _written(d).splitlines()
    start = lines.index(f"{section}:") + 1
    lines.insert(start, f"  {name}: {{}}")
    return Broken("\n".join(lines) + "\n", (f'"{name}" is there twice', "first in line"), "doubled-name")


def a_name_of_two_kinds(d: Document, rng: random.Random) -> Broken:
    name = _pick(rng, d["operators"])
    d["sources"][name] = {"workload": "constant"}
    return Broken(d, (f'"{name}" is the name of a source and of this operator',), "doubled-name")


def an_operator_in_two_units(d: Document, rng: random.Random) -> Broken:
    name = rng.choice(d["units"]["ingest"]["operators"])
    d["units"]["fraud"]["operators"].append(name)
    return Broken(d, ('unit "fraud"', f'operator "{name}" is in unit "ingest" already'), "doubled-name")


QUANTITIES = [
    (("operators", "parse", "slo"), "a duration"),
    (("operators", "score", "service", "mean"), "a duration"),
    (("operators", "parse", "service"), "a duration"),
    (("operators", "parse", "memory"), "an amount of memory"),
    (("operators", "join", "ratio"), "a ratio"),
    (("operators", "parse", "cores"), "a number"),
    (("sources", "clicks", "workload", "period_s"), "a duration"),
    (("sources", "clicks", "workload", "mean_per_s"), "a rate"),
    (("sites", "cloud", "btu"), "a duration"),
    (("sites", "cloud", "distance", "edge"), "a duration"),
    (("sites", "cloud", "provider", "image_pull_s"), "a duration"),
    (("sites", "edge", "flavours", "box", "memory"), "an amount of memory"),
    (("sites", "edge", "flavours", "box", "price"), "a price"),
    (("latency_bounds", 0, "bound"), "a duration"),
    (("loop", "monitoring"), "a duration"),
    (("loop", "penalty"), "a"),
]


def a_wrong_unit(d: Document, rng: random.Random) -> Broken:
    path, expected = rng.choice(QUANTITIES)
    value = rng.choice(["5 parsecs", "3 GHz/x", "4 kg/y"])
    _set(d, path, value)
    return Broken(
        d, (f"'{value}'", expected, str(path[-1]) if isinstance(path[-1], str) else ""), "wrong-quantity"
    )


def no_quantity_at_all(d: Document, rng: random.Random) -> Broken:
    path, expected = rng.choice(QUANTITIES)
    if path[-1] in ("period_s", "mean_per_s", "image_pull_s"):
        path, expected = QUANTITIES[0]
    _set(d, path, rng.choice([["a", "list"], {"a": "mapping"}, None]) if path[-1] != "service" else ["x"])
    return Broken(d, (expected, "got"), "wrong-type")


def a_value_that_is_not_positive(d: Document, rng: random.Random) -> Broken:
    path, what = rng.choice(
        [
            (("operators", _pick(rng, d["operators"]), "slo"), "slo"),
            (("operators", _pick(rng, d["operators"]), "cores"), "cores"),
            (("operators", _pick(rng, d["operators"]), "memory"), "memory"),
            (("sources", "clicks", "share"), "share"),
            (("sites", "cloud", "btu"), "btu"),
            (("latency_bounds", 0, "bound"), "latency bound"),
            (("loop", "monitoring"), "monitoring"),
        ]
    )
    _set(d, path, rng.choice(["0", "-1"]))
    return Broken(d, (what, "expected more than 0"), "not-positive")


def a_unit_no_site_can_hold(d: Document, rng: random.Random) -> Broken:
    name = rng.choice(["parse", "clean", "score", "alert"])
    unit = next(u for u, fields in d["units"].items() if name in fields["operators"])
    key, value = rng.choice([("cores", 64), ("memory", "900 GiB")])
    d["operators"][name][key] = value
    return Broken(d, (f'unit "{unit}"', "more than any host", "allow another site"), "too-big")


def an_unknown_choice(d: Document, rng: random.Random) -> Broken:
    kind, path, known = rng.choice(
        [
            ("policy", ("units", "fraud", "policy", "name"), "threshold"),
            ("filter", ("units", "fraud", "filter", "name"), "gaussian"),
            ("provider", ("sites", "cloud", "provider", "name"), "simulated"),
            ("workload", ("sources", "clicks", "workload", "name"), "sine"),
            ("channel", ("channels", "broker", "kind"), "kafka"),
        ]
    )
    wrong = _misspelt(rng, known)
    _set(d, path, wrong)
    return Broken(d, (f'unknown {kind} "{wrong}"', f'did you mean "{known}"'), f"unknown-{kind}")


def an_unknown_parameter(d: Document, rng: random.Random) -> Broken:
    path, known = rng.choice(
        [
            (("units", "fraud", "policy"), "up_queue"),
            (("sites", "cloud", "provider"), "image_pull_s"),
            (("sources", "clicks", "workload"), "period_s"),
            (("channels", "broker"), "partitions"),
        ]
    )
    wrong = "u" + known[1:-2] + "e"
    fields = _get(d, path)
    fields.pop(known)
    fields[wrong] = 3
    return Broken(d, (f'has no parameter "{wrong}"', f'did you mean "{known}"'), "unknown-parameter")


def a_wrong_parameter(d: Document, rng: random.Random) -> Broken:
    path, value, words = rng.choice(
        [
            (("units", "fraud", "policy", "up_queue"), "many", "expected a whole number"),
            (("sources", "clicks", "workload", "amplitude_per_s"), 500, "would become negative"),
            (("sites", "cloud", "provider", "image_pull_s"), True, "expected a number"),
        ]
    )
    _set(d, path, value)
    return Broken(d, (words,), "bad-parameter")


def an_unknown_key(d: Document, rng: random.Random) -> Broken:
    path, known = rng.choice(
        [
            ((), "operators"),
            (("operators", "parse"), "memory"),
            (("sources", "clicks"), "share"),
            (("units", "ingest"), "max_instances"),
            (("sites", "cloud"), "flavours"),
            (("sites", "edge", "flavours", "box"), "max_hosts"),
            (("latency_bounds", 0), "source"),
            (("loop",), "provisioning"),
        ]
    )
    wrong = _misspelt(rng, known)
    fields = _get(d, path)
    fields[wrong] = fields.pop(known)
    return Broken(d, (f'unknown key "{wrong}"', f'did you mean "{known}"'), "unknown-key")


def an_unknown_reference(d: Document, rng: random.Random) -> Broken:
    path, value, words, code = rng.choice(
        [
            (("units", "ingest", "operators", 0), "prase", 'unknown operator "prase"', "unknown-name"),
            (
                ("units", "ingest", "sites", 1),
                "egde",
                'unknown site "egde"; did you mean "edge"',
                "unknown-name",
            ),
            (("units", "fraud", "channel"), "brokr", 'unknown channel "brokr"', "unknown-channel"),
            (("sites", "cloud", "distance", "moon"), "1 s", 'unknown site "moon"', "unknown-name"),
            (("latency_bounds", 0, "source"), "click", 'unknown source "click"', "unknown-name"),
            (("latency_bounds", 0, "sink"), "alrts", 'unknown sink "alrts"', "unknown-name"),
        ]
    )
    _set(d, path, value)
    return Broken(d, (words,), code)


def a_wrong_type(d: Document, rng: random.Random) -> Broken:
    path, value, words = rng.choice(
        [
            (("sources",), ["clicks"], "expected sources by name"),
            (("operators",), "parse", "expected operators by name"),
            (("operators", "parse"), 5, "expected a mapping"),
            (("operators", "join", "stateful"), "perhaps", "expected true or false"),
            (("units", "ingest", "max_instances"), "2.5", "expected a whole number"),
            (("units", "ingest", "max_instances"), "lots", "expected a whole number"),
            (("latency_bounds",), {"bound": "2 s"}, "expected a list"),
            (("loop", "blackout"), ["at night"], "hours of the day"),
            (("operators", "parse", "inputs"), {"a": 1}, "expected a name or a list of names"),
            (("units", "fraud", "policy"), ["threshold"], "expected a name, or a mapping"),
            (("units", "fraud", "policy"), {"up_queue": 3}, "got no name"),
        ]
    )
    _set(d, path, value)
    code = "wrong-quantity" if "hours" in words else "missing" if "no name" in words else "wrong-type"
    return Broken(d, (words,), code)


def something_missing(d: Document, rng: random.Random) -> Broken:
    path, words = rng.choice(
        [
            (("sites", "edge", "flavours", "box", "cores"), 'expected the key "cores"'),
            (("sites", "edge", "flavours", "box", "price"), 'expected the key "price"'),
            (("latency_bounds", 0, "bound"), 'expected the key "bound"'),
            (("operators", "score", "service", "mean"), "expected the key mean"),
            (("units", "ingest", "operators"), "has no operators"),
            (("operators",), "at least one operator"),
            (("sources",), "at least one source"),
        ]
    )
    _get(d, path[:-1]).pop(path[-1])
    return Broken(d, (words,), "missing")


def a_value_out_of_range(d: Document, rng: random.Random) -> Broken:
    path, value, words, code = rng.choice(
        [
            (("units", "ingest", "max_instances"), 0, "max_instances", "out-of-range"),
            (
                ("units", "fraud", "min_instances"),
                99,
                "min_instances not above max_instances",
                "out-of-range",
            ),
            (("units", "ingest", "initial_instances"), 50, "initial_instances from 1 to 20", "out-of-range"),
            (("units", "ingest", "slots"), 0, "slots", "out-of-range"),
            (("sites", "edge", "max_hosts"), 0, "max_hosts", "out-of-range"),
            (("loop", "largest_step"), 0, "largest_step", "out-of-range"),
            (("loop", "journal"), "2 s", "journal: expected 60 s or more", "out-of-range"),
            (("loop", "blackout"), ["25-26"], "hours from 0 to 24", "out-of-range"),
            (("loop", "cooldown"), "-3 s", "cooldown: expected 0 or more", "negative"),
            (("operators", "join", "ratio"), -0.5, "ratio: expected 0 or more", "negative"),
            (("sites", "edge", "flavours", "box", "price"), "-1", "price: expected 0 or more", "negative"),
            (
                ("operators", "clean", "on_error"),
                "skp",
                'unknown "skp"; did you mean "skip"',
                "unknown-value",
            ),
            (("operators", "score", "service", "shape"), "normal", 'unknown "normal"', "unknown-value"),
            (("operators", "clean", "function"), "not a function", '"module:function"', "bad-function"),
        ]
    )
    _set(d, path, value)
    return Broken(d, (words,), code)


def a_bad_name(d: Document, rng: random.Random) -> Broken:
    section = rng.choice(["operators", "sinks", "sites"])
    name = rng.choice(["has space", "a/b", "-dash", ""])
    d[section][name] = {"inputs": ["join"]} if section != "sites" else {}
    return Broken(d, (repr(name), "expected a name"), "bad-name")


def an_unused_source(d: Document, rng: random.Random) -> Broken:
    d["sources"]["spare"] = {}
    return Broken(d, ('source "spare"', "nothing takes its records"), "unused-source")


def units_in_a_circle(d: Document, rng: random.Random) -> Broken:
    d["units"] = {"outer": {"operators": ["parse", "score"]}, "inner": {"operators": ["join"]}}
    return Broken(d, ("units form a cycle", "outer", "inner"), "unit-cycle")


def mixed_currencies(d: Document, rng: random.Random) -> Broken:
    if rng.random() < 0.5:
        d["sites"]["edge"]["currency"] = "EUR"
        return Broken(d, ('site "edge" is paid in EUR', 'site "cloud" in USD'), "mixed-currencies")
    d["sites"]["cloud"]["flavours"]["other"] = {"cores": 1, "memory": "1 GiB", "price": "1 EUR/h"}
    return Broken(d, ('site "cloud"', "EUR", "USD"), "mixed-currencies")


def bad_yaml(d: Document, rng: random.Random) -> Broken:
    lines = _written(d).splitlines()
    at = rng.randrange(1, len(lines))
    lines.insert(at, rng.choice(["\tx: 1", "  'open: 1", "a: b: c", "x: [1, 2", "*nothing"]))
    return Broken("\n".join(lines), ("not valid YAML",), "bad-yaml")


BREAKERS: list[Callable[[Document, random.Random], Broken]] = [
    a_cycle, an_unknown_input, an_input_from_a_sink, no_inputs, an_island, a_doubled_name,
    a_name_of_two_kinds, an_operator_in_two_units, a_wrong_unit, no_quantity_at_all,
    a_value_that_is_not_positive, a_unit_no_site_can_hold, an_unknown_choice, an_unknown_parameter,
    a_wrong_parameter, an_unknown_key, an_unknown_reference, a_wrong_type, something_missing,
    a_value_out_of_range, a_bad_name, an_unused_source, units_in_a_circle, mixed_currencies, bad_yaml,
]  # fmt: skip


def _get(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _set(document: Any, path: tuple[Any, ...], value: Any) -> None:
    _get(document, path[:-1])[path[-1]] = value


def _written(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def broken_file(number: int) -> Broken:
    rng = random.Random(number)
    return BREAKERS[number % len(BREAKERS)](copy.deepcopy(RIGHT), rng)


def test_the_file_to_be_broken_is_right():
    parse_topology(_written(RIGHT), known_names())


@pytest.mark.parametrize("number", range(200))
def test_a_broken_file_gives_an_error_that_names_the_mistake(number):
    broken = broken_file(number)
    text = broken.document if isinstance(broken.document, str) else _written(broken.document)
    with pytest.raises(TopologyError) as refused:
        parse_topology(text, known_names(), file="broken.yaml")
    mistakes = refused.value.mistakes
    named = [m for m in mistakes if m.code == broken.code and all(word in m.message for word in broken.words)]
    assert named, f"none of {[str(m) for m in mistakes]} says {broken.words} as {broken.code}"
    assert all(m.file == "broken.yaml" for m in mistakes)
    assert all(m.line is not None and 1 <= m.line <= text.count("\n") + 1 for m in mistakes)


def test_the_line_is_that_of_the_mistake():
    for number in range(200):
        broken = broken_file(number)
        if broken.code != "wrong-quantity" or not isinstance(broken.document, dict):
            continue
        text = _written(broken.document)
        with pytest.raises(TopologyError) as refused:
            parse_topology(text, known_names(), file="broken.yaml")
        value = broken.words[0]
        expected = next(i for i, line in enumerate(text.splitlines(), 1) if value.strip("'") in line)
        assert expected in [m.line for m in refused.value.mistakes if value in m.message]


def test_many_mistakes_are_told_at_once():
    d = copy.deepcopy(RIGHT)
    rng = random.Random(1)
    expected = set()
    for breaker in (a_cycle, a_wrong_unit, an_unknown_choice, an_unknown_reference, an_unused_source):
        expected.add(breaker(d, rng).code)
    d["operators"]["clean"]["slo"] = 0
    with pytest.raises(TopologyError) as refused:
        parse_topology(_written(d), known_names(), file="broken.yaml")
    codes = {m.code for m in refused.value.mistakes}
    assert expected - {"unused-source"} | {"not-positive"} <= codes
    lines = [m.line for m in refused.value.mistakes]
    assert lines == sorted(lines)


def test_the_command_lists_mistakes_and_fails_without_a_traceback(tmp_path):
    app = Typer()
    app.command()(check)
    for number in range(0, 200, 9):
        broken = broken_file(number)
        file = tmp_path / f"{number}.yaml"
        text = broken.document if isinstance(broken.document, str) else _written(broken.document)
        file.write_text(text, encoding="utf-8")
        result = CliRunner().invoke(app, [str(file)])
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert f"{file}:" in result.output
        assert "mistake" in result.output
        assert all(word in result.output for word in broken.words)


def test_the_command_says_so_where_a_file_is_right(tmp_path):
    app = Typer()
    app.command()(check)
    file = tmp_path / "right.yaml"
    file.write_text(_written(RIGHT), encoding="utf-8")
    result = CliRunner().invoke(app, [str(file)])
    assert result.exit_code == 0
    assert "right (2 sources, 5 operators, 2 sinks, 3 units, 2 sites)" in result.output


# What nobody thought of.

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["5 s", "1e999 s", "2 GiB", "9e99 GiB", "0.1 USD/h", "threshold", "clicks", "join", "10 %"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(document, dict):
        inner = [place for key, value in document.items() for place in _places(value, (*path, key))]
    elif isinstance(document, list):
        inner = [place for i, value in enumerate(document) for place in _places(value, (*path, i))]
    else:
        inner = []
    return [*([path] if path else []), *inner]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), anything), min_size=1, max_size=3))
def test_no_value_anywhere_ends_in_a_traceback(changes):
    document = copy.deepcopy(RIGHT)
    for number, value in changes:
        places = _places(document)
        if places:
            _set(document, places[number % len(places)], value)
    with contextlib.suppress(TopologyError):
        parse_topology(_written(document), known_names(), file="odd.yaml")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="abns:{}[],-&*!|>'\"#%@ \n\t0159?<", max_size=60))
def test_no_text_ends_in_a_traceback(text):
    with pytest.raises(TopologyError):
        parse_topology(text, known_names(), file="odd.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "just text",
        "- a\n- list",
        "a: &x [*x]",
        "sources: &s {a: *s}",
        "sources: {s: {}}\noperators: {a: &a {inputs: s, <<: *a}}",
        "sources: {s: {}}\noperators: {a: {<<: 5, inputs: s}}",
        "? [a, b]\n: 1",
        "sources: !!python/object:os.system {}",
        "sources: {s: {workload: !custom {name: sine}}}",
        "sources: {s: {workload: {name: sine, latency_bounds: {x: {y: [1], y: 2}}}}}\noperators: {a: {}}",
        "sources: {s: {}}\noperators: {1: {inputs: s, flavours: {latency_bounds: 3}, slo: 1 kg}}",
        "a: 1\n---\nb: 2",
        "{" * 400,
        "[" * 600,
        "\x00",
    ],
)
def test_odd_yaml_is_refused_with_words(text):
    with pytest.raises(TopologyError) as refused:
        parse_topology(text, known_names(), file="odd.yaml")
    assert all(mistake.message for mistake in refused.value.mistakes)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefg"), max_size=3), max_size=7)
)
def test_a_cycle_is_found_exactly_where_there_is_one(inputs):
    cycles = find_cycles(inputs)
    for cycle in cycles:
        for before, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            assert before in inputs[after]
    # Without the nodes of the cycles that were found, everything can be put in order.
    rest = {name: set(names) & set(inputs) for name, names in inputs.items()}
    for cycle in cycles:
        rest = {n: names - set(cycle) for n, names in rest.items() if n not in cycle}
    while rest:
        free = [name for name, names in rest.items() if not names]
        assert free, f"{rest} still holds a cycle"
        rest = {n: names - set(free) for n, names in rest.items() if n not in free}
