"""The runs below a folder: found, started, and taken up again after the service or the machine was away."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigurationError, PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.locks import LockHeldError
from penstock.machine.secrets import kept_secret
from penstock.runs.folder import RunFolder
from penstock.runs.service import SERVED, end_controller
from penstock.trying import Then, Tries

LOG = logging.getLogger(__name__)

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
JOURNAL = "PENSTOCK_JOURNAL"
"""The variable by which a run is told where its journal is."""
TOPOLOGIES = ".topologies"
"""Below the folder: the files that runs were started with."""


class Runs:
    """The runs of one service."""

    def __init__(self, root: Path, journal: str | None = None) -> None:
        """`journal` is the URL of the journal of runs that are started here; None: a file of their folder."""
        self.root = root.resolve()
        self._journal = journal
        private_folder(self.root)
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._tries: dict[str, Tries] = {}
        self._texts: dict[Path, tuple[int, str]] = {}

    @property
    def token(self) -> str:
        """What every request must carry; made once, readable by the owner alone."""
        return kept_secret(self.root / "token")

    @property
    def identity(self) -> str:
        """What both services of a pair call this folder, wherever each of them has it."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[tuple[str, RunFolder]]:
        for path in sorted(self.root.iterdir()):
            if NAME.match(path.name) and (path / "plan.json").is_file():
                yield path.name, RunFolder(path)

    def find(self, name: str) -> RunFolder | None:
        """The run of this name; None where there is none."""
        path = self.root / name
        return RunFolder(path) if NAME.match(name) and (path / "plan.json").is_file() else None

    def start(
        self, name: str, text: str, code: str | None, duration_s: float | None, site: str | None = None
    ) -> None:
        """Start a run (with `site`, of the units there) in a process of its own; it outlives the service."""
        if not NAME.match(name):
            raise ConfigurationError(f"expected a name of letters, digits, - and _, got {name!r}")
        if (self.root / name).exists():
            raise ConfigurationError(f"there is a run {name} already")
        if code is not None and not Path(code).is_dir():
            raise ConfigurationError(f"there is no folder {code} on the service's machine")
        folder = self.root / TOPOLOGIES / name
        private_folder(folder)
        file = folder / "topology.yaml"
        written(file, text, mode=PRIVATE)
        self._launch(name, file, code, duration_s, site)

    def take_up(self, hung_s: float | None = None) -> list[str]:
        """Go on with runs that nobody runs and that are not over, as after a reboot; their names.

        It may be called again and again: what does not hold is tried after growing pauses, up to a limit.
        With `hung_s` a controller of this machine that has said nothing for so long is ended first.
        """
        found = []
        for name, place in self:
            try:
                if place.result() is not None:
                    continue
                plan = place.plan()
            except PenstockError:
                continue  # what it is can be asked of it by name; the others go on
            if hung_s is not None and place.age_s() > hung_s:
                end_controller(place)
            tries = self._tries.setdefault(name, Tries())
            if self.is_running(name, place):
                tries.well(time.monotonic())
                continue
            then = tries.down(time.monotonic())
            if then is Then.ASK:
                LOG.error("the run %s does not stay up and is not started any more; its log says why", name)
            if then is not Then.TRY:
                continue
            file = self.root / TOPOLOGIES / name / "topology.yaml"
            private_folder(file.parent)
            written(file, plan.topology, mode=PRIVATE)
            self._launch(name, file, plan.code, plan.duration_s, plan.site)
            found.append(name)
        return found

    def status_text(self, place: RunFolder) -> str | None:
        """A run's status as JSON; read anew only where it changed, however many ask."""
        file = place.root / "status.json"
        try:
            changed = file.stat().st_mtime_ns
            known = self._texts.get(file)
            if known is None or known[0] != changed:
                known = self._texts[file] = (changed, file.read_text())
        except OSError:
            return None
        return known[1]

    def _launch(
        self, name: str, file: Path, code: str | None, duration_s: float | None, site: str | None
    ) -> None:
        command = [sys.executable, "-m", "penstock.cli.main", "run", str(file), "-o", str(self.root / name)]
        if duration_s is not None:
            command += ["-d", f"{duration_s} s"]
        if site is not None:
            command += ["--site", site]
        if code is not None:
            command += ["--code", code]
        # By the environment: a command line is everybody's to read, and the URL may hold a password.
        environment = {**os.environ, SERVED: "1"}
        if self._journal is not None:
            environment[JOURNAL] = self._journal
        # In a session of its own: a service that ends, or is started anew, leaves its runs alone.
        with (file.parent / "run.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )

    def is_running(self, name: str, place: RunFolder) -> bool:
        """Whether somebody runs it: the process that was started here, a watcher, or a controller."""
        started = self._started.get(name)
        if started is not None and started.poll() is None:
            return True
        if place.watch_lock().in_use():
            return True
        try:
            with place.lock():
                return False
        except LockHeldError:
            return True
