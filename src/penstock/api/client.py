"""A site's service from outside: found by the folder of its runs, asked over HTTP with its token.

A service writes down where it listens, and who it is, in the folder it serves. A folder with such a file that
names no process, and with a token, stands for a site elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.asking import DIRECT, NO_ANSWER
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import private_folder
from penstock.machine.locks import Lock
from penstock.machine.processes import ProcessIdentity, log_tail, wait_until

SERVICE_FILE = "service.json"
LOG_FILE = "service.log"
START_S = 60.0
"""A service is up within a second; a busy machine takes its time."""
STOP_S = 30.0
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Service:
    """The service of one site."""

    url: str
    token: str
    process: ProcessIdentity | None = None
    """Which process of this machine it is; None where it is elsewhere."""

    def get(self, path: str, **query: str | int) -> Any:
        """What it answers to a question below `/api/v1`."""
        asked = f"?{urllib.parse.urlencode(query)}" if query else ""
        return self._ask("GET", path + asked, None)

    def post(self, path: str, body: object, *, answer_s: float = ANSWER_S) -> Any:
        """Have it do something; ConfigurationError with its reasons where it will not."""
        return self._ask("POST", path, body, answer_s)

    def answers(self) -> bool:
        """Whether it answers now."""
        with contextlib.suppress(ClusterError, ConfigurationError):
            self.get("/runs")
            return True
        return False

    def _ask(self, method: str, path: str, body: object, answer_s: float = ANSWER_S) -> Any:
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with DIRECT.open(request, timeout=answer_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ConfigurationError(_reasons(error)) from None
        except (*NO_ANSWER, ValueError) as error:
            raise ClusterError(f"the service at {self.url} does not answer: {error}") from None


def service_at(folder: Path) -> Service:
    """The service of a folder; ConfigurationError where none was started there."""
    try:
        known = json.loads((folder / SERVICE_FILE).read_text())
        process = ProcessIdentity.read(known["process"]) if known.get("process") else None
        return Service(str(known["url"]), (folder / "token").read_text().strip(), process)
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(
            f"no service of {folder} is up; start it with `penstock up {folder}`"
        ) from None


def elsewhere(run: Path) -> tuple[Service, str] | None:
    """The service that has a run, and its name there, where its site is elsewhere; None where it is here.

    Such a run is named as one that is here: by the folder that stands for its site, and its name below it.
    """
    with contextlib.suppress(ConfigurationError):
        service = service_at(run.parent)
        if service.process is None:
            return service, run.name
    return None


@contextlib.contextmanager
def made_known(folder: Path, url: str, *, has_turn: bool = False) -> Iterator[None]:
    """While inside, the service of a folder is found by it; LockHeldError where it has another one.

    Whose turn it is in a pair (`has_turn`) was told by the journal: one that is frozen would hold a lock
    for ever, so none is taken.
    """
    alone = Lock(folder / "service.lock", f"the service of {folder}")
    with contextlib.nullcontext() if has_turn else alone:
        known = {"url": url, "process": asdict(ProcessIdentity.of(os.getpid()))}
        written(folder / SERVICE_FILE, json.dumps(known), mode=PRIVATE)
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                if json.loads((folder / SERVICE_FILE).read_text()) == known:
                    (folder / SERVICE_FILE).unlink(missing_ok=True)


def start(folder: Path, host: str, port: int, peers: Sequence[Path] = ()) -> tuple[Service, bool]:
    """The service of a folder, started in the background where none is up; and whether it was started.

    `peers` are the folders that stand for the services of other sites.
    """
    private_folder(folder)
    with contextlib.suppress(ConfigurationError):
        present = service_at(folder)
        if present.process is None or (present.process.alive and present.answers()):
            return present, False
    command = [sys.executable, "-m", "penstock.cli.main", "serve", str(folder)]
    asked = [part for peer in peers for part in ("--peer", str(peer))]
    with (folder / LOG_FILE).open("ab") as log:
        child = subprocess.Popen(
            [*command, "--host", host, "--port", str(port), *asked],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip

    def is_up() -> bool:
        with contextlib.suppress(ConfigurationError):
            found = service_at(folder)
            return found.process is not None and found.process.pid == child.pid and found.answers()
        return False

    wait_until(lambda: is_up() or child.poll() is not None, START_S, poll_s=0.1)
    if not is_up():
        child.kill()
        raise ClusterError(f"the service of {folder} did not come up:\n{log_tail(folder / LOG_FILE)}")
    return service_at(folder), True


def stop(folder: Path) -> bool:
    """End the service of a folder; whether there was one on this machine. Its runs go on."""
    try:
        present = service_at(folder)
    except ConfigurationError:
        return False
    process = present.process
    if process is None or not process.alive:
        return False
    os.kill(process.pid, signal.SIGTERM)
    if not wait_until(lambda: not process.alive, STOP_S, poll_s=0.1):
        os.kill(process.pid, signal.SIGKILL)
    (folder / SERVICE_FILE).unlink(missing_ok=True)
    return True


def _reasons(error: urllib.error.HTTPError) -> str:
    try:
        return "; ".join(json.load(error)["errors"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"the service answered {error.code} {error.reason}"
