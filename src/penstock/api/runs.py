"""The runs below a folder: found, started, and taken up again after the service or the machine was away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigurationError, PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.locks import LockHeldError
from penstock.machine.secrets import kept_secret
from penstock.runs.folder import RunFolder
from penstock.runs.service import end_controller

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
        self._texts: dict[Path, tuple[int, str]] = {}

    @property
    def token(self) -> str:
        """What every request must carry; made once, readable by the owner alone."""
        return kept_secret(self.root / "token")

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

        With `hung_s` a controller of this machine that has said nothing for so long is ended first.
        """
        found = []
        for name, place in self:
            if place.result() is not None:
                continue
            if hung_s is not None and place.age_s() > hung_s:
                end_controller(place)
            if self.is_running(name, place):
                continue
            try:
                plan = place.plan()
            except PenstockError:
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
        environment = {**os.environ, **({} if self._journal is None else {JOURNAL: self._journal})}
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
        """Whether somebody runs it: the process that was started here, or a controller that holds it."""
        started = self._started.get(name)
        if started is not None and started.poll() is None:
            return True
        try:
            with place.lock():
                return False
        except LockHeldError:
            return True
