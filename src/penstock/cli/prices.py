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
from penstock.runs.assembly import load
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
    topology = load(file)
    table = Table(title=f"{topology.name}: prices an hour", title_justify="left")
    for name in ("site", "flavour", "written", "list", "difference", "of"):
        table.add_column(name, justify="right" if name in ("written", "list", "difference") else "left")
    console = open_console()
    for site in topology.sites:
        found: dict[str, ListPrice] = {}
        has_list = True
        try:
            prices = list_of(site, azure=azure, google=google)
            has_list = prices is not None
            if prices is not None:
                found = listed(
                    site.name,
                    site.flavours,
                    prices.fetch,
                    prices.source,
                    cache or cache_folder(),
                    time.time(),
                )
        except (ProviderError, ClusterError) as error:
            console.print(str(error), style="yellow", markup=False)
        for flavour in site.flavours:
            table.add_row(*_row(site, flavour, found.get(flavour.name), has_list=has_list))
    console.print(table)


def _row(site: Site, flavour: HostFlavour, price: ListPrice | None, *, has_list: bool) -> tuple[str, ...]:
    ours = flavour.price_per_btu * Decimal(3600) / Decimal(str(site.btu_s))
    shown = (site.name, flavour.name, f"{ours:.6f} {site.currency}".rstrip())
    if price is None:
        missing = "by hand" if has_list else f"by hand: {site.provider.name} has no price list"
        return (*shown, "", "", missing)
    difference = f"{float(ours / price.per_hour) - 1:+.1%}" if price.per_hour else ""
    return (*shown, f"{price.per_hour:.6f} {price.currency}", difference, f"list of {price.day}")
