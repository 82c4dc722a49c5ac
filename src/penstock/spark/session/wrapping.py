"""Attaching to jobs that cannot be edited: the next session that such a job starts is attached to.

`penstock attach SCRIPT` runs a script so. For `spark-submit`, this file stands in front of the script:

    spark-submit --master … --conf spark.penstock.slo=500ms "$(penstock attach --file)" SCRIPT ARGUMENTS

What is wanted may also stand in Spark's settings, as `spark.penstock.slo`, `.policy`, `.maxInstances`,
`.minInstances`, `.interval`, `.metrics`, `.adviseOnly`: they go before what the command line says.
"""

from __future__ import annotations

import functools
import logging
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.gateway.session import session_facts, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.session.attach import Attached

LOG = logging.getLogger("penstock.attach")

SETTINGS: Mapping[str, tuple[str, type]] = {
    "spark.penstock.slo": ("slo", str),
    "spark.penstock.policy": ("policy", str),
    "spark.penstock.maxInstances": ("max_instances", int),
    "spark.penstock.minInstances": ("min_instances", int),
    "spark.penstock.interval": ("interval", str),
    "spark.penstock.metrics": ("metrics", str),
    "spark.penstock.journal": ("journal", str),
    "spark.penstock.adviseOnly": ("advise_only", lambda text: text == "true"),  # type: ignore[dict-item]
}
"""Spark's settings that are arguments of `attach`."""


def attach_to_sessions(options: Mapping[str, Any]) -> None:
    """Attach to every session this process starts from now on, once an application.

    The job sees nothing of it: what goes wrong is logged.
    """
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.Builder
    begun: Any = builder.getOrCreate
    attached: set[str] = set()

    @functools.wraps(begun)
    def get_or_create(self: Any) -> SparkSession:
        spark: SparkSession = begun(self)
        try:
            application = session_facts(spark).application_id
            if application not in attached:
                attached.add(application)
                attach_by_settings(spark, options)
        except Exception:
            LOG.exception("could not attach; the job goes on without")
        return spark

    builder.getOrCreate = get_or_create


def attach_by_settings(spark: SparkSession, options: Mapping[str, Any]) -> Attached:
    """Attach to a session with these choices, where its settings do not say otherwise."""
    from penstock.spark.session.attach import attach

    given = dict(options)
    for key, (name, read) in SETTINGS.items():
        text = setting(spark, key, "")
        if text:
            given[name] = read(text)
    return attach(spark, **given)


def run_attached(script: Path, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
    """Run a script as Python would, with every session it starts attached to."""
    attach_to_sessions(options)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: spark-submit … wrapping.py SCRIPT [ARGUMENTS]")
    run_attached(Path(sys.argv[1]), sys.argv[2:], {})
