"""Traces from files: every delimiter, clock and header, and gaps only filled where asked."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.topology.model import Choice
from penstock.workload import arrivals, make_workload
from penstock.workload.traces import DELIMITERS, Trace

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def a_trace(folder: Path, text: str, **parameters: object) -> Trace:
    file = folder / "trace.csv"
    file.write_text(text, encoding="utf-8")
    return make_workload(Choice("trace", {"path": str(file), **parameters}))


def rates(trace: Trace, *at_s: float) -> list[float]:
    return trace.rate_per_s(np.array(at_s, dtype=float)).tolist()


@pytest.mark.parametrize("delimiter", DELIMITERS)
@pytest.mark.parametrize("header", ["", "when{d}how many\n"])
@pytest.mark.parametrize(
    "clock",
    [
        lambda s: str(1_661_724_000 + s),
        lambda s: str((1_661_724_000 + s) * 1000),
        lambda s: str((1_661_724_000 + s) * 1_000_000),
        lambda s: str((1_661_724_000 + s) * 1_000_000_000),
        lambda s: datetime.fromtimestamp(1_661_724_000 + s, UTC).isoformat(),
        lambda s: datetime.fromtimestamp(1_661_724_000 + s, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        lambda s: datetime.fromtimestamp(1_661_724_000 + s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        lambda s: str(s),
    ],
    ids=["epoch s", "epoch ms", "epoch µs", "epoch ns", "iso zone", "iso plain", "iso Z", "from 0"],
)
def test_any_delimiter_header_and_clock(tmp_path, delimiter, header, clock):
    lines = [f"{clock(10 * i)}{delimiter}{value}" for i, value in enumerate((5, 7, 9))]
    trace = a_trace(tmp_path, header.format(d=delimiter) + "\n".join(lines) + "\n")
    assert rates(trace, 0, 10, 29, 30) == [5, 7, 9, 0]
    assert trace.duration_s() == pytest.approx(30)


def test_columns_are_found_by_name_number_or_kind(tmp_path):
    text = "host;load;time;count\nalpha;0.5;2026-01-01T00:00;60\nbeta;0.7;2026-01-01T00:01;120\n"
    assert rates(a_trace(tmp_path, text, time_column="time", value_column="count", per_s="1 min"), 0, 60) == [
        1,
        2,
    ]
    assert rates(a_trace(tmp_path, text, time_column="3", value_column="4"), 0, 60) == [60, 120]
    assert rates(a_trace(tmp_path, text, time_column="time"), 0, 60) == [0.5, 0.7]


def test_the_unit_of_a_plain_time_column_can_be_said(tmp_path):
    trace = a_trace(tmp_path, "minute,level\n0,2\n1,3\n2,4\n", time_unit_s="1 min", rate_scale=10)
    assert rates(trace, 0, 59, 60, 179) == [20, 20, 30, 40]


GAPPED = "t,v\n0,10\n1,20\n2,\n3,40\n7,80\n8,90\n"


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ("hold", [10, 20, 20, 40, 40, 40, 40, 80, 90]),
        ("zero", [10, 20, 0, 40, 0, 0, 0, 80, 90]),
        ("interpolate", [10, 20, 30, 40, 50, 60, 70, 80, 90]),
    ],
)
def test_gaps_are_filled_as_asked(tmp_path, gaps, expected):
    trace = a_trace(tmp_path, GAPPED, gaps=gaps)
    assert rates(trace, *[i + 0.5 for i in range(9)]) == pytest.approx(expected)


def test_gaps_are_refused_by_default_with_their_line(tmp_path):
    with pytest.raises(ConfigurationError, match=r"trace\.csv:4: the first of 2 gap"):
        a_trace(tmp_path, GAPPED)


def test_a_part_of_a_trace_and_a_repeated_one(tmp_path):
    text = "t,v\n" + "".join(f"{i},{i}\n" for i in range(10))
    part = a_trace(tmp_path, text, start_s=2.5, length_s=3)
    assert part.duration_s() == pytest.approx(3)
    assert rates(part, 0, 0.6, 2.9) == [2, 3, 5]
    again = a_trace(tmp_path, text, start_s=8, repeat=True)
    assert again.duration_s() is None
    assert rates(again, 0, 1, 2, 3) == [8, 9, 8, 9]


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("", {}, "empty file"),
        ("t,v\n1,2\n", {}, "at least two rows"),
        ("hello\nworld\n", {}, "separated by"),
        ("t,v\n0,1\n1,2,3\n", {}, "expected 2 columns"),
        ("t,v\n0,1\n2,1\n1,1\n", {}, r":4: expected a time after the one before"),
        ("t,v\n0,1\n1,-4\n", {}, r":3: expected a number of records of 0 or more"),
        ("t,v\n0,1\n1,many\n", {"value_column": "v"}, r":3: expected a number of records, got 'many'"),
        ("t,v\n0,1\nsoon,2\n", {"time_column": "t"}, r":3: expected a number like the rows before"),
        ("t,v\n2026-01-01,1\n2026-13-01,2\n", {"time_column": "t"}, r":3: expected an ISO time"),
        ("t,v\n0,1\n1,2\n", {"time_column": "tt"}, "expected a time column out of t, v"),
        ("t,v\n0,1\n1,2\n", {"value_column": "5"}, "expected a value column out of t, v"),
        ("t,v\n0,1\n1,2\n", {"gaps": "ignore"}, "refuse, hold, interpolate, zero"),
        ("t,v\n0,1\n1,2\n", {"per_s": 0}, "per_s above 0"),
        ("t,v\n0,1\n1,2\n", {"start_s": 9}, "start_s within the trace"),
        ("t,v\n0,x\n1,y\n", {}, "expected a column of numbers"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(tmp_path, text, parameters, message):
    with pytest.raises(ConfigurationError, match=message):
        a_trace(tmp_path, text, **parameters)


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigurationError, match="cannot read the trace"):
        make_workload(Choice("trace", {"path": "no/such/file.csv"}))


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet='01 29,;|\tax.-:TZ\n"#', max_size=80),
    st.sampled_from(["refuse", "hold", "interpolate", "zero"]),
)
def test_no_text_ends_in_anything_but_a_workload_or_a_configuration_error(tmp_path_factory, text, gaps):
    folder = tmp_path_factory.mktemp("traces")
    try:
        trace = a_trace(folder, text, gaps=gaps)
    except ConfigurationError:
        return
    assert float(trace.curve.records(trace.duration_s())) >= 0


@pytest.mark.parametrize(
    ("file", "parameters", "duration_s"),
    [
        ("ads_clicks_1s.csv", {}, 64_800),
        ("taxi_messages_5min.csv", {"per_s": 300}, 6049 * 300),
        ("wiki_en_messages_5min.csv", {"per_s": 300}, 6048 * 300),
        ("iot_messages_5min.csv", {"per_s": 300}, 6048 * 300),
        ("visp_random_walk_1.csv", {"time_unit_s": 60}, 12_000),
        ("visp_random_walk_2.csv", {"time_unit_s": 60}, 12_000),
    ],
)
def test_real_traces_are_read_without_being_told_their_columns(file, parameters, duration_s):
    if not (DATA / file).exists():
        pytest.skip(f"needs the data file {file}, which is not here")
    trace = make_workload(Choice("trace", {"path": str(DATA / file), **parameters}))
    assert trace.duration_s() == pytest.approx(duration_s)
    due = float(trace.curve.records(60))
    assert arrivals(trace, 0, 60).size == pytest.approx(due, abs=1)
