"""The command `penstock`: every subcommand, and the one place where errors become words."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from penstock.errors import PenstockError, TopologyError, told
from penstock.machine.secrets import log_redacted, redacted

COMMANDS = {
    # name: (module, attribute)
    "run": ("penstock.cli.run", "run"),
    "attach": ("penstock.cli.attach", "attach"),
    "simulate": ("penstock.cli.simulate", "simulate"),
    "compare": ("penstock.cli.compare", "compare"),
    "replay": ("penstock.cli.replay", "replay"),
    "tune": ("penstock.cli.tune", "tune"),
    "explain": ("penstock.cli.explain", "explain"),
    "bill": ("penstock.cli.bill", "bill"),
    "prices": ("penstock.cli.prices", "prices"),
    "check": ("penstock.cli.check", "check"),
    "show": ("penstock.cli.show", "show"),
    "budget": ("penstock.cli.budget", "budget"),
    "policies": ("penstock.cli.policies", "policies"),
    "filters": ("penstock.cli.policies", "filters"),
    "workloads": ("penstock.cli.workloads", "workloads"),
    "experiment": ("penstock.cli.experiment", "experiment"),
    "calibrate": ("penstock.cli.calibrate", "calibrate"),
    "profile": ("penstock.cli.profile", "profile"),
    "benchmark": ("penstock.cli.benchmark", "benchmark"),
    "study": ("penstock.cli.study", "study"),
    "cluster": ("penstock.cli.cluster", "app"),
    "broker": ("penstock.cli.broker", "app"),
    "metrics": ("penstock.cli.metrics", "metrics"),
    "new": ("penstock.cli.new", "new"),
    "doctor": ("penstock.cli.doctor", "doctor"),
    "page": ("penstock.cli.page", "page"),
    "rig": ("penstock.cli.rig", "app"),
    "top": ("penstock.cli.top", "top"),
    "tell": ("penstock.cli.top", "tell"),
    "apply": ("penstock.cli.apply", "apply"),
    "subscribe": ("penstock.cli.streams", "subscribe"),
    "unsubscribe": ("penstock.cli.streams", "unsubscribe"),
    "listen": ("penstock.cli.streams", "listen"),
    "lookup": ("penstock.cli.streams", "lookup"),
    "serve": ("penstock.cli.serve", "serve"),
    "up": ("penstock.cli.site", "up"),
    "status": ("penstock.cli.site", "status"),
    "logs": ("penstock.cli.site", "logs"),
    "stop": ("penstock.cli.site", "stop"),
    "down": ("penstock.cli.site", "down"),
}
"""Every command, loaded when it is asked for: most need neither Spark nor the simulator."""

OF_SPARK = ("pyspark", "py4j", "pandas", "pyarrow")
"""Packages of the extra `spark`; what does without Spark needs none of them."""


class LazyCommands(TyperGroup):
    """A group that imports a command's module only when the command is used or its help is shown."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of the table."""
        return [name for name, (module, _) in COMMANDS.items() if _exists(module)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, imported now."""
        if cmd_name not in COMMANDS or not _exists(COMMANDS[cmd_name][0]):
            return None
        module, attribute = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(module), attribute)
        return _as_click(cmd_name, found)


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _as_click(name: str, found: Callable[..., Any] | typer.Typer) -> Any:
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name, context_settings=getattr(found, "context_settings", None))(found)
        command = typer.main.get_command(app)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Elastic, cost-aware stream processing on Apache Spark.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def _options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log every decision."),
    _version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and end."
    ),
) -> None:
    level = logging.INFO if verbose else logging.WARNING
    log_redacted(level)


@contextlib.contextmanager
def told_in_words() -> Iterator[None]:
    """Ends the process with words instead of a traceback where something went wrong on purpose."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        yield
    except TopologyError as error:
        for mistake in error.mistakes:
            errors.print(f"error: {mistake}", style="red", markup=False)
        sys.exit(1)
    except PenstockError as error:
        errors.print(f"error: {redacted(told(str(error)))}", style="red", markup=False)
        sys.exit(1)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in OF_SPARK:
            raise
        errors.print(
            f"error: this needs Spark, and {missing} is not installed: `pip install 'penstock[spark]'`",
            style="red",
            markup=False,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (`head`) has seen enough; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        errors.print(f"error: {redacted(told(str(error)))}", style="red", markup=False)
        sys.exit(1)


def main() -> None:
    """Run the command line; what goes wrong on purpose is told in words, without a traceback."""
    with told_in_words():
        app()


if __name__ == "__main__":
    main()
