"""Whatever a topology file holds, it is read into a sensible topology or refused with every mistake named."""

from __future__ import annotations

import copy
import math
import random
import re
from dataclasses import fields, is_dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.errors import TopologyError
from penstock.runs.known import known_names
from penstock.topology.bounded import LARGEST_FILE
from penstock.topology.file import dump_topology, load_topology, parse_topology
from penstock.topology.model import Choice, Topology
from tests.fuzz.limits import tried, within
from tests.topology.test_broken_files import RIGHT

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))
KNOWN = known_names()

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, -5, 1, 3.5, 1e308, -1e308, math.inf, -math.inf, math.nan, 10**18,
    -(10**18), 10**400,
    "", " ", "x", "-5 s", "-5", "0 s", "1e308 TiB", "1e308 d", "1e300 s", "1e-9 s", "1e12/s", "nan",
    "inf", "5 kg",
    "../../etc", "/etc/passwd", "..", ".", "a/b", "a\\b", "a\x00b", "a\nb",
    "\x1b[31mred", "a" * 300, "-rf", "~root",
    "CON", "name with spaces", "ünï", "🐢", "{}", "[]", "null", "none", "jobs:run", "os:system",
    "jsonl:../x",
    [], {}, [[]], [{}], ["s", "s"], [None], {"a": {"b": {"c": {"d": 1}}}},
    {"name": "threshold", "up_queue": -5},
    {"name": "fixed", "instances": -3}, {"name": "x"}, {"": ""}, [1] * 300, {"name": ["sine"]},
    {"name": "sine", "x": 1},
    {"name": "random_walk", "steps": 10**15}, {"name": "random_walk", "seed": -1},
    {"name": "pyramid", "step_per_s": 1e-9},
    {"name": "constant", "level_per_s": "1e308/s"}, {"name": "constant", "rate_scale": 1e308},
    {"name": "sine", "period_s": 1e-300}, {"name": "trace", "path": "\x00"}, {"name": "trace", "path": "/"},
    {"name": "kalman", "transition": "no.such:thing"}, {"name": "kalman", "noise_std": [0]},
    {"name": "local", "host_start_delay_s": -5}, {"name": "simulated", "host_start_least_s": 90},
)  # fmt: skip


def bomb(levels: str, inner: str, first: str) -> str:
    """Each line holds nine of the line before."""
    lines = [f"{levels[0]}: &{levels[0]} {first}"]
    for before, now in pairwise(levels):
        lines.append(f"{now}: &{now} " + inner.format(", ".join([f"*{before}"] * 9)))
    return "\n".join(lines)


