"""Which provider has a price list, and how it is asked: EC2's, Google's and Azure's (`prices`).

An OpenStack, a vCenter and machines of one's own have none: what they cost is written by hand.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError, UnauthorisedError, UnavailableError
from penstock.machine.folders import cache_folder
from penstock.providers.aws import AwsApi, AwsParameters
from penstock.providers.azure import AzureParameters
from penstock.providers.cloud_api import error_of, sdk
from penstock.providers.gcp import GcpParameters
from penstock.providers.prices import AZURE, CURRENCY, FRESH_S, Fetch, azure_prices, listed
from penstock.providers.registry import provider_parameters
from penstock.topology.model import HostFlavour, Site, Topology

AWS = "EC2's price list"
"""It is asked for over boto3, which knows where it is (AWS_ENDPOINT_URL_PRICING says otherwise)."""
GOOGLE = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
"""The catalogue of Google's Compute Engine: cores and memory have a price each."""
PRICING_REGION = "us-east-1"
"""Where EC2's price list of all regions is."""
ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class PriceList:
    """A provider's list, and how it is asked."""

    source: str
    fetch: Fetch


Lists = Callable[[Site], PriceList | None]
"""Which list a site's prices are from; None where its provider has none."""


def list_of(site: Site, *, azure: str = AZURE, google: str = GOOGLE) -> PriceList | None:
    """The price list of a site's provider; None where it has none."""
    parameters, currency = provider_parameters(site.provider), site.currency or CURRENCY
    if isinstance(parameters, AzureParameters):
        return PriceList(azure, azure_prices(parameters.region, currency=currency, url=azure))
    if isinstance(parameters, AwsParameters):
        return PriceList(AWS, aws_prices(parameters.region))
    if isinstance(parameters, GcpParameters):
        region = parameters.zone.rpartition("-")[0]
        return PriceList(google, google_prices(region, currency=currency, url=google))
    return None


def with_list_prices(
    topology: Topology,
    cache: Path | None = None,
    price_list: Lists = list_of,
    fresh_s: float | None = None,
) -> Topology:
    """A topology whose flavours all have a price: those written as `list` get the one of today's list.

    With `fresh_s`, prices that were read from a list before are read anew, from lists that are no older.
    ConfigurationError where the provider has no list or the flavour is not on it; UnavailableError where it
    cannot be had, and was not within reach before.
    """

    def wanted(site: Site) -> list[HostFlavour]:
        return [f for f in site.flavours if f.unread or (f.listed and fresh_s is not None)]

    if not any(map(wanted, topology.sites)):
        return topology
    folder = cache or cache_folder()
    sites = tuple(
        _priced(site, found, folder, price_list(site), FRESH_S if fresh_s is None else fresh_s)
        if (found := wanted(site))
        else site
        for site in topology.sites
    )
    currencies = sorted({site.currency for site in sites if site.currency})
    if len(currencies) > 1:
        raise ConfigurationError(
            f"prices in {' and '.join(currencies)}; expected one currency: write `currency` at each site"
        )
    return replace(topology, sites=sites)


def _priced(
    site: Site, wanted: Sequence[HostFlavour], cache: Path, prices: PriceList | None, fresh_s: float
) -> Site:
    if prices is None:
        raise ConfigurationError(
            f'site "{site.name}": {site.provider.name} has no price list; write the price of '
            f'"{wanted[0].name}", such as "0.10 USD/h"'
        )
    known = listed(site, prices.fetch, prices.source, cache, time.time(), fresh_s)
    missing = [flavour.name for flavour in wanted if flavour.name not in known]
    if missing:
        raise ConfigurationError(
            f'site "{site.name}": "{missing[0]}" is not in {prices.source}; write its price, or its `type`'
        )
    currency = known[wanted[0].name].currency
    if site.currency not in ("", currency):
        raise ConfigurationError(
            f'site "{site.name}": prices in {site.currency}, and in {currency} in the provider\'s list; '
            f"expected one"
        )
    hours = Decimal(str(site.btu_s)) / 3600
    flavours = tuple(
        replace(f, price_per_btu=known[f.name].per_hour * hours) if f in wanted else f for f in site.flavours
    )
    return replace(site, flavours=flavours, currency=currency)


