"""Providers' own price lists: fetched, kept for a day with their date, and shown beside what is written.

Prices that count are those of the topology file: a list is what they are held against (`penstock prices`).
A list that cannot be had now is shown as it was, with its date.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.errors import UnavailableError
from penstock.machine.files import written

FRESH_S = 86_400.0
"""How long a list is taken as it was read."""
AZURE = "https://prices.azure.com/api/retail/prices"
"""Azure's public price list."""


@dataclass(frozen=True, slots=True)
class ListPrice:
    """What an hour of a flavour costs by its provider's list."""

    flavour: str
    per_hour: Decimal
    currency: str
    dated_s: float
    """When the list was read."""
    source: str


Fetch = Callable[[Sequence[str]], Mapping[str, tuple[Decimal, str]]]
"""Asks a provider for the prices an hour of flavours, with the currency of each."""


def listed(
    site: str, flavours: Sequence[str], fetch: Fetch, source: str, cache: Path, now_s: float
) -> dict[str, ListPrice]:
    """The list prices of a site's flavours: from the cache while it is fresh, else asked for.

    Where the provider cannot be asked, the cache as it is; UnavailableError where there is none.
    """
    file = cache / f"prices-{urllib.parse.quote(site, safe='')}.json"
    known = _read(file)
    fresh = {name: price for name, price in known.items() if now_s - price.dated_s < FRESH_S}
    if all(name in fresh and fresh[name].source == source for name in flavours):
        return {name: fresh[name] for name in flavours}
    try:
        found = fetch(flavours)
    except OSError as error:
        old = {name: known[name] for name in flavours if name in known and known[name].source == source}
        if not old:
            raise UnavailableError(f"the price list of site {site} cannot be had: {error}") from error
        return old
    prices = {n: ListPrice(n, price, currency, now_s, source) for n, (price, currency) in found.items()}
    cache.mkdir(parents=True, exist_ok=True)
    rows = [[p.flavour, str(p.per_hour), p.currency, p.dated_s, p.source] for p in prices.values()]
    written(file, json.dumps(rows))
    return prices


def _read(file: Path) -> dict[str, ListPrice]:
    try:
        rows = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {row[0]: ListPrice(row[0], Decimal(row[1]), row[2], float(row[3]), row[4]) for row in rows}


def azure_prices(region: str, *, spot: bool = False, currency: str = "USD", url: str = AZURE) -> Fetch:
    """Asks Azure's public list, which needs no credentials, for Linux machines of a region."""

    def fetch(flavours: Sequence[str]) -> dict[str, tuple[Decimal, str]]:
        found: dict[str, tuple[Decimal, str]] = {}
        for flavour in flavours:
            wanted = (
                "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
                f"armRegionName eq '{region}' and armSkuName eq '{flavour}'"
            )
            query = urllib.parse.urlencode({"currencyCode": f"'{currency}'", "$filter": wanted})
            with urllib.request.urlopen(f"{url}?{query}", timeout=30.0) as answer:
                items = json.load(answer).get("Items", [])
            prices = [item for item in items if _is_linux(item, spot=spot)]
            if prices:
                cheapest = min(prices, key=lambda item: float(item["retailPrice"]))
                price = Decimal(str(cheapest["retailPrice"]))
                found[flavour] = (price, str(cheapest.get("currencyCode", currency)))
        return found

    return fetch


def _is_linux(item: Mapping[str, Any], *, spot: bool) -> bool:
    product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
    return "Windows" not in product and "Low Priority" not in sku and ("Spot" in sku) is spot