BOMBS = {
    "aliases": (bomb("abcdefghij", "[{}]", "[x, x, x, x, x, x, x, x, x]"), "aliases repeat"),
    "merges": (bomb("abcdefghij", "{{<<: [{}]}}", "{x: 1}"), "aliases repeat"),
    "a chain of aliases": (
        "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 3000)),
        "nested deeper",
    ),
    "itself": ("a: &a [*a]", "refers to what it stands in"),
    "deep lists": ("[" * 5000 + "]" * 5000, "nested deeper"),
    "deep mappings": ("a: " + "{a: " * 3000 + "1" + "}" * 3000, "nested deeper"),
    "open brackets": ("[" * 100_000, "nested deeper"),
    "too long": ("a: " + "x" * (LARGEST_FILE + 1), "longer than"),
    "ten thousand keys": ("\n".join(f"k{i}: 1" for i in range(10_000)), "unknown key"),
    "many cycles": (
        "sources: {s: {}}\noperators:\n" + "\n".join(f"  o{i}: {{inputs: o{i ^ 1}}}" for i in range(2000)),
        "form a cycle",
    ),
    "one long cycle": (
        "sources: {s: {}}\noperators:\n"
        + "\n".join(f"  o{i}: {{inputs: o{(i + 1) % 2000}}}" for i in range(2000)),
        "form a cycle",
    ),
    "many wrong names": (
        "sources: {s: {}}\noperators:\n" + "\n".join(f"  one_{i}: {{inputs: on_{i}}}" for i in range(2000)),
        "neither a source nor an operator",
    ),
    "a doubled key, often": ("sources: {s: {}}\noperators:\n" + "  a: {inputs: s}\n" * 5000, "there twice"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_words(name: str) -> None:
    text, said = BOMBS[name]
    with within(), pytest.raises(TopologyError) as refused:
        parse_topology(text, KNOWN, file="bomb.yaml")
    assert said in str(refused.value)


def test_a_huge_file_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as opened:
        opened.truncate(20 * 2**30)  # a hole, which takes no room on the disk
    with within(), pytest.raises(TopologyError, match="larger than"):
        load_topology(file, KNOWN)


@pytest.mark.parametrize("path", ["a\x00b.yaml", "", ".", "/", "no/such/file.yaml", "x" * 5000])
def test_a_path_that_is_none_is_told(path: str) -> None:
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(path, KNOWN)


WRONG = {
    "a name that leaves its folder": ("name: ../../etc", "the topology's name"),
    "a name with a NUL": ('name: "a\\0b"', "the topology's name"),
    "a name with an escape": ('name: "\\e[31m"', "the topology's name"),
    "a name without end": (f"name: {'a' * 65}", "at most 64 characters"),
    "a site that leaves its folder": ("sites: {../../etc: {}}", "expected a name of letters"),
    "a channel with a slash": ("channels: {a/b: {kind: files}}", "expected a name of letters"),
    "a negative delay of a host": (
        "sites: {h: {provider: {name: local, host_start_delay_s: -5}}}",
        "0 or more, got -5",
    ),
    "a negative distance": ("sites: {h: {distance: {i: -5}}, i: {}}", "expected 0 or more"),
    "a fraction of a core": (
        "sites: {h: {provider: local}}\nunits: {u: {operators: half}}",
        "write cores: 1",
    ),
    "less memory than Spark's least": ("sites: {h: {provider: local}}", "write memory: 512 MiB"),
    "a tick of a nanosecond": ("loop: {monitoring: 1e-9 s}", "expected 1 ms or more"),
    "a billion instances": ("units: {u: {operators: a, max_instances: 1000000000}}", "10000 or less"),
    "a million slots": ("units: {u: {operators: a, slots: 1000000}}", "1024 or less"),
    "hosts without end": ("sites: {h: {max_hosts: 100000000000000}}", "100000 or less"),
    "a negative number of instances": ("policy: {name: fixed, instances: -3}", "1 or more, got -3"),
    "two sinks and one folder": (
        'sinks: {x: {inputs: a, function: "jsonl:out"}, y: {inputs: a, function: "parquet:./out/"}}',
        "two sinks write to one folder",
    ),
    "a sink and the name of another": (
        'sinks: {x: {inputs: a, function: "jsonl:"}, y: {inputs: a, function: "jsonl:x"}}',
        "two sinks write to one folder",
    ),
    "a walk without end": (
        "sources: {s: {workload: {name: random_walk, steps: 1000000000000}}}",
        "from 1 to 1e+06",
    ),
    "a whole number of nothing": ('policy: {name: threshold, up_queue: !!int ""}', "after !!int, got"),
    "a number of nothing": ('policy: {name: rate, target_ratio: !!float ""}', "a number after !!float"),
    "a maybe": ("policy: {name: auto, keep: !!bool maybe}", "true or false after !!bool, got 'maybe'"),
    "a flag that is a maybe": (
        "sites: {h: {flavours: {f: {cores: 1, memory: 1 GiB, price: 1, spot: !!bool maybe}}}}",
        "spot: expected true or false after !!bool",
    ),
    "a name that says it is a number": ('name: !!int "t"', "a whole number after !!int, got 't'"),
    "a key that says it is a number": ("policy: {name: fixed, !!int x: 1}", "a whole number after !!int"),
    "a date that is none": ("policy: {name: fixed, instances: !!timestamp x}", "a date after !!timestamp"),
    "nothing that is something": ("policy: {name: fixed, instances: !!null x}", "nothing after !!null"),
    "a tag nobody knows": ("policy: {name: fixed, instances: !!set {a}}", "without the tag !!set"),
    "binary digits that are none": ("policy: {name: fixed, instances: 0b_}", "cannot read '0b_' as a number"),
    "thousands of digits": (
        f"policy: {{name: fixed, instances: 0x{'f' * 5000}}}",
        "got one of 5,002 characters",
    ),
    "a channel of thousands of digits": (
        f"channels: {{c: {{kind: kafka, partitions: 0x{'f' * 5000}}}}}",
        "got one of 5,002 characters",
    ),
    "minutes of minutes without end": (
        f"policy: {{name: fixed, instances: 1{':1' * 80_000}}}",
        "got one of 160,001 characters",
    ),
    "hundreds of digits": (f"policy: {{name: fixed, instances: 0x{'f' * 900}}}", "a number of many digits"),
    "steps too small": (
        "sources: {s: {workload: {name: pyramid, step_per_s: 1e-9/s}}}",
        "step_per_s is too small",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_nonsense_is_refused_with_what_would_be_right(name: str) -> None:
    given, said = WRONG[name]
    text = (
        given
        + ("" if "sources:" in given else "\nsources: {s: {workload: constant}}")
        + ("\noperators: {a: {inputs: s}, half: {inputs: s, cores: 0.5}, tiny: {inputs: s, memory: 96 MiB}}")
    )
    with within(), pytest.raises(TopologyError) as refused:
        parse_topology(text, KNOWN, file="wrong.yaml")
    assert said in str(refused.value)
    assert all(str(mistake).isprintable() for mistake in refused.value.mistakes)


def test_half_a_letter_is_told() -> None:
    with pytest.raises(TopologyError, match="expected UTF-8 text"):
        parse_topology("name: '\ud800'", KNOWN)


@pytest.mark.parametrize("text", ["1e11 s", "99999999999.99998 s", "1e-9 s", "1e-300 s"])
def test_what_is_read_can_be_written_and_read_again(text: str) -> None:
    topology = parse_topology(
        "sources: {s: {workload: constant}}\n"
        f"operators: {{a: {{inputs: s, service: {text}}}}}\n"
        f"sites: {{h: {{distance: {{i: {text}}}}}, i: {{}}}}",
        KNOWN,
    )
    assert parse_topology(dump_topology(topology), KNOWN) == topology


def test_a_right_tag_is_taken() -> None:
    text = (
        "name: !!str t\nsources: {s: {workload: constant}}\npolicy: {name: fixed, instances: !!int 2}\n"
        "operators: !!map {a: {inputs: !!seq [s], stateful: !!bool yes, ratio: !!float 1}}"
    )
    topology = parse_topology(text, KNOWN)
    assert topology.operators[0].stateful
    assert topology.units[0].policy == Choice("fixed", {"instances": 2})


def test_a_simulated_site_takes_a_fraction_of_a_core() -> None:
    text = "sources: {s: {workload: constant}}\noperators: {a: {inputs: s, cores: 0.5, memory: 96 MiB}}"
    shape = parse_topology(text, KNOWN).unit_shape("a")
    assert (shape.slots, shape.cores, shape.memory_mib) == (1, 0.5, 96)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document that holds a value."""
    if isinstance(document, dict):
        inner = [place for key, value in document.items() for place in places(value, (*path, key))]
    elif isinstance(document, list):
        inner = [place for i, value in enumerate(document) for place in places(value, (*path, i))]
    else:
        inner = []
    return [*([path] if path else []), *inner]


def with_odd_values(random_: random.Random, document: Any) -> str:
    """A right document with one to three values, or keys, that are odd."""
    changed = copy.deepcopy(document)
    for _ in range(random_.randint(1, 3)):
        found = places(changed)
        if not found:
            break
        *way, last = random_.choice(found)
        holder = changed
        for step in way:
            holder = holder[step]
        odd = copy.deepcopy(random_.choice(ODD_VALUES))
        if isinstance(holder, dict) and random_.random() < 0.3:
            holder[str(odd)[:400]] = holder.pop(last)
        else:
            holder[last] = odd
    try:
        return yaml.safe_dump(changed, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError:
        return ""


ODD_TEXTS = (
    "&a ", "*a ", "<<: ", "{", "}", "[", "]", ":", "- ", "!!x ", "'", '"', "\t", "\x07", "%", "|",
    "!!int ", "!!float ", "!!bool ", "!!null ", "!!timestamp ", "!!binary ", "!!set ", "!", "0x", "1:1:",
)  # fmt: skip


def with_odd_text(random_: random.Random, text: str) -> str:
    """A right file with lines doubled, dropped or moved, and letters put in."""
    lines = text.splitlines()
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(lines))
        change = random_.randrange(5)
        if change == 0:
            lines.insert(at, lines[random_.randrange(len(lines))])
        elif change == 1 and len(lines) > 1:
            del lines[at]
        elif change == 2:
            lines[at] = " " * random_.randrange(6) + lines[at].lstrip()
        else:
            where = random_.randint(0, len(lines[at]))
            odd = random_.choice(ODD_TEXTS)
            lines[at] = lines[at][:where] + odd + lines[at][where:]
    return "\n".join(lines)


def assert_sensible(value: Any) -> None:
    """No number of an accepted topology is infinite, and no name leaves its folder."""
    if isinstance(value, Topology):
        named = (*value.sources, *value.operators, *value.sinks, *value.units, *value.sites, *value.channels)
        for thing in named:
            assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", thing.name)
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,63}", value.name)
    if isinstance(value, (float, Decimal)):
        assert math.isfinite(value)
    elif isinstance(value, Choice):
        return  # its parameters were checked by making the thing
    elif is_dataclass(value):
        for field in fields(value):
            assert_sensible(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            assert_sensible(part)


@pytest.mark.parametrize("seed", range(tried(10, 120)))
def test_a_right_file_that_went_wrong_is_refused_with_words_or_still_sensible(seed: int) -> None:
    random_ = random.Random(seed)
    texts = [file.read_text() for file in EXAMPLES]
    for _ in range(20):
        text = (
            with_odd_values(random_, RIGHT)
            if random_.random() < 0.5
            else with_odd_text(random_, random_.choice(texts))
        )
        refused: TopologyError | None = None
        with within():
            try:
                topology = parse_topology(text, KNOWN, file="odd.yaml")
            except TopologyError as error:
                refused = error
        if refused is None:
            assert_sensible(topology)
            assert parse_topology(dump_topology(topology), KNOWN) == topology
        else:
            assert refused.mistakes
            assert all(m.message and m.message.replace("\n", "").isprintable() for m in refused.mistakes)
