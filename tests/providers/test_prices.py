"""Price lists: asked for once a day, dated, shown beside what is written, and there when the list is not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import UnavailableError
from penstock.providers.prices import FRESH_S, azure_prices, listed
from tests.providers.fakes.price_list import FakePriceList
from tests.providers.fakes.wire import serving

SIZES = ("Standard_D4s_v5", "Standard_D8s_v5")
TOPOLOGY = """
name: paid
sources: {s: {}}
operators: {o: {inputs: [s]}}
sites:
  cloud:
    provider: {name: azure, region: westeurope, resource_group: tests, subnet: /subnets/one, image: 'a:b:c:d'}
    currency: EUR
    minimum: 60 s
    increment: 1 s
    budget: 100 EUR
    flavours:
      Standard_D4s_v5: {cores: 4, memory: 16 GiB, price: 0.25 EUR/h}
      other: {cores: 1, memory: 4 GiB, price: 0.05 EUR/h}
"""


def test_a_list_is_asked_for_once_a_day_and_kept_when_it_is_away(tmp_path: Path) -> None:
    with serving(FakePriceList()) as fake:
        assert isinstance(fake, FakePriceList)
        fetch = azure_prices("westeurope", url=fake.url)

        def prices(now_s: float) -> dict[str, tuple[Decimal, float]]:
            found = listed("cloud", SIZES, fetch, fake.url, tmp_path, now_s)
            return {name: (price.per_hour, price.dated_s) for name, price in found.items()}

        first = prices(1000.0)
        assert first == {SIZES[0]: (Decimal("0.23"), 1000.0), SIZES[1]: (Decimal("0.46"), 1000.0)}
        assert prices(1000.0 + FRESH_S - 1) == first
        assert fake.asked == 2, "once for each size, and not again within a day"
        assert prices(1000.0 + FRESH_S)[SIZES[0]] == (Decimal("0.23"), 1000.0 + FRESH_S)
        fake.cloud.away = True
        assert prices(1e9)[SIZES[0]] == (Decimal("0.23"), 1000.0 + FRESH_S), "as it was, with its date"
        with pytest.raises(UnavailableError, match="price list of site elsewhere"):
            listed("elsewhere", SIZES, fetch, fake.url, tmp_path, 1e9)


def test_spot_prices_are_others() -> None:
    with serving(FakePriceList()) as fake:
        assert azure_prices("westeurope", spot=True, currency="EUR", url=fake.url)(SIZES[:1]) == {
            SIZES[0]: (Decimal("0.046"), "EUR")
        }


def test_the_command_shows_what_is_written_beside_the_list(tmp_path: Path) -> None:
    file = tmp_path / "paid.yaml"
    file.write_text(TOPOLOGY)
    with serving(FakePriceList()) as fake:
        arguments = ["prices", str(file), "--cache", str(tmp_path), "--azure", fake.url]
        shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    rows = {line.split("│")[2].strip(): line for line in shown.output.splitlines() if "│ cloud" in line}
    assert "0.250000 EUR" in rows[SIZES[0]]
    assert "0.230000 EUR" in rows[SIZES[0]]
    assert "+8.7%" in rows[SIZES[0]]
    assert "list of 20" in rows[SIZES[0]]
    assert "by hand" in rows["other"]
