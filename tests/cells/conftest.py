"""A small session for the laboratory's operators; the example is imported from the folder `examples`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    """A `local[1]` session with the laboratory's settings, whose Python workers find the examples."""
    from cells.laboratory import SETTINGS

    from penstock.spark.settings import end_session, start_session

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), before]))
    end_session()
    session = start_session(
        "cells-tests",
        "local[1]",
        settings={**SETTINGS, "spark.sql.shuffle.partitions": "2"},
        log_level="ERROR",
    )
    yield session
    end_session()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