def aws_prices(region: str) -> Fetch:
    """Asks EC2's price list for Linux instances of a region; for spot, what they cost there now.

    Spot prices differ by zone: the dearest one's is taken.
    """

    def fetch(flavours: Sequence[HostFlavour]) -> dict[str, tuple[Decimal, str]]:
        session = sdk("boto3", "aws").session.Session(region_name=region)
        found: dict[str, tuple[Decimal, str]] = {}
        for flavour in flavours:
            price = _aws_spot(session, flavour) if flavour.spot else _aws_on_demand(session, flavour, region)
            if price is not None:
                found[flavour.name] = (price, "USD")
        return found

    return fetch


def _aws_on_demand(session: Any, flavour: HostFlavour, region: str) -> Decimal | None:
    wanted = {
        "instanceType": flavour.machine_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]

    def asked() -> list[str]:
        pages = session.client("pricing", region_name=PRICING_REGION).get_paginator("get_products")
        found = pages.paginate(ServiceCode="AmazonEC2", Filters=filters)
        return [product for page in found for product in page["PriceList"]]

    prices = [
        Decimal(dimension["pricePerUnit"]["USD"])
        for product in AwsApi.said(asked)
        for term in json.loads(product)["terms"].get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension["unit"] == "Hrs"
    ]
    return max((price for price in prices if price), default=None)


def _aws_spot(session: Any, flavour: HostFlavour) -> Decimal | None:
    def asked() -> Mapping[str, Any]:
        answer: Mapping[str, Any] = session.client("ec2").describe_spot_price_history(
            InstanceTypes=[flavour.machine_type],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(timezone.utc),
        )
        return answer

    return max((Decimal(one["SpotPrice"]) for one in AwsApi.said(asked)["SpotPriceHistory"]), default=None)


def google_prices(region: str, *, currency: str = CURRENCY, url: str = GOOGLE, session: Any = None) -> Fetch:
    """Asks Google's catalogue: what the cores and the memory of each machine type cost in a region.

    `session` asks with credentials; by default with those of Google's own chain.
    """

    def fetch(flavours: Sequence[HostFlavour]) -> dict[str, tuple[Decimal, str]]:
        skus = _google_skus(session or _google_session(), url, currency)
        here = [sku for sku in skus if region in sku.get("serviceRegions", ())]
        found: dict[str, tuple[Decimal, str]] = {}
        for flavour in flavours:
            core, memory = (_google_rate(here, flavour, part) for part in ("Core", "Ram"))
            if core is not None and memory is not None:
                gib = Decimal(flavour.memory_mib) / 1024
                found[flavour.name] = (core * Decimal(str(flavour.cores)) + memory * gib, currency)
        return found

    return fetch


def _google_session() -> Any:
    auth, errors = sdk("google.auth", "gcp"), sdk("google.auth.exceptions", "gcp")
    try:
        credentials, _ = auth.default(scopes=["https://www.googleapis.com/auth/cloud-billing.readonly"])
    except errors.GoogleAuthError as error:
        raise UnauthorisedError(f"Google: {error}") from error
    return sdk("google.auth.transport.requests", "gcp").AuthorizedSession(credentials)


def _google_skus(session: Any, url: str, currency: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    page = ""
    while True:
        asked = {"currencyCode": currency, "pageSize": "5000", **({"pageToken": page} if page else {})}
        try:
            answer = session.get(url, params=asked, timeout=ANSWER_S)
        except Exception as error:  # requests' errors and those of credentials, which need not be installed
            raise UnavailableError(f"Google: {error}") from error
        if answer.status_code != 200:
            raise error_of(answer.status_code, f"Google: {answer.text[:200]}")
        said = answer.json()
        found += said.get("skus", ())
        page = said.get("nextPageToken", "")
        if not page:
            return found


def _google_rate(skus: Sequence[Mapping[str, Any]], flavour: HostFlavour, part: str) -> Decimal | None:
    """What an hour of one core, or of one GiB, costs in a machine type's family; None where it is unlisted.

    The catalogue tells families apart by the words of a description, and by nothing else.
    """
    family = re.escape(flavour.machine_type.partition("-")[0].upper())
    words = re.compile(
        rf"(?:Spot Preemptible )?{family}(?: Predefined| AMD| Arm)? Instance {part} running in "
    )
    kind = "Preemptible" if flavour.spot else "OnDemand"
    for sku in skus:
        if sku["category"].get("usageType") == kind and words.match(sku["description"]):
            rate = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
            return Decimal(rate.get("units") or 0) + Decimal(rate.get("nanos") or 0) / 10**9
    return None
