"""One PostgreSQL server for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.databases import a_postgresql_server, missing


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a database on a PostgreSQL server."""
    if reason := missing():
        pytest.skip(reason)
    with a_postgresql_server() as url:
        yield url
