"""Jars: fetched once from a repository, and never used with another content than they are pinned to."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import ClusterError
from penstock.machine.maven import Jar, NotPublishedError, fetch, pinned

CONTENT = b"classes"
JAR = Jar("org.example.tools", "tool", "1.2", hashlib.sha256(CONTENT).hexdigest())


class Repository(http.server.SimpleHTTPRequestHandler):
    """A folder in Maven's layout, that counts what it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A repository on the loopback address that has the jar: its address, the jar, what was asked for."""
    place = tmp_path / "repository"
    jar = place / JAR.path
    jar.parent.mkdir(parents=True)
    jar.write_bytes(CONTENT)
    asked: list[str] = []
    handler = type("Counting", (Repository,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(place)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", jar, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_jar_is_fetched_once(served: tuple[str, Path, list[str]], tmp_path: Path) -> None:
    address, _, asked = served
    for _ in range(2):
        assert fetch(tmp_path / "jars", [JAR], address) == [tmp_path / "jars" / "tool-1.2.jar"]
    assert asked == ["/org/example/tools/tool/1.2/tool-1.2.jar"]
    assert (tmp_path / "jars" / "tool-1.2.jar").read_bytes() == CONTENT


def test_a_cached_jar_that_was_changed_is_fetched_again(
    served: tuple[str, Path, list[str]], tmp_path: Path
) -> None:
    address, _, asked = served
    (file,) = fetch(tmp_path / "jars", [JAR], address)
    file.write_bytes(b"exchanged")
    assert fetch(tmp_path / "jars", [JAR], address)[0].read_bytes() == CONTENT
    assert len(asked) == 2


def test_a_repository_with_another_content_is_refused_and_nothing_is_kept(
    served: tuple[str, Path, list[str]], tmp_path: Path
) -> None:
    address, jar, _ = served
    jar.write_bytes(b"exchanged")
    # A repository that serves another jar serves the matching checksum beside it.
    jar.with_name(f"{jar.name}.sha1").write_text(hashlib.sha1(b"exchanged").hexdigest())
    with pytest.raises(ClusterError, match=f"expected the SHA-256 {JAR.sha256}"):
        fetch(tmp_path / "jars", [JAR], address)
    assert list((tmp_path / "jars").iterdir()) == []


def test_what_is_not_published_or_out_of_reach_is_told_apart(
    served: tuple[str, Path, list[str]], tmp_path: Path
) -> None:
    address, jar, _ = served
    jar.unlink()
    with pytest.raises(NotPublishedError, match="not published"):
        fetch(tmp_path / "jars", [JAR], address)
    with pytest.raises(ClusterError, match="out of reach"):
        fetch(tmp_path / "jars", [JAR], "http://127.0.0.1:1")


def test_pins_are_read_group_by_group() -> None:
    assert pinned(f"""
        org.example.tools
          tool:1.2 {JAR.sha256}
          other:3 00ff
        com.example
          more:4.0-beta ff00
    """) == (
        JAR,
        Jar("org.example.tools", "other", "3", "00ff"),
        Jar("com.example", "more", "4.0-beta", "ff00"),
    )
