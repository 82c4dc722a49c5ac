"""A run's folder: everything of a run is in it, under names that are known here and nowhere else."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.controller.journal import Journal
from penstock.controller.result import RunResult
from penstock.controller.status import Status
from penstock.errors import ConfigurationError, PenstockError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.locks import Lock
from penstock.plain import from_json, to_json
from penstock.runs.plan import RunPlan
from penstock.spark.unit.folders import RunFolders

SILENT_S = 60.0
"""How long a run without a controller may be between two of them."""
HEARD_S = 30.0
"""For so long what other sites' services said is taken for how it is."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its plan, its journal, its status, its result and all its units' files."""

    root: Path

    @staticmethod
    def at(path: Path) -> RunFolder:
        """The folder at a path, made for its owner alone where it does not exist yet."""
        root = path.resolve()
        private_folder(root)
        return RunFolder(root)

    @property
    def journal(self) -> Path:
        """The durable record of the run, where it is a file of the folder."""
        return self.root / "journal.sqlite"

    def opened(self) -> Journal:
        """The durable record of the run, wherever its plan says that it is."""
        plan = self.plan()
        return Journal(plan.journal or self.journal, plan.journalled_as)

    @property
    def log(self) -> Path:
        """What the controller's process writes."""
        return self.root / "controller.log"

    @property
    def commands(self) -> Path:
        """Where commands for the running controller are put."""
        return self.root / "commands"

    @property
    def units(self) -> RunFolders:
        """Streams, checkpoints and results of the units."""
        return RunFolders(self.root)

    def lock(self) -> Lock:
        """One controller a run: held while it runs, let go of by its end, however that comes."""
        return Lock(self.root / "controller.lock", f"the run in {self.root}")

    def watch_lock(self) -> Lock:
        """One watcher a run: held for as long as it would start a killed controller again."""
        return Lock(self.root / "watcher.lock", f"the run in {self.root}")

    def running(self, silent_s: float = SILENT_S) -> bool:
        """Whether it goes on, as far as one can tell by looking, and without taking its lock.

        A controller that died is started again by its watcher: for `silent_s` it still counts as running.
        """
        if self.lock().in_use():
            return True
        for name in ("status.json", "plan.json"):
            with contextlib.suppress(OSError):
                if time.time() - (self.root / name).stat().st_mtime < silent_s:
                    return True
        return False

    def write_plan(self, plan: RunPlan) -> None:
        """Keep what the run shall do; only its owner may read it, for settings may hold secrets.

        It is on the disk when this returns: runs of other sites go by what it says of units that left.
        """
        written(self.root / "plan.json", to_json(plan), mode=PRIVATE, durable=True)

    def plan(self) -> RunPlan:
        """What the run shall do; ConfigurationError where the folder holds none, or a torn one."""
        try:
            return from_json(RunPlan, (self.root / "plan.json").read_text())
        except OSError:
            raise ConfigurationError(f"{self.root} holds no run: it has no plan.json") from None
        except PenstockError as error:
            raise ConfigurationError(f"the plan of the run in {self.root} cannot be read: {error}") from None

    def earlier_plan(self) -> RunPlan | None:
        """The plan of a run that was here before; None for a new folder."""
        return self.plan() if (self.root / "plan.json").exists() else None

    def write_status(self, status: Status) -> None:
        """Keep what the run is doing now."""
        written(self.root / "status.json", to_json(status))

    def status(self) -> Status | None:
        """What the run was last doing; None where nothing is known yet."""
        with contextlib.suppress(OSError, PenstockError):
            return from_json(Status, (self.root / "status.json").read_text())
        return None

    def age_s(self) -> float:
        """How long ago its controller last wrote what it does; endless where it never did."""
        try:
            return max(0.0, time.time() - (self.root / "status.json").stat().st_mtime)
        except OSError:
            return math.inf

    def write_neighbours(self, hosts: Mapping[str, int]) -> None:
        """Keep which other sites' runs of the same name were just heard of, and how many hosts each has."""
        written(self.root / "neighbours.json", json.dumps(dict(hosts)))

    def neighbours(self) -> dict[str, int]:
        """What `write_neighbours` kept; empty where nobody has asked for a while."""
        file = self.root / "neighbours.json"
        with contextlib.suppress(OSError, ValueError):
            if time.time() - file.stat().st_mtime < HEARD_S:
                return {str(site): int(hosts) for site, hosts in json.loads(file.read_text()).items()}
        return {}

    def write_result(self, result: RunResult) -> None:
        """Keep what the run came to: it is over."""
        written(self.root / "result.json", to_json(result), durable=True)

    def write_end(self, last: Status, result: RunResult) -> None:
        """Keep that the run is over, and what it came to; call it once everything is stopped."""
        self.write_status(replace(last, phase="ended", hosts=()))
        self.write_result(result)

    def result(self) -> RunResult | None:
        """What the run came to; None while it is not over. ConfigurationError where it cannot be read."""
        try:
            return from_json(RunResult, (self.root / "result.json").read_text())
        except OSError:
            return None
        except PenstockError as error:
            raise ConfigurationError(
                f"the result of the run in {self.root} cannot be read: {error}"
            ) from None

    def forget_result(self) -> None:
        """The run goes on."""
        (self.root / "result.json").unlink(missing_ok=True)
