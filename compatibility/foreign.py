"""Other people's jobs: the structured streaming examples inside pyspark, but for two lines as they are.

Each runs in a process of its own until Penstock's journal says that it processed records; then it is ended.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import sqlalchemy as sa

from penstock.channels.kafka_jars import broker_jars
from penstock.machine.folders import cache_folder
from penstock.machine.java import find_java
from penstock.machine.processes import ChildProcesses, log_tail, wait_until
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
    submitted: Sequence[str] = (),
    journal: Path | None = None,
    least: int = 1,
) -> Ran:
    """Run a job until it has processed so many records.

    Without the two lines (`attached` off), `wrapper` stands in front of it in Python's command line, or
    `submitted` in that of `spark-submit`.
    """
    place = journal or folder / "journal.db"
    own = folder / script.name
    own.write_text(with_two_lines(script.read_text(), place) if attached else script.read_text())
    options = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
               "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
               "spark.ui.showConsoleProgress": "false", **(settings or {})}  # fmt: skip
    chosen = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    surroundings = {
        **os.environ,
        **find_java().environment(),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*chosen, "pyspark-shell"]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, *wrapper, str(own), *arguments]
    if submitted:
        command = [str(spark_home() / "bin" / "spark-submit"), *chosen, *submitted, str(own), *arguments]
        surroundings["SPARK_HOME"] = str(spark_home())
        del surroundings["PYSPARK_SUBMIT_ARGS"]
    with open(folder / "output", "wb") as output, open(folder / "errors", "wb") as errors:
        process = subprocess.Popen(
            command, env=surroundings, cwd=folder, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline_s and process.poll() is None and processed(place) < least:
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


@contextlib.contextmanager
def topic_of_lines(folder: Path, topic: str = "lines", text: str = "the quick brown fox") -> Iterator[str]:
    """The address of a Kafka that anybody here may use; the same line comes in its topic again and again.

    A broker of Penstock's own asks for a password, which a job of somebody else's does not have.
    """
    kafka = import_module("kafka")

    port, controller_port = (free_port() for _ in range(2))
    voter, data = f"127.0.0.1:{controller_port}", folder / "data"
    properties = {
        "process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": f"1@{voter}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{voter}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data), "offsets.topic.replication.factor": "1", "num.partitions": "1",
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    settings, log = folder / "server.properties", folder / "broker.log"
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path = os.pathsep.join(str(jar) for jar in broker_jars(cache_folder("jars")))
    java = [
        str(find_java().executable),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        path,
    ]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatting = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run([*java, *formatting], check=True, capture_output=True, timeout=120)
    children, ending = ChildProcesses(f"foreign {folder}"), threading.Event()

    def speak() -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")
        while not ending.wait(0.1):
            producer.send(topic, text.encode())
        producer.close(5)

    thread = threading.Thread(target=speak, daemon=True)
    try:
        children.start("broker", [*java, "kafka.Kafka", str(settings)], log=log)
        if not wait_until(lambda: listens(port), 90):
            raise RuntimeError(f"the broker did not come up:\n{log_tail(log)}")
        thread.start()
        yield f"127.0.0.1:{port}"
    finally:
        ending.set()
        if thread.is_alive():
            thread.join(20)
        children.stop_all(5.0)


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something takes connections at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
