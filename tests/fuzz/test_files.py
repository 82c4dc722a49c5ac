"""Whatever a map, a profile or a calibration holds, it is read as one or refused in words."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError
from penstock.filters.calibration import Calibration
from penstock.levels.configuration import Configuration, ConfigurationMap
from penstock.levels.day import DailyLoad
from penstock.levels.platform import PlatformProfile, default_profile
from penstock.policies.registry import make_policy
from penstock.topology.model import Choice
from tests.fuzz.limits import tried, within
from tests.fuzz.test_topologies import BOMBS, ODD_TEXTS

READERS: dict[str, Callable[[Path], Any]] = {
    "map": ConfigurationMap.read,
    "day": DailyLoad.read,
    "platform": PlatformProfile.read,
    "calibration": Calibration.read,
}

FILES: dict[str, bytes] = {
    "empty": b"",
    "not text": bytes(range(256)),
    "a NUL": b"rates_per_s: [1]\x00",
    "a truth value that is none": b"rates_per_s: !!bool x",
    "a whole number of nothing": b'rates_per_s: !!int ""',
    "a number of nothing": b'rates_per_s: [!!float ""]',
    "a date that is none": b"rates_per_s: !!timestamp x",
    "a day that is none": b"rates_per_s: 2020-13-45",
    "an object": b"!!python/object:os.system {}",
    "a list as a key": b"? [a]\n: 1",
    "a mapping as a key": b"? {a: 1}\n: 1",
    "keys of two kinds": b"1: a\nb: c\n2020-01-01: d",
    "open brackets": b"[" * 20_000,
    "more open brackets": b"[" * 100_000,
    "closed brackets": b"[" * 100_000 + b"]" * 100_000,
    "a number beyond numbers": f"rates_per_s: [0x{'f' * 900}]".encode(),
    "digits without end": f"rates_per_s: [0x{'f' * 9000}]".encode(),
    "more digits": b'{"metrics": ["cpu"], "readings": ' + b"9" * 9000 + b"}",
    "nothing that is a number": b"rates_per_s: [.nan]",
    "an endless day": b"rates_per_s: [1]\nday_s: .inf",
    "words": b"rates_per_s: many",
    "a list": b"[1, 2, 3]",
    "text": b'"x"',
} | {name: text.encode() for name, (text, _) in BOMBS.items()}


def refused(read: Callable[[Path], Any], file: Path) -> str:
    """What is said of a file that is none."""
    with within(), pytest.raises(ConfigurationError) as told:
        read(file)
    return str(told.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_refused_in_words(name: str, reader: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_bytes(FILES[name])
    said = refused(READERS[reader], file)
    assert str(file) in said
    assert len(said) < 3_000


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("path", ["a\x00b", "", "/", "no/such", "x" * 5000, "/dev/zero", "/dev/null"])
def test_a_path_that_is_none_is_told(path: str, reader: str) -> None:
    refused(READERS[reader], Path(path))


@pytest.mark.parametrize("reader", READERS)
def test_a_huge_file_is_refused_before_it_is_read_whole(reader: str, tmp_path: Path) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as opened:
        opened.truncate(20 * 2**30)  # a hole, which takes no room on the disk
    assert "larger than" in refused(READERS[reader], file)


@pytest.mark.parametrize("parameter", ["map", "day", "platform"])
def test_a_policy_tells_what_is_wrong_with_its_file(parameter: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMBS["merges"][0])
    with within(), pytest.raises(ConfigurationError, match="counted with what aliases repeat"):
        make_policy(Choice("levels", {parameter: str(file)}))


COVARIANCES = {
    "not a number": ([[float("nan")]], "finite"),
    "infinite": ([[float("inf")]], "finite"),
    "below 0": ([[-1.0]], "a symmetric matrix"),
    "not symmetric": ([[1.0, 2.0], [0.0, 1.0]], "a symmetric matrix"),
    "below 0 in a direction": ([[1.0, 2.0], [2.0, 1.0]], "a symmetric matrix"),
    "too large": ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], "covariance"),
    "ragged": ([[1.0], [2.0, 3.0]], "covariance"),
    "no rows": (3, "as written by"),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_a_covariance_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    covariance, said = COVARIANCES[name]
    size = len(covariance) if isinstance(covariance, list) else 1
    values = {"covariance": covariance, "mean": [0.5] * size, "interval_s": 0.5, "load_ratio": 0.5}
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({"metrics": ["cpu", "memory", "disk"][:size], "readings": 9, **values}))
    assert said in refused(Calibration.read, file)


@pytest.mark.parametrize("seed", range(tried(3, 40)))
def test_a_right_file_that_went_wrong_is_read_or_refused_in_words(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    right = {
        "map": ConfigurationMap("t", 0.9, (Configuration(0.0, 50.0, ({"u": (1, 2)},)),)),
        "day": DailyLoad((1.0, 2.0, 3.0)),
        "platform": default_profile(),
        "calibration": Calibration(("cpu",), ((0.1,),), (0.5,), 9, 0.5, 0.5),
    }
    for name, value in right.items():
        file = tmp_path / name
        value.write(file)
        assert READERS[name](file) == value
        text = file.read_text()
        for _ in range(20):
            changed = text
            for _ in range(random_.randint(1, 3)):
                at = random_.randrange(len(changed) + 1)
                end = at + random_.choice((0, 0, 1, 5))
                changed = changed[:at] + random_.choice((*ODD_TEXTS, "-", "1e999", ".nan")) + changed[end:]
            file.write_text(changed)
            with within(), contextlib.suppress(ConfigurationError):
                READERS[name](file)
