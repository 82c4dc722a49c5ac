"""The example is imported from its own folder."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "taxi"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))
