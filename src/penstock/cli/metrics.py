"""`penstock metrics`: a run as OpenMetrics text, for Prometheus and whatever else reads it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import console as open_console
from penstock.controller.metrics import Sample, exposition, newest, page_of, samples_in
from penstock.experiments.twin import opened
from penstock.machine.endpoint import Endpoint


def metrics(
    run: Annotated[Path, typer.Argument(help="A run's folder, or its journal.")],
    serve: Annotated[
        str | None, typer.Option(help="Port, or address:port: serve its newest values until Ctrl-C.")
    ] = None,
) -> None:
    """Print everything a run's journal has as OpenMetrics text, each value with its time."""
    with opened(run) as journal:
        if serve is None:
            typer.echo(exposition(samples_in(journal)), nl=False)
            return

    def now() -> list[Sample]:
        with opened(run) as journal:
            return list(newest(samples_in(journal)))

    with Endpoint(serve, "/metrics", page_of(now)) as endpoint:
        open_console().print(f"{endpoint.url} (Ctrl-C ends it)")
        threading.Event().wait()
