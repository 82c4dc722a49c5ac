"""A second user on this machine: what he can do, with every port and every folder known to him."""

from __future__ import annotations

import contextlib
import http.client
import os
import pwd
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

NOBODY = pwd.getpwnam("nobody")
LARGEST = 2**20


def as_nobody(work: Callable[[], str]) -> str:
    """What a piece of work came to when another user did it; empty where he was refused."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            with contextlib.suppress(Exception):
                os.write(writing, work().encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        found = told.read()
    os.waitpid(pid, 0)
    return found.decode()


@contextlib.contextmanager
def meanwhile(work: Callable[[], None], *, stranger: bool) -> Iterator[None]:
    """From when another process has done a piece of work until it is ended, with all that it holds.

    It is the second user's where it is a `stranger`, and the owner's where not.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if stranger:
                os.setgroups([])
                os.setgid(NOBODY.pw_gid)
                os.setuid(NOBODY.pw_uid)
            with contextlib.suppress(Exception):
                work()
                os.write(writing, b"done")
                signal.pause()
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with open(reading, "rb", buffering=0) as told:
            assert told.read(4) == b"done", "the work could not be done"
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def read(path: Path) -> str:
    """The beginning of a file, or what is in a folder."""
    if path.is_dir():
        return " ".join(os.listdir(path)) or "(empty)"
    return path.read_bytes()[:4096].decode(errors="replace") or "(empty)"


def written_into(folder: Path, name: str, content: str) -> str:
    """Put a file into somebody's folder."""
    (folder / name).write_text(content)
    return "written"


def places_with(secrets: dict[str, str], roots: list[Path]) -> Iterator[str]:
    """Files below some folders that can be read and hold one of the secrets."""
    for root in roots:
        if root.is_file():
            with contextlib.suppress(OSError):
                content = root.open("rb").read(LARGEST)
                yield from (f"{what} in {root}" for what, it in secrets.items() if it.encode() in content)
        for folder, _, names in os.walk(root, onerror=None):
            for name in names:
                path = Path(folder) / name
                with contextlib.suppress(OSError):
                    if not path.is_file() or path.is_symlink():
                        continue
                    content = path.open("rb").read(LARGEST)
                    for what, secret in secrets.items():
                        if secret.encode() in content:
                            yield f"{what} in {path}"


def asked(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """What a server answers: its code (0 where it hung up) and the beginning of its text."""
    host, _, rest = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        connection.request(method, f"/{rest}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


# --- Kafka's protocol, as far as it takes to knock -----------------------------------------------------


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _request(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, 7) + _text("stranger")
    return struct.pack(">i", len(head + body)) + head + body


METADATA = _request(3, 1, struct.pack(">i", -1))
CREATE_TOPIC = _request(
    19, 1, struct.pack(">i", 1) + _text("strange") + struct.pack(">ihiiib", 1, 1, 0, 0, 5000, 0)
)
DELETE_TOPIC = _request(20, 1, struct.pack(">i", 1) + _text("kept") + struct.pack(">i", 5000))
FETCH = _request(
    1, 4,
    struct.pack(">iiiib", -1, 100, 0, 4096, 0) + struct.pack(">i", 1) + _text("kept")
    + struct.pack(">iiqi", 1, 0, 0, 4096),
)  # fmt: skip
PRODUCE = _request(
    0, 3,
    struct.pack(">hhii", -1, 1, 5000, 1) + _text("kept") + struct.pack(">iii", 1, 0, 0),
)  # fmt: skip
GROUPS = _request(16, 1, b"")


def kafka_answers(port: int, request: bytes, password: str | None = None) -> bool:
    """Whether a broker answers a request, after a login where a password is given."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        if password is not None:
            _exchange(connection, _request(17, 1, _text("PLAIN")))
            login = f"\0penstock\0{password}".encode()
            told = _exchange(connection, _request(36, 0, struct.pack(">i", len(login)) + login))
            if told is None or struct.unpack(">h", told[4:6])[0] != 0:
                return False
        return _exchange(connection, request) is not None


def _exchange(connection: socket.socket, request: bytes) -> bytes | None:
    """The answer to a request; None where the other side hung up."""
    try:
        connection.sendall(request)
        length = struct.unpack(">i", _exactly(connection, 4))[0]
        return _exactly(connection, length)
    except (OSError, EOFError):
        return None


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found
