"""A small session for the fleet's units; the example is imported from its own folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "taxi"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))


@pytest.fixture(scope="package")
def spark() -> Iterator[Any]:
    """A `local[1]` session whose Python workers find the example."""
    from penstock.spark.settings import end_session, start_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(EXAMPLE), prepend=":")
        end_session()
        yield start_session("taxi-tests", "local[1]", log_level="ERROR")
        end_session()
