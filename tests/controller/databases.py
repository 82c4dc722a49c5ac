"""A PostgreSQL server for tests of the journal: one that is named, or one of the machine's programs."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "PENSTOCK_TEST_POSTGRESQL"
"""Names the URL of an empty database on a server that is there already."""


def missing() -> str:
    """Why there is no server to test with; empty where there is one."""
    if not importlib.util.find_spec("psycopg"):
        return 'the package psycopg is not installed: pip install "penstock[postgresql]"'
    if os.environ.get(VARIABLE) or all(map(shutil.which, ("initdb", "postgres"))):
        return ""
    return f"no PostgreSQL server: install one, or set {VARIABLE} to the URL of an empty database"


@contextmanager
def a_postgresql_server() -> Iterator[str]:
    """The URL of a database; a server of our own listens on a socket in a folder of its own alone."""
    if url := os.environ.get(VARIABLE):
        yield url
        return
    # PostgreSQL refuses to run as the superuser, and its socket's path has to be short.
    owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    user = None if owner is None else owner.pw_uid
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    try:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = str(folder / "data")
        making = [
            "initdb",
            "-D",
            data,
            "-U",
            "tester",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        subprocess.run(making, user=user, cwd=folder, check=True, capture_output=True, timeout=120)
        with Path(folder / "log").open("w") as log:
            server = subprocess.Popen(
                ["postgres", "-D", data, "-k", str(folder), "-c", "listen_addresses=", "-F"],
                user=user, cwd=folder, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            url = f"postgresql://tester@/postgres?host={folder}"
            _wait_for(server, folder, url)
            yield url
        finally:
            server.terminate()
            server.wait(timeout=60)
    finally:
        shutil.rmtree(folder)


def _wait_for(server: subprocess.Popen[bytes], folder: Path, url: str) -> None:
    import psycopg

    while True:
        if server.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended: {(folder / 'log').read_text()}")
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            try:
                server.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
