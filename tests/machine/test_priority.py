"""Letting others go first, and taking that back."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
