"""A fake of Azure's public price list over HTTP."""

from __future__ import annotations

import re
from typing import Any

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
