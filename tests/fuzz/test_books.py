"""Whatever stands in a journal, or in a provider's record, is told as a bill or refused in words."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cli.test_commands import SMALLEST, penstock
from tests.fuzz.limits import tried, within

HEAD = b"BilledCost,Tags,ResourceName\n"
RECORDS: dict[str, tuple[bytes, str]] = {
    "tags that are a list": (HEAD + b'1,"[1]",a\n', "expected tags such as"),
    "tags that are a number": (HEAD + b"1,3,a\n", "expected tags such as"),
    "a host that is a list": (HEAD + b'1,"{""penstock-host"": [1]}",a\n', "expected tags such as"),
    "tags without end": (HEAD + b"1," + b"[" * 100_000 + b",a\n", "expected a cost and tags"),
    "a cell without end": (HEAD + b"1,{}," + b"x" * 200_000 + b"\n", "field larger than field limit"),
    "an open quote": (HEAD + b'1,"' + b"x" * 200_000, "field larger than field limit"),
    "no UTF-8": (HEAD + b"1,{},\xff\n", "expected a cost and tags"),
    "a head of no UTF-8": (b"BilledCost\xff\n", "expected a cost and tags"),
    "a row without a cost": (b"Tags,BilledCost\n{}\n", "expected a price"),
    "an empty cost": (HEAD + b",{},a\n", "expected a price"),
    "no number": (HEAD + b"nan,{},a\n", "expected a price"),
    "a signalling one": (HEAD + b"sNaN,{},a\n", "expected a price"),
    "no end": (HEAD + b"inf,{},a\n", "expected a price"),
    "digits without end": (HEAD + b"9" * 5000 + b",{},a\n", "expected a price"),
    "exponents without end": (HEAD + b"1e999999999,{},a\n", "expected a price"),
    "a rate": (HEAD + b"1 USD/h,{},a\n", "expected an amount"),
    "a NUL": (HEAD + b"1\x00,{},a\n", "test.csv:2: expected a cost"),
    "nothing": (b"", "the column BilledCost"),
}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    penstock("simulate", SMALLEST, "--duration", "4 min", "--out", folder / "run", folder=folder)
    return folder / "run"


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_none_is_refused_in_words(name: str, a_run: Path, tmp_path: Path) -> None:
    content, said = RECORDS[name]
    record = tmp_path / "test.csv"
    record.write_bytes(content)
    with within(20.0):
        shown = penstock("bill", a_run, "--record", record, folder=tmp_path, expect=1)
    assert said in re.sub(r"\s+", " ", shown)
    assert len(shown) < 3_000


def test_a_huge_record_is_refused_before_it_is_read(a_run: Path, tmp_path: Path) -> None:
    record = tmp_path / "huge.csv"
    with record.open("wb") as opened:
        opened.truncate(20 * 2**30)  # a hole, which takes no room on the disk
    with within(20.0):
        assert "larger than" in penstock("bill", a_run, "--record", record, folder=tmp_path, expect=1)


def test_a_record_as_a_spreadsheet_writes_it_is_read(a_run: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.csv"
    record.write_bytes(b"\xef\xbb\xbf" + HEAD + b'-0.5,"{""penstock-host"": null}",a\n1E-7,,b\n')
    assert "difference" in penstock("bill", a_run, "--record", record, folder=tmp_path)


DAMAGES: dict[str, tuple[str, str]] = {
    "a version that is text": ("update schema set version = 'x'", "the number of a version of its tables"),
    "a version below 0": ("update schema set version = -3", "the number of a version of its tables"),
    "an amount that is text": ("update charge set amount = 'abc'", "an amount of money as amount"),
    "an amount that is no number": ("update charge set amount = 'NaN'", "an amount of money as amount"),
    "a price that is text": ("update lease set price_per_btu = 'abc'", "an amount of money as price_per_btu"),
    "an instant that is text": ("update lease set at_s = 'abc'", "a number as at_s"),
    "a unit that is infinite": ("update lease set btu_s = 9e999", "a number as btu_s"),
    "units that are text": ("update charge set units = 'many'", "a number as units"),
    "a life that is torn": ("update life set payload = '{' where what = 'instance'", "a mapping as JSON"),
    "a life that is a list": ("update life set payload = '[1]' where what = 'instance'", "a mapping as JSON"),
}


def damaged(run: Path, folder: Path, statement: str) -> Path:
    """A copy of a run whose journal was changed behind its back."""
    shutil.copytree(run, folder)
    connection = sqlite3.connect(folder / "journal.db")
    assert connection.execute(statement).rowcount > 0
    connection.commit()
    connection.close()
    return folder


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_in_a_journal_is_told_by_its_bill(name: str, a_run: Path, tmp_path: Path) -> None:
    statement, said = DAMAGES[name]
    folder = damaged(a_run, tmp_path / "run", statement)
    with within(20.0):
        shown = re.sub(r"\s+", " ", penstock("bill", folder, folder=tmp_path, expect=1))
        for command in ("explain", "metrics"):
            penstock(command, folder, folder=tmp_path, expect=(0, 1))
    assert said in shown
    assert "was damaged" in shown


@pytest.mark.parametrize("seed", range(tried(2, 20)))
def test_a_journal_with_odd_bytes_is_told_or_refused_in_words(seed: int, a_run: Path, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    content = (a_run / "journal.db").read_bytes()
    shutil.copytree(a_run, tmp_path / "run")
    for command in ("bill", "explain", "metrics"):
        odd = bytearray(content)
        for _ in range(300):
            odd[random_.randrange(4096, len(odd))] = random_.randrange(256)
        (tmp_path / "run" / "journal.db").write_bytes(odd[: random_.choice((len(odd), len(odd) // 2))])
        with within(20.0):
            penstock(command, tmp_path / "run", folder=tmp_path, expect=(0, 1))


QUESTIONS = (
    (("--unit", "nobody"), "--unit: the run has no unit 'nobody'"),
    (("--unit", ""), "--unit: the run has no unit ''"),
    (("--last", "-1"), "--last'"),
    (("--last", "0"), "--last'"),
    (("--at", "-5 s"), "--at: expected 0 or more"),
    (("--at", "nan"), "--at: expected a duration"),
    (("--at", ""), "--at: expected a duration"),
)


@pytest.mark.parametrize(("arguments", "said"), QUESTIONS, ids=lambda value: None)
def test_an_odd_question_is_answered_with_what_would_be_right(
    arguments: tuple[str, ...], said: str, a_run: Path, tmp_path: Path
) -> None:
    code = 2 if said.startswith("--last'") else 1
    shown = penstock("explain", a_run, *arguments, folder=tmp_path, expect=code)
    assert said in re.sub(r"\s+", " ", shown)
