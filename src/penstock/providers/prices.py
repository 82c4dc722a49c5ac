"""Providers' own price lists: fetched, kept for a day with their date, and shown beside what is written.

A price that counts is the topology file's, held against the list by `penstock prices`, or the list's own
where the file says `list`. A list that cannot be had now is taken as it was, with its date.
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.errors import ProviderError, UnavailableError
from penstock.machine.asking import NO_ANSWER
from penstock.machine.files import written
from penstock.topology.model import HostFlavour, Site

FRESH_S = 86_400.0
"""How long a list is taken as it was read."""
CURRENCY = "USD"
"""What prices are asked for in where a site names no currency."""
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
    offer: str = ""
    """What it is the price of: the provider's own name, and whether as spot."""

    @property
    def day(self) -> str:
        """When the list was read, for people."""
        return datetime.fromtimestamp(self.dated_s, timezone.utc).strftime("%Y-%m-%d %H:%M")


Fetch = Callable[[Sequence[HostFlavour]], Mapping[str, tuple[Decimal, str]]]
"""Asks a provider for the prices an hour of flavours, by their names, with the currency of each.

An OSError or a ProviderError says that it cannot be asked now.
"""


def listed(
    site: Site, fetch: Fetch, source: str, cache: Path, now_s: float, fresh_s: float = FRESH_S
) -> dict[str, ListPrice]:
    """The list prices of a site's flavours: from the cache for `fresh_s`, else asked for.

    Where the provider cannot be asked, the cache as it is; UnavailableError where there is none.
    """
    flavours = site.flavours
    known = {name: price for name, price in known_prices(site, cache).items() if price.source == source}
    if all(f.name in known and now_s - known[f.name].dated_s < fresh_s for f in flavours):
        return known
    try:
        found = fetch(flavours)
    except (*NO_ANSWER, ProviderError) as error:
        if not known:
            raise UnavailableError(f"the price list of site {site.name} cannot be had: {error}") from error
        return known
    prices = {
        f.name: ListPrice(f.name, *found[f.name], now_s, source, _offer(f))
        for f in flavours
        if f.name in found
    }
    cache.mkdir(parents=True, exist_ok=True)
    rows = [[p.flavour, str(p.per_hour), p.currency, p.dated_s, p.source, p.offer] for p in prices.values()]
    written(_file(site, cache), json.dumps(rows))
    return prices


def _file(site: Site, cache: Path) -> Path:
    """A file for each place that prices are asked of: two topologies may both have a site of this name."""
    place = [site.provider.name, dict(site.provider.parameters), site.currency or CURRENCY]
    number = hashlib.sha256(json.dumps(place, sort_keys=True, default=str).encode()).hexdigest()[:12]
    return cache / f"prices-{urllib.parse.quote(site.name, safe='')}-{number}.json"


def _offer(flavour: HostFlavour) -> str:
    return f"{flavour.machine_type} spot" if flavour.spot else flavour.machine_type


def known_prices(site: Site, cache: Path) -> dict[str, ListPrice]:
    """The list prices of a site's flavours as they were last read, by flavour; nobody is asked."""
    offers = {flavour.name: _offer(flavour) for flavour in site.flavours}
    try:
        rows = json.loads(_file(site, cache).read_text())
    except (OSError, ValueError):
        return {}
    known = [ListPrice(row[0], Decimal(row[1]), row[2], float(row[3]), *row[4:]) for row in rows]
    return {price.flavour: price for price in known if offers.get(price.flavour) == price.offer}


def azure_prices(region: str, *, currency: str = CURRENCY, url: str = AZURE) -> Fetch:
    """Asks Azure's public list, which needs no credentials, for Linux machines of a region."""

    def fetch(flavours: Sequence[HostFlavour]) -> dict[str, tuple[Decimal, str]]:
        found: dict[str, tuple[Decimal, str]] = {}
        for flavour in flavours:
            wanted = (
                "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
                f"armRegionName eq '{region}' and armSkuName eq '{flavour.machine_type}'"
            )
            query = urllib.parse.urlencode({"currencyCode": f"'{currency}'", "$filter": wanted})
            with urllib.request.urlopen(f"{url}?{query}", timeout=30.0) as answer:
                items = json.load(answer).get("Items", [])
            prices = [item for item in items if _is_linux(item, spot=flavour.spot)]
            if prices:
                cheapest = min(prices, key=lambda item: float(item["retailPrice"]))
                price = Decimal(str(cheapest["retailPrice"]))
                found[flavour.name] = (price, str(cheapest.get("currencyCode", currency)))
        return found

    return fetch


def _is_linux(item: Mapping[str, Any], *, spot: bool) -> bool:
    product, sku = str(item.get("productName", "")), str(item.get("skuName", ""))
    return "Windows" not in product and "Low Priority" not in sku and ("Spot" in sku) is spot
