"""For pytest: a rig for the tests of a module, skipped with the reason where there can be none.

`from penstock.rig.testing import rig` in a test module or a conftest makes the fixture known.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """A rig of two sites, `a` and `b`, without hosts; taken down after the module's last test."""
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    with Rig(("a", "b")) as made:
        yield made
