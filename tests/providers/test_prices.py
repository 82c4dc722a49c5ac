"""Price lists: asked for once a day, dated, shown beside what is written, and there when the list is not."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import ConfigurationError, UnavailableError
from penstock.providers.price_lists import PriceList, aws_prices, google_prices, list_of, with_list_prices
from penstock.providers.prices import FRESH_S, Fetch, azure_prices, known_prices, listed
from penstock.runs.known import known_names
from penstock.topology.file import dump_topology, parse_topology
from penstock.topology.model import Choice, HostFlavour, Site
from tests.providers.fakes.price_list import FakeAwsPrices, FakeGooglePrices, FakePriceList
from tests.providers.fakes.wire import serving

SIZES = ("Standard_D4s_v5", "Standard_D8s_v5")


def flavours(*names: str, spot: bool = False) -> tuple[HostFlavour, ...]:
    return tuple(HostFlavour(name, 4.0, 16384, Decimal(1), spot=spot) for name in names)


def a_site(name: str, flavours: tuple[HostFlavour, ...]) -> Site:
    return Site(name, flavours=flavours)


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
            found = listed(a_site("cloud", flavours(*SIZES)), fetch, fake.url, tmp_path, now_s)
            return {name: (price.per_hour, price.dated_s) for name, price in found.items()}

        first = prices(1000.0)
        assert first == {SIZES[0]: (Decimal("0.23"), 1000.0), SIZES[1]: (Decimal("0.46"), 1000.0)}
        assert prices(1000.0 + FRESH_S - 1) == first
        assert fake.asked == 2, "once for each size, and not again within a day"
        assert prices(1000.0 + FRESH_S)[SIZES[0]] == (Decimal("0.23"), 1000.0 + FRESH_S)
        fake.cloud.away = True
        assert prices(1e9)[SIZES[0]] == (Decimal("0.23"), 1000.0 + FRESH_S), "as it was, with its date"
        with pytest.raises(UnavailableError, match="price list of site elsewhere"):
            listed(a_site("elsewhere", flavours(*SIZES)), fetch, fake.url, tmp_path, 1e9)


def test_spot_prices_are_others() -> None:
    with serving(FakePriceList()) as fake:
        assert azure_prices("westeurope", currency="EUR", url=fake.url)(flavours(SIZES[0], spot=True)) == {
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
    assert "not in the list" in rows["other"]


def asked_at(url: str) -> Callable[[Site], PriceList | None]:
    return lambda site: list_of(site, azure=url)


def test_a_price_written_as_list_is_the_providers_and_stays_when_the_run_is_written_down(
    tmp_path: Path,
) -> None:
    text = TOPOLOGY.replace("price: 0.25 EUR/h", "price: list")
    topology = parse_topology(text, known=known_names())
    assert parse_topology(dump_topology(topology)) == topology, "nobody is asked to read or write a file"
    with serving(FakePriceList()) as fake:
        priced = with_list_prices(topology, tmp_path, asked_at(fake.url))
    (site,) = priced.sites
    assert site.flavour("Standard_D4s_v5").price_per_btu == Decimal("0.23")
    assert site.flavour("other").price_per_btu == Decimal("0.05"), "what is written by hand stays"
    assert parse_topology(dump_topology(priced)) == priced
    assert with_list_prices(topology, tmp_path, asked_at(fake.url)) == priced, "the list is away: as it was"
    assert with_list_prices(priced, tmp_path / "empty", asked_at(fake.url)) is priced


def test_two_sites_of_one_name_in_two_regions_have_two_lists(tmp_path: Path) -> None:
    def fetch(price: str) -> Fetch:
        return lambda flavours: {flavour.name: (Decimal(price), "EUR") for flavour in flavours}

    here, there = (
        Site("cloud", Choice("azure", {"region": region}), flavours=flavours(SIZES[0]))
        for region in ("westeurope", "eastus")
    )
    listed(here, fetch("0.23"), "list", tmp_path, 5.0)
    assert listed(there, fetch("0.19"), "list", tmp_path, 6.0)[SIZES[0]].per_hour == Decimal("0.19")
    assert known_prices(here, tmp_path)[SIZES[0]].per_hour == Decimal("0.23")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOPOLOGY.replace("price: 0.05 EUR/h", "price: list"), '"other" is not in'),
        ("{name: n, sources: {s: {}}, operators: {o: {inputs: [s]}}, sites: {lab: {provider: simulated, "
         "flavours: {f: {cores: 1, memory: 1 GiB, price: list}}}}}", "simulated has no price list"),
    ],
)  # fmt: skip
def test_a_list_without_the_price_is_told(text: str, message: str, tmp_path: Path) -> None:
    topology = parse_topology(text, known=known_names())
    with serving(FakePriceList()) as fake, pytest.raises(ConfigurationError, match=message):
        with_list_prices(topology, tmp_path, asked_at(fake.url))


def test_a_list_in_another_currency_is_told(tmp_path: Path) -> None:
    dollars = PriceList("a list", lambda flavours: {f.name: (Decimal(1), "USD") for f in flavours})
    topology = parse_topology(TOPOLOGY.replace("price: 0.25 EUR/h", "price: list"), known=known_names())
    with pytest.raises(ConfigurationError, match="prices in EUR, and in USD in the provider's list"):
        with_list_prices(topology, tmp_path, lambda site: dollars)


def test_a_flavour_that_becomes_spot_is_asked_for_anew(tmp_path: Path) -> None:
    with serving(FakePriceList()) as fake:
        fetch = azure_prices("westeurope", url=fake.url)
        for spot, price in ((False, "0.23"), (True, "0.046")):
            wanted = flavours(SIZES[0], spot=spot)
            site = a_site("cloud", wanted)
            found = listed(site, fetch, fake.url, tmp_path, 5.0)
            assert found[SIZES[0]].per_hour == Decimal(price)
            assert known_prices(site, tmp_path) == found


def test_ec2_is_asked_for_on_demand_and_for_spot_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    with serving(FakeAwsPrices()) as fake:
        for name in ("AWS_ENDPOINT_URL_PRICING", "AWS_ENDPOINT_URL_EC2"):
            monkeypatch.setenv(name, fake.url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "of-a-fake")
        wanted = (
            HostFlavour("small", 2.0, 2048, Decimal(1), type="t3.small"),
            HostFlavour("cheap", 2.0, 2048, Decimal(1), type="t3.small", spot=True),
            HostFlavour("m5.large", 2.0, 8192, Decimal(1)),
            HostFlavour("unheard-of", 2.0, 8192, Decimal(1)),
        )
        assert aws_prices("eu-west-1")(wanted) == {
            "small": (Decimal("0.0228"), "USD"),
            "cheap": (Decimal("0.0071"), "USD"),
            "m5.large": (Decimal("0.107"), "USD"),
        }


def test_ec2_without_an_answer_leaves_the_prices_as_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with serving(FakeAwsPrices()) as fake:
        assert isinstance(fake, FakeAwsPrices)
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", fake.url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "of-a-fake")
        wanted, fetch = flavours("t3.small"), aws_prices("eu-west-1")
        first = listed(a_site("ireland", wanted), fetch, "list", tmp_path, 5.0)
        fake.cloud.away = True
        assert listed(a_site("ireland", wanted), fetch, "list", tmp_path, 5.0 + FRESH_S) == first


def test_google_adds_up_the_price_of_cores_and_memory() -> None:
    requests = pytest.importorskip("requests")
    with serving(FakeGooglePrices()) as fake, requests.Session() as session:
        session.trust_env = False
        fetch = google_prices("europe-west4", currency="EUR", url=fake.url, session=session)
        wanted = (
            HostFlavour("n2-standard-4", 4.0, 16384, Decimal(1)),
            HostFlavour("cheap", 4.0, 16384, Decimal(1), type="n2-standard-4", spot=True),
            HostFlavour("n9-standard-4", 4.0, 16384, Decimal(1)),
        )
        assert fetch(wanted) == {
            "n2-standard-4": (Decimal("0.208"), "EUR"),
            "cheap": (Decimal("0.056"), "EUR"),
        }
        fake.cloud.away = True
        with pytest.raises(UnavailableError):
            fetch(wanted)


@pytest.mark.parametrize("name", ["openstack", "vmware", "ssh", "local", "simulated"])
def test_who_has_no_price_list_says_so(name: str, tmp_path: Path) -> None:
    parameters = {
        "openstack": {"image": "i", "network": "n"},
        "vmware": {"template": "t", "folder": "f", "pool": "p"},
        "ssh": {"machines": ("ops@h1",)},
    }
    site = Site("private", Choice(name, parameters.get(name, {})))
    assert list_of(site) is None
    if name == "openstack":
        file = tmp_path / "private.yaml"
        file.write_text(
            "name: own\nsources: {s: {}}\noperators: {o: {inputs: [s]}}\n"
            "sites: {private: {provider: {name: openstack, image: i, network: n}}}\n"
        )
        shown = CliRunner().invoke(app, ["prices", str(file), "--cache", str(tmp_path)])
        assert "openstack has no price list" in " ".join(shown.output.split())
