"""Other people's jobs: the structured streaming examples inside pyspark, but for two lines as they are.

Each runs in a process of its own until Penstock's journal says that it processed records; then it is ended.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from penstock.machine.java import find_java
from penstock.spark.installation import spark_home

EXAMPLES = Path("examples") / "src" / "main" / "python" / "sql" / "streaming"
LIMIT_S = 150
TWO_LINES = """\
import penstock
penstock.attach({spark}, interval="1 s", journal={journal!r})
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one of them."""

    processed: int
    """Records that Penstock saw it process."""
    output: str
    errors: str


def examples() -> dict[str, Path]:
    """The examples of this Spark, by name."""
    return {path.stem: path for path in sorted((spark_home() / EXAMPLES).glob("structured_*.py"))}


def with_two_lines(source: str, journal: Path) -> str:
    """A job with Penstock's two lines behind the place where it starts its session."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and "getOrCreate()" in ast.unparse(node):
            lines = source.splitlines(keepends=True)
            ours = TWO_LINES.format(spark=ast.unparse(node.targets[0]), journal=str(journal))
            lines.insert(node.end_lineno or 0, textwrap.indent(ours, " " * node.col_offset))
            return "".join(lines)
    raise ValueError("the job starts no session")


def run(
    script: Path,
    arguments: Sequence[str],
    folder: Path,
    *,
    attached: bool = True,
    settings: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    journal: Path | None = None,
) -> Ran:
    """Run a job until it has processed something; with `wrapper` in front of it instead of the two lines."""
    place = journal or folder / "journal.db"
    own = folder / script.name
    own.write_text(with_two_lines(script.read_text(), place) if attached else script.read_text())
    options = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
               "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
               "spark.ui.showConsoleProgress": "false", **(settings or {})}  # fmt: skip
    submitted = " ".join(f'--conf "{name}={value}"' for name, value in options.items())
    surroundings = {
        **os.environ,
        **find_java().environment(),
        "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, *wrapper, str(own), *arguments]
    with open(folder / "output", "wb") as output, open(folder / "errors", "wb") as errors:
        process = subprocess.Popen(
            command, env=surroundings, cwd=folder, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline_s and process.poll() is None and not processed(place):
                time.sleep(0.3)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    return Ran(processed(place), (folder / "output").read_text(), (folder / "errors").read_text())


def processed(journal: Path) -> int:
    """Records that a journal says were processed; 0 while there is none."""
    if not journal.exists():
        return 0
    engine = sa.create_engine(f"sqlite:///file:{journal}?mode=ro&uri=true")
    try:
        with engine.connect() as connection:
            return int(connection.execute(sa.text("select sum(processed) from observation")).scalar() or 0)
    except sa.exc.SQLAlchemyError:
        return 0
    finally:
        engine.dispose()


@contextlib.contextmanager
def lines_on_a_socket(text: str = "the quick brown fox") -> Iterator[int]:
    """A port that says the same line ten times a second to whoever connects."""
    ending = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)

    def speak(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while not ending.wait(0.1):
                peer.sendall(f"{text}\n".encode())

    def serve() -> None:
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                peer, _ = server.accept()
                threading.Thread(target=speak, args=(peer,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        ending.set()
        thread.join(5)
        server.close()
