"""`penstock attach`: a job that cannot be edited, made elastic from outside."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import ConfigurationError
from penstock.quantities import duration_s
from penstock.spark.gateway.plugin import plugin_jar
from penstock.spark.session import wrapping
from penstock.spark.session.attach import check_choices


def attach(
    script: Annotated[Path | None, typer.Argument(help="The job's Python file.")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Its own arguments, as they are.")] = None,
    slo: Annotated[
        str, typer.Option(help="Longest time from a record's arrival to its batch's end.")
    ] = "2 s",
    policy: Annotated[str, typer.Option(help="One of `penstock policies`.")] = "auto",
    most: Annotated[int, typer.Option("--max", help="Most executors.")] = 8,
    least: Annotated[int, typer.Option("--min", help="Fewest executors.")] = 1,
    interval: Annotated[str, typer.Option(help="How often a decision is taken.")] = "10 s",
    advise_only: Annotated[
        bool, typer.Option("--advise-only", help="Decide and record, change nothing.")
    ] = False,
    metrics: Annotated[str | None, typer.Option(help="Port, or address:port, for Prometheus.")] = None,
    journal: Annotated[Path | None, typer.Option(help="The journal; by default a file below runs/.")] = None,
    file: Annotated[
        bool,
        typer.Option("--file", help="Print the file that stands in front of the script in spark-submit."),
    ] = False,
    plugin: Annotated[
        bool,
        typer.Option(
            "--plugin", help="Print the jar for --jars; set spark.plugins to penstock.AttachPlugin."
        ),
    ] = False,
) -> None:
    """Run a Structured Streaming job, unchanged, with every session it starts made elastic."""
    if file:
        typer.echo(wrapping.__file__)
        return
    if plugin:
        typer.echo(plugin_jar())
        return
    if script is None or not script.is_file():
        raise ConfigurationError(f"expected the Python file of a job, got {script or 'nothing'}")
    check_choices(policy, duration_s(slo), duration_s(interval), least, most)
    options = {
        "slo": slo,
        "policy": policy,
        "max_instances": most,
        "min_instances": least,
        "interval": interval,
        "advise_only": advise_only,
        "metrics": metrics,
        "journal": journal,
    }
    try:
        wrapping.run_attached(script, arguments or [], options)
    except Exception:
        # The job's own error, told as Python tells it.
        traceback.print_exc()
        raise typer.Exit(1) from None


attach.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]
"""What follows the script is the script's."""
