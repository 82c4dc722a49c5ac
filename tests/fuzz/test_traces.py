"""Whatever a trace file holds, and whatever is asked of it, gives a finite rate or an error in words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ConfigurationError
from penstock.topology.model import Choice
from penstock.workload.registry import make_workload
from tests.fuzz.limits import tried, within

RIGHT = "time,records\n" + "".join(f"{60 * i},{i % 7}\n" for i in range(40))

FILES: dict[str, bytes] = {
    "right": RIGHT.encode(),
    "empty": b"",
    "only a header": b"time,records\n",
    "one row": b"time,records\n0,1\n",
    "a cell without end": b"time,records\n0," + b"9" * 500_000 + b"\n60,1\n",
    "an open quote": b'time,records\n0,"' + b"x" * 300_000 + b"\n60,1\n",
    "a gap of ages": b"time,records\n0,1\n1,1\n2,1\n9e12,1\n",
    "a gap beyond numbers": b"time,records\n0,1\n1,1\n2,1\n1e308,1\n",
    "times that are infinite": b"time,records\n0,1\ninf,1\nnan,2\n",
    "values that are infinite": b"time,records\n0,inf\n60,-inf\n120,nan\n",
    "values beyond numbers": b"time,records\n0,1e308\n60,1e308\n120,1e308\n",
    "negative values": b"time,records\n0,-1\n60,-2\n",
    "a NUL": b"time,records\n0,\x001\n60,1\n",
    "not text": bytes(range(256)) * 50,
    "UTF-16": RIGHT.encode("utf-16"),
    "backwards": b"time,records\n60,1\n0,1\n",
    "the same time": b"time,records\n0,1\n0,1\n0,1\n",
    "ragged": b"time,records\n0,1\n60\n120,1,2,3\n",
    "one column": b"time\n0\n60\n",
    "a year that is not": b"time,records\n9999-12-31T23:59:59-23:59,1\n9999-12-31T23:59:59-23:58,2\n",
    "years before all": b"time,records\n0001-01-01T00:00:00+23:00,1\n0001-01-01T00:10:00+23:00,2\n",
    "tiny steps": b"time,records\n0,1\n1e-300,1\n2e-300,1\n",
    "many columns": b",".join([b"1"] * 50_000) + b"\n" + b",".join([b"2"] * 50_000) + b"\n",
    "many lines": b"time,records\n" + b"".join(b"%d,1\n" % i for i in range(tried(20_000, 100_000))),
    "markup": b"time,records\n0,<script>\n60,&amp;\n",
}

PARAMETERS: tuple[dict[str, Any], ...] = (
    {}, {"gaps": "hold"}, {"gaps": "interpolate"}, {"gaps": "zero"}, {"gaps": "x"}, {"gaps": 3},
    {"time_column": "inf"}, {"time_column": "nan"}, {"time_column": "1e308"}, {"time_column": -1},
    {"time_column": 0}, {"time_column": 10**30}, {"time_column": "\x00"},
    {"time_column": 2, "value_column": 2},
    {"value_column": "time"}, {"per_s": 0}, {"per_s": -1}, {"per_s": "1e-300 s"}, {"per_s": 1e-308},
    {"time_unit_s": 0}, {"time_unit_s": "1e300 s"}, {"time_unit_s": 1e-300}, {"start_s": -5},
    {"start_s": "1e10 s"}, {"start_s": "nan"}, {"length_s": 0}, {"length_s": "-5 s"}, {"length_s": 1e-300},
    {"rate_scale": 1e308}, {"rate_scale": -1}, {"time_scale": 0}, {"time_scale": 1e308}, {"repeat": "yes"},
)  # fmt: skip


def tries(path: Path, parameters: dict[str, Any]) -> None:
    """A workload of finite rates, or words."""
    said = ""
    with within():
        try:
            curve = make_workload(Choice("trace", {"path": str(path), **parameters})).curve
            rates = curve.rate_per_s(np.linspace(0.0, 10_000.0, 50))
        except ConfigurationError as error:
            said = str(error)
    if said:
        assert len(said) < 3_000
    else:
        assert np.isfinite(rates).all()
        assert (rates >= 0).all()


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_finite_rates_or_words(name: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(FILES[name])
    for gaps in ("refuse", "hold", "interpolate", "zero"):
        tries(file, {"gaps": gaps})


def test_every_parameter_on_every_small_file(tmp_path: Path) -> None:
    small = {name: content for name, content in FILES.items() if len(content) < 10_000}
    for i, content in enumerate(small.values()):
        file = tmp_path / f"{i}.csv"
        file.write_bytes(content)
        for number, parameters in enumerate(PARAMETERS):
            if (i + number) % tried(6, 1) == 0:
                tries(file, parameters)


@pytest.mark.parametrize("path", ["a\x00b", "", "/", ".", "no/such", "x" * 5000, "/proc/self/mem"])
def test_a_path_that_is_none_is_told(path: str) -> None:
    with within(), pytest.raises(ConfigurationError):
        make_workload(Choice("trace", {"path": path}))


def test_a_huge_file_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "huge.csv"
    with file.open("wb") as opened:
        opened.truncate(20 * 2**30)  # a hole, which takes no room on the disk
    with within(30.0), pytest.raises(ConfigurationError, match="larger than"):
        make_workload(Choice("trace", {"path": str(file)}))


@pytest.mark.parametrize("seed", range(tried(5, 40)))
def test_a_right_file_that_went_wrong_gives_finite_rates_or_words(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    file = tmp_path / "trace.csv"
    odd = ("inf", "-1", "1e308", "", ",", ";", '"', "\x00", "#", "x", "1e-320", "2026-01-01", "9" * 40, "\t")
    for _ in range(10):
        lines = RIGHT.splitlines()
        for _ in range(random_.randint(1, 5)):
            at = random_.randrange(len(lines))
            cells = lines[at].split(",")
            cells[random_.randrange(len(cells))] = random_.choice(odd)
            lines[at] = ",".join(cells)
            if random_.random() < 0.2:
                del lines[at]
        file.write_text("\n".join(lines))
        tries(file, dict(random_.choice(PARAMETERS)))
