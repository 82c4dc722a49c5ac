"""`penstock prices`: what hosts cost as written, beside their providers' own price lists."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.console import console as open_console
from penstock.errors import UnavailableError
from penstock.machine.folders import cache_folder
from penstock.providers.azure import AzureParameters
from penstock.providers.prices import AZURE, ListPrice, azure_prices, listed
from penstock.providers.registry import provider_parameters
from penstock.runs.assembly import load
from penstock.topology.model import HostFlavour, Site


def prices(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    cache: Annotated[
        Path | None, typer.Option(help="The folder in which lists are kept for a day; the user's by default.")
    ] = None,
    azure: Annotated[str, typer.Option(help="The address of Azure's price list.")] = AZURE,
) -> None:
    """Tell what an hour of each flavour costs, and what its provider's list says, with its date."""
    topology = load(file)
    table = Table(title=f"{topology.name}: prices an hour", title_justify="left")
    for name in ("site", "flavour", "written", "list", "difference", "of"):
        table.add_column(name, justify="right" if name in ("written", "list", "difference") else "left")
    console = open_console()
    for site in topology.sites:
        found: dict[str, ListPrice] = {}
        try:
            found = _listed(site, cache or cache_folder(), azure)
        except UnavailableError as error:
            console.print(str(error), style="yellow", markup=False)
        for flavour in site.flavours:
            table.add_row(*_row(site, flavour, found.get(flavour.name)))
    console.print(table)


def _listed(site: Site, cache: Path, azure: str) -> dict[str, ListPrice]:
    parameters = provider_parameters(site.provider)
    if not isinstance(parameters, AzureParameters):
        return {}
    fetch = azure_prices(parameters.region, spot=parameters.spot, currency=site.currency or "USD", url=azure)
    names = [flavour.name for flavour in site.flavours]
    return listed(site.name, names, fetch, azure, cache, time.time())


def _row(site: Site, flavour: HostFlavour, price: ListPrice | None) -> tuple[str, ...]:
    ours = flavour.price_per_btu * Decimal(3600) / Decimal(str(site.btu_s))
    shown = (site.name, flavour.name, f"{ours:.6f} {site.currency}".rstrip())
    if price is None:
        return (*shown, "", "", "by hand")
    day = datetime.fromtimestamp(price.dated_s, timezone.utc).strftime("%Y-%m-%d %H:%M")
    difference = f"{float(ours / price.per_hour) - 1:+.1%}" if price.per_hour else ""
    return (*shown, f"{price.per_hour:.6f} {price.currency}", difference, f"list of {day}")
