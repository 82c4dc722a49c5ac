"""Programs of the documentation that need Spark, run as they stand on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.docs.test_docs import blocks, pages

pytestmark = pytest.mark.spark


def programs() -> list[tuple[str, str]]:
    """Every block of Python that needs a session, with the page it is on."""
    return [
        (page.name, text)
        for page in pages()
        for language, text in blocks(page)
        if language == "python" and "spark" in text
    ]


def test_every_program_on_spark_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.chdir(tmp_path)
    own, handles = penstock.attach, []

    def attach(*arguments: Any, **named: Any) -> Any:
        handles.append(own(*arguments, **named))
        return handles[-1]

    monkeypatch.setattr(penstock, "attach", attach)
    found = programs()
    assert len(found) >= 5
    for page, text in found:
        names = {
            "spark": spark, "penstock": penstock, "SparkSession": SparkSession, "page_somebody": print,
            "__name__": "documentation",
        }  # fmt: skip
        exec(compile(text, page, "exec"), names)
        for handle in handles:
            assert handle.status().problem is None, (page, handle.status())
            handle.stop()
        handles.clear()
