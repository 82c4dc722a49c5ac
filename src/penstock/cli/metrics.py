"""`penstock metrics`: a run as OpenMetrics text, for Prometheus and whatever else reads it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.controller.metrics import (
    FAMILIES,
    Sample,
    Tally,
    exposition,
    newest,
    page_of,
    samples_in,
    samples_of,
)
from penstock.experiments.twin import opened
from penstock.machine.endpoint import Endpoint, token_file
from penstock.runs.folder import RunFolder


def metrics(
    run: Annotated[Path, typer.Argument(help="A run's folder, or its journal.")],
    serve: Annotated[
        str | None, typer.Option(help="Port, or address:port: serve its newest values until Ctrl-C.")
    ] = None,
) -> None:
    """Print everything a run's journal has as OpenMetrics text, each value with its time.

    What is served needs a token, for Prometheus the `credentials_file` of its `authorization`: a file that is
    named when serving begins, and that the environment variable PENSTOCK_METRICS_TOKEN may name.
    """
    with opened(run) as journal:
        if serve is None:
            typer.echo(exposition(samples_in(journal)), nl=False)
            return

    with Endpoint(serve, "/metrics", page_of(lambda: samples_now(run))) as endpoint:
        open_console().print(
            f"{endpoint.url}, with the token in {token_file()} (Ctrl-C ends it)", soft_wrap=True
        )
        threading.Event().wait()


def samples_now(run: Path) -> list[Sample]:
    """The newest of what a run's journal has, and what its status tells besides: bounds, SLOs, its mode."""
    with opened(run) as journal:
        found = {_series(sample): sample for sample in newest(samples_in(journal))}
    status = RunFolder(run if run.is_dir() else run.parent).status()
    for sample in () if status is None else samples_of(status, Tally()):
        if FAMILIES[sample.name].kind == "gauge":  # what only grows is counted in the journal
            found[_series(sample)] = sample
    return list(found.values())


def _series(sample: Sample) -> tuple[str, tuple[tuple[str, str], ...]]:
    return sample.name, tuple(sorted(sample.labels.items()))
