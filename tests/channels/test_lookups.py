"""Look-ups: every version is seen whole, by every process, while it is used."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path

import pytest

from penstock import Lookup
from penstock.channels import lookups
from penstock.channels.lookups import KEPT, LookupAwayError, current, history, names, provide, update
from penstock.errors import ConfigurationError
from penstock.machine.processes import wait_until


def test_a_function_sees_the_default_first_and_then_every_newer_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lookups.VARIABLE, "")
    provide(tmp_path / "lookups")
    prices = Lookup("prices", default={"apple": 1})
    # As Spark sends it to an executor: where that looks is known already.
    there = pickle.loads(pickle.dumps(prices))
    monkeypatch.delenv(lookups.VARIABLE)
    assert there.versioned() == (0, {"apple": 1})
    update(tmp_path / "lookups", "prices", {"apple": 2})
    assert wait_until(lambda: there.versioned() == (1, {"apple": 2}), 10)
    update(tmp_path / "lookups", "prices", {"apple": 3})
    assert wait_until(lambda: there() == {"apple": 3}, 10)
    assert prices() == {"apple": 3}


def test_a_host_that_does_not_see_the_run_s_folder_makes_up_no_default(tmp_path: Path) -> None:
    there = Lookup("prices", default={}, folder=tmp_path / "lookups")
    with pytest.raises(LookupAwayError, match=r"look-up prices: .*/lookups cannot be seen from"):
        there()
    (tmp_path / "lookups").mkdir()
    assert there() == {}


def test_versions_are_numbered_kept_for_a_while_and_told_with_who_and_why(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        update(tmp_path, "zones", number, "ada", f"number {number}")
    assert current(tmp_path, "zones") == (KEPT + 3, KEPT + 2)
    assert names(tmp_path) == ["zones"]
    told = history(tmp_path, "zones")
    assert [each.version for each in told] == list(range(1, KEPT + 4))
    assert (told[0].by, told[0].reason) == ("ada", "number 0")
    assert len(list((tmp_path / "zones").glob("v*.json"))) == KEPT


def test_many_who_update_at_once_get_a_version_each_and_the_last_one_stands(tmp_path: Path) -> None:
    made: list[int] = []
    everybody = [
        threading.Thread(target=lambda n=n: made.append(update(tmp_path, "x", n).version)) for n in range(8)
    ]
    for one in everybody:
        one.start()
    for one in everybody:
        one.join()
    assert sorted(made) == list(range(1, 9))
    assert current(tmp_path, "x")[0] == 8


@pytest.mark.parametrize("name", ["", "../up", "a b", "current\n"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a look-up's name"):
        update(tmp_path, name, 1)
    with pytest.raises(ConfigurationError, match="expected a look-up's name"):
        Lookup(name)


def test_what_nobody_gave_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no look-up x"):
        current(tmp_path, "x")
    assert names(tmp_path / "nowhere") == []
    assert json.dumps(history(tmp_path, "x")) == "[]"
