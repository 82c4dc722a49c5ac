"""Fakes of clouds' price lists over HTTP: Azure's, EC2's and Google's."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from tests.providers.fakes.cloud import FakeCloud
from tests.providers.fakes.wire import Answer, Lost, Request, WireFake

PRICES = {"Standard_D4s_v5": 0.23, "Standard_D8s_v5": 0.46}


class FakePriceList(WireFake):
    """Answers what Azure's list answers for a size in a region: Linux, Windows, spot."""

    def __init__(self) -> None:
        super().__init__(FakeCloud())
        self.asked = 0

    def routed(self, request: Request) -> Answer:
        self.asked += 1
        if self.cloud.away:
            raise Lost
        wanted = dict(re.findall(r"(\w+) eq '([^']*)'", request.query["$filter"]))
        assert wanted["serviceName"] == "Virtual Machines"
        assert wanted["armRegionName"] == "westeurope"
        price = PRICES.get(wanted["armSkuName"])
        size = wanted["armSkuName"].removeprefix("Standard_")
        items: list[dict[str, Any]] = []
        for product, sku, factor in (("Windows", size, 2.0), ("", size, 1.0), ("", f"{size} Spot", 0.2)):
            if price is not None:
                items.append(
                    {
                        "productName": f"Virtual Machines Dsv5 Series {product}".rstrip(),
                        "skuName": sku,
                        "retailPrice": round(price * factor, 6),
                        "currencyCode": request.query["currencyCode"].strip("'"),
                    }
                )
        return Answer(200, {"Items": items, "Count": len(items)})


class FakeAwsPrices(WireFake):
    """EC2's price list as its API gives it, page by page, and what spot instances cost by zone."""

    on_demand: ClassVar = {"t3.small": "0.0228000000", "m5.large": "0.1070000000"}
    spot: ClassVar = {"t3.small": ("0.0068", "0.0071")}

    def __init__(self) -> None:
        super().__init__(FakeCloud())
        self.asked = 0

    def routed(self, request: Request) -> Answer:
        self.asked += 1
        if self.cloud.away:
            return Answer(503, {"__type": "InternalErrorException"})
        target = request.headers.get("X-Amz-Target", "")
        if target == "AWSPriceListService.GetProducts":
            return self._products(request.json)
        asked = dict(parse_qsl(request.raw.decode()))
        if asked.get("Action") == "DescribeSpotPriceHistory":
            return self._history(asked["InstanceType.1"])
        return self.unknown(request)

    def _products(self, asked: dict[str, Any]) -> Answer:
        wanted = {one["Field"]: one["Value"] for one in asked["Filters"]}
        assert (wanted["regionCode"], wanted["operatingSystem"]) == ("eu-west-1", "Linux")
        price = self.on_demand.get(wanted["instanceType"])
        if price is None:
            return Answer(200, {"FormatVersion": "aws_v1", "PriceList": []})
        if "NextToken" not in asked:
            # A reservation of capacity that costs nothing is listed, too.
            return Answer(200, {"PriceList": [self._product("0.0000000000")], "NextToken": "more"})
        return Answer(200, {"PriceList": [self._product(price)]})

    @staticmethod
    def _product(price: str) -> str:
        rate = {"unit": "Hrs", "pricePerUnit": {"USD": price}, "description": "per hour"}
        term = {"priceDimensions": {"X.JRTCKXETXF.6YS6EN2CT7": rate}}
        return json.dumps({"product": {"sku": "X"}, "terms": {"OnDemand": {"X.JRTCKXETXF": term}}})

    def _history(self, kind: str) -> Answer:
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><spotPrice>{price}</spotPrice>"
            f"<availabilityZone>eu-west-1{zone}</availabilityZone></item>"
            for zone, price in zip("ab", self.spot.get(kind, ()), strict=False)
        )
        text = f"<R><spotPriceHistorySet>{items}</spotPriceHistorySet></R>"
        return Answer(200, text.encode(), {"Content-Type": "text/xml"})


class FakeGooglePrices(WireFake):
    """Google's catalogue of Compute Engine: every part has a price of its own, in two pages."""

    def __init__(self) -> None:
        super().__init__(FakeCloud())
        self.asked = 0

    def routed(self, request: Request) -> Answer:
        self.asked += 1
        if self.cloud.away:
            return Answer(503, {"error": "away"})
        currency = request.query["currencyCode"]
        skus = [
            self._sku("N2 Custom Instance Core running in Netherlands", "OnDemand", 99, currency),
            self._sku("N2 Instance Core running in Netherlands", "OnDemand", 0.034, currency),
            self._sku("N2 Instance Core running in Iowa", "OnDemand", 0.031, currency, "us-central1"),
            self._sku("N2 Instance Ram running in Netherlands", "OnDemand", 0.0045, currency),
            self._sku(
                "Spot Preemptible N2 Instance Core running in Netherlands", "Preemptible", 0.01, currency
            ),
            self._sku(
                "Spot Preemptible N2 Instance Ram running in Netherlands", "Preemptible", 0.001, currency
            ),
            self._sku("Commitment v1: N2 Instance Core running in Netherlands", "Commit1Yr", 0.02, currency),
        ]
        if "pageToken" not in request.query:
            return Answer(200, {"skus": skus[:3], "nextPageToken": "two"})
        return Answer(200, {"skus": skus[3:], "nextPageToken": ""})

    @staticmethod
    def _sku(
        text: str, kind: str, price: float, currency: str, region: str = "europe-west4"
    ) -> dict[str, Any]:
        nanos = round(price * 10**9)
        unit = {"currencyCode": currency, "units": str(nanos // 10**9), "nanos": nanos % 10**9}
        return {
            "description": text,
            "category": {"usageType": kind, "resourceFamily": "Compute"},
            "serviceRegions": [region],
            "pricingInfo": [{"pricingExpression": {"tieredRates": [{"unitPrice": unit}]}}],
        }
