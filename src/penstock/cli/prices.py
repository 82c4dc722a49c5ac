"""`penstock prices`: what hosts cost as written, beside their providers' own price lists."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.console import console as open_console
from penstock.errors import ClusterError, ProviderError
from penstock.machine.folders import cache_folder
from penstock.providers.price_lists import GOOGLE, list_of
from penstock.providers.prices import AZURE, ListPrice, listed
from penstock.runs.known import known_names
from penstock.topology.file import load_topology
from penstock.topology.model import HostFlavour, Site


def prices(
    file: Annotated[Path, typer.Argument(help="The topology file.")],
    cache: Annotated[
        Path | None, typer.Option(help="The folder in which lists are kept for a day; the user's by default.")
    ] = None,
    azure: Annotated[str, typer.Option(help="The address of Azure's price list.")] = AZURE,
    google: Annotated[str, typer.Option(help="The address of Google's price list.")] = GOOGLE,
) -> None:
    """Tell what an hour of each flavour costs, and what its provider's list says, with its date.

    Azure's list is public; Amazon's and Google's are asked with the credentials their SDKs find.
    """
    topology = load_topology(file, known_names())
    table = Table(title=f"{topology.name}: prices an hour", title_justify="left")
    for name in ("site", "flavour", "written", "list", "difference", "of"):
        table.add_column(name, justify="right" if name in ("written", "list", "difference") else "left")
    console = open_console()
    for site in topology.sites:
        found: dict[str, ListPrice] = {}
        missing = "not in the list"
        try:
            prices = list_of(site, azure=azure, google=google)
            if prices is None:
                missing = f"by hand: {site.provider.name} has no price list"
            else:
                found = listed(site, prices.fetch, prices.source, cache or cache_folder(), time.time())
        except (ProviderError, ClusterError) as error:
            missing = "the list cannot be had"
            console.print(str(error), style="yellow", markup=False)
        for flavour in site.flavours:
            table.add_row(*_row(site, flavour, found.get(flavour.name), missing))
    console.print(table)


def _row(site: Site, flavour: HostFlavour, price: ListPrice | None, missing: str) -> tuple[str, ...]:
    ours = flavour.price_per_btu * Decimal(3600) / Decimal(str(site.btu_s))
    written = "list" if flavour.unread else f"{ours:.6f} {site.currency}".rstrip()
    shown = (site.name, flavour.name, written)
    if price is None:
        return (*shown, "", "", missing)
    known = price.per_hour and not flavour.unread
    difference = f"{float(ours / price.per_hour) - 1:+.1%}" if known else ""
    return (*shown, f"{price.per_hour:.6f} {price.currency}", difference, f"list of {price.day}")
