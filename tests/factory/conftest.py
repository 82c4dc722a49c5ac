"""A small session for the factory's operators; the example is imported from the folder `examples`."""

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
    """A `local[1]` session whose Python workers find the examples."""
    from penstock.spark.settings import end_session, start_session

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), before]))
    end_session()
    session = start_session("factory-tests", "local[1]", log_level="ERROR")
    yield session
    end_session()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
