"""Letting others go first, and taking that back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.machine.priority import LATER

SCRIPT = """
import os, threading
from penstock.machine.priority import LATER, go_first_again, let_others_go_first
if not let_others_go_first():
    print("cannot")
    raise SystemExit
inherited, ended = [], threading.Event()
def waits():
    inherited.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    ended.wait()
thread = threading.Thread(target=waits)
thread.start()
while not inherited:
    pass
go_first_again()
after = os.getpriority(os.PRIO_PROCESS, thread.native_id)
ended.set()
print(inherited[0] == LATER, after)
"""


def test_a_process_lets_others_go_first_with_all_its_threads_and_takes_it_back() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, start_new_session=True
    )
    if found.stdout.strip() == "cannot":
        pytest.skip("this user could not take it back")
    assert found.stdout.split() == ["True", "0"]


SESSION = """
from pathlib import Path
from penstock.machine.priority import go_first_again, let_others_go_first
group = Path("/proc/self/autogroup")
let_others_go_first()
first = group.read_text().split()
go_first_again()
print(first[-1], group.read_text().split()[-1])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions are not told apart here")
def test_where_sessions_share_the_processor_a_session_lets_others_go_first() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SESSION], capture_output=True, text=True, check=True, start_new_session=True
    )
    assert found.stdout.split() == [str(LATER), "0"]


def test_a_session_that_others_share_is_left_alone() -> None:
    group = Path("/proc/self/autogroup")
    before = group.read_text() if group.exists() else ""
    subprocess.run([sys.executable, "-c", SESSION.replace("group.read_text()", "str(0)")], check=True)
    assert before == (group.read_text() if group.exists() else "")
