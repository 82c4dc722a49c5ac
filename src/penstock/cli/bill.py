"""`penstock bill`: what runs cost, by unit, operator, site, flavour or hour; as a table, CSV or FOCUS."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from penstock.api import client
from penstock.cli.choices import read_list
from penstock.cli.console import console as open_console
from penstock.controller.billing import HOUR_S, IDLE, Bill, Line, bill_of, by_operator, column
from penstock.errors import ConfigurationError, QuantityError
from penstock.experiments.twin import opened, topology_of_run
from penstock.machine.folders import cache_folder
from penstock.plain import of
from penstock.providers.prices import known_prices
from penstock.quantities import counted, price, shown
from penstock.topology.file import load_topology, parse_topology
from penstock.topology.model import Topology

COLUMNS = ("run", "unit", "operator", "site", "flavour", "host", "hour")
"""What a bill can be read by."""
FORMATS = ("table", "csv", "focus")
LARGEST_RECORD = 256 * 1024 * 1024
"""Bytes of a provider's billing record."""


def bill(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Runs' folders, their journals, or folders of sites' services."),
    ],
    by: Annotated[str, typer.Option(help=f"Columns, separated by commas: {', '.join(COLUMNS)}.")] = "unit",
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    topology: Annotated[
        Path | None, typer.Option(help="The runs' topology, where their folders have none.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="A provider's billing record as FOCUS CSV, to compare with.")
    ] = None,
) -> None:
    """Tell what runs cost, whom for, and what was paid for nothing.

    Of a site whose service is up every run is asked for, also where the site is elsewhere; all make one bill.
    `csv` and `focus` have one line for each hour of each lease and unit, with the decision that made it.
    """
    keys = read_list(by)
    unknown = [key for key in keys if key not in COLUMNS]
    if unknown or not keys:
        raise ConfigurationError(f"expected --by out of {', '.join(COLUMNS)}, got {by!r}")
    if form not in FORMATS:
        raise ConfigurationError(f"expected --format out of {', '.join(FORMATS)}, got {form!r}")
    if record is not None and form != "table":
        raise ConfigurationError(f"expected --record with the table, got it with --format {form}")
    recorded = None if record is None else _recorded(record)
    found, lists = Bill(()), dict[str, None]()
    for run, service in _named(runs).items():
        if service is None:
            more, known = _of_run(run, topology, operators="operator" in keys)
        else:
            more, known = _asked(service, run.name, topology, operators="operator" in keys)
        found = found.with_more(more)
        lists.update(dict.fromkeys(_list_prices(more, known)))
    if form == "csv":
        _write(COLUMNS_OF_CSV, (_csv_row(line) for line in found.lines))
    elif form == "focus":
        _write(COLUMNS_OF_FOCUS, (_focus_row(line) for line in found.lines))
    else:
        _print(found, keys)
        for line in lists:
            open_console().print(line, markup=False)
        if record is not None and recorded is not None:
            _compare(found, recorded, record.name)


def _named(runs: Iterable[Path]) -> dict[Path, client.Service | None]:
    """The runs that are meant, each once, and whom to ask for them; nobody where they can be read."""
    found: dict[Path, client.Service | None] = {}
    for run in (run.resolve() for run in runs):
        there = client.elsewhere(run)
        if (run / client.SERVICE_FILE).is_file():
            service = client.service_at(run)
            found |= {run / str(each["name"]): service for each in service.get("/runs")}
        elif there is not None:
            found[run] = there[0]
        else:
            found.setdefault(run)
    return found


def _asked(
    service: client.Service, name: str, given: Path | None, *, operators: bool
) -> tuple[Bill, Topology]:
    """The bill of a run as its service tells it, and its topology."""
    told = service.get(f"/runs/{name}/bill", lines="true")
    found: Bill = of(Bill, {part: told[part] for part in ("lines", "corrections")})
    text = service.get(f"/runs/{name}/topology")["text"]
    known = parse_topology(text) if given is None else load_topology(given)
    return by_operator(found, known) if operators else found, known


def _of_run(run: Path, given: Path | None, *, operators: bool) -> tuple[Bill, Topology | None]:
    known: Topology | None = None
    try:
        known = topology_of_run(run, given)
    except ConfigurationError:
        if given is not None or operators:
            raise
    with opened(run) as journal:
        found = bill_of(journal, known)
    return by_operator(found, known) if operators and known is not None else found, known


def _list_prices(found: Bill, topology: Topology | None) -> list[str]:
    """What providers' own lists say of the flavours in a bill, as they were last read (`penstock prices`)."""
    lines = []
    billed = {(line.site, line.flavour): line for line in found.lines}
    for site in topology.sites if topology is not None else ():
        for listed in known_prices(site, cache_folder()).values():
            line = billed.get((site.name, listed.flavour))
            if line is not None:
                lines.append(
                    f"{site.name}, {listed.flavour}: {_money(line.price_per_hour)} an hour in the bill, "
                    f"{_money(listed.per_hour)} {listed.currency} in the list of {listed.day}"
                )
    return lines


# -- the table -----------------------------------------------------------------------------------------


def _print(found: Bill, keys: Sequence[str]) -> None:
    currency = ", ".join(sorted({line.currency for line in found.lines if line.currency}))
    table = Table(title=f"bill {_money(found.total)} {currency}".rstrip(), title_justify="left")
    for key in keys:
        table.add_column(key)
    for name in ("cost", "share", "hosts", "host hours"):
        table.add_column(name, justify="right")
    for values, cost in found.by(*keys).items():
        mine = [line for line in found.lines if tuple(column(line, name) for name in keys) == values]
        share = float(cost / found.total) if found.total else 0.0
        table.add_row(
            *(_shown(name, value) for name, value in zip(keys, values, strict=True)),
            _money(cost),
            f"{share:.1%}",
            str(len({(line.run, line.host) for line in mine})),
            f"{sum(line.used_s for line in mine) / HOUR_S:.3g}",
        )
    console = open_console()
    console.print(table)
    idle = float(found.idle / found.total) if found.total else 0.0
    console.print(f"idle (paid, and nothing on it): {_money(found.idle)}, {idle:.1%}")
    if found.corrections:
        changed = sum((charge.amount for charge in found.corrections), Decimal(0))
        hosts = len({charge.host for charge in found.corrections})
        console.print(
            f"providers' own records differed from the books on {counted(hosts, 'lease')}: {changed:+f}, "
            "in the bill"
        )


def _compare(found: Bill, theirs: Mapping[str, Decimal], name_of_record: str) -> None:
    """The difference to a provider's own billing record, by host."""
    ours = {key[0]: cost for key, cost in found.by("host").items()}
    table = Table(title=f"against {name_of_record}", title_justify="left")
    for name in ("host", "bill", "provider", "difference"):
        table.add_column(name, justify="left" if name == "host" else "right")
    zero = Decimal(0)
    for host in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(host, zero), theirs.get(host, zero)
        if mine != other:
            table.add_row(host, _money(mine), _money(other), f"{mine - other:+f}")
    difference = sum(ours.values(), zero) - sum(theirs.values(), zero)
    console = open_console()
    if table.row_count:
        console.print(table)
    console.print(f"difference to the provider's record: {difference:+f}")


def _recorded(file: Path) -> dict[str, Decimal]:
    """What a FOCUS file bills, by our hosts' names: from their tag, or the resource's name."""
    if not file.is_file():
        raise ConfigurationError(f"expected a provider's billing record, a FOCUS file, got {file}")
    if file.stat().st_size > LARGEST_RECORD:
        raise ConfigurationError(
            f"{file}: larger than {LARGEST_RECORD >> 20} MiB; give the record of one month"
        )
    found: dict[str, Decimal] = {}
    with file.open(newline="", encoding="utf-8-sig") as source:
        reader = csv.DictReader(source)
        try:
            if "BilledCost" not in (reader.fieldnames or ()):
                raise ConfigurationError(f"expected a FOCUS file with the column BilledCost, got {file}")
            for row in reader:
                host, cost = _billed(row)
                found[host] = found.get(host, Decimal(0)) + cost
        except (csv.Error, ValueError, RecursionError) as error:  # its cells, bytes, costs or tags
            raise ConfigurationError(
                f"{file}:{reader.line_num}: expected a cost and tags as JSON; {error}"
            ) from None
    return found


def _billed(row: Mapping[str, Any]) -> tuple[str, Decimal]:
    """The host and the cost of one line of a record; ValueError where it has none."""
    cost = price(row["BilledCost"] or "")
    if cost.per_s is not None:
        raise QuantityError(f"expected an amount, got {shown(row['BilledCost'])}")
    tags = json.loads(row.get("Tags") or "{}")
    named = tags.get("penstock-host") if isinstance(tags, dict) else tags
    if not isinstance(tags, dict) or not isinstance(named, str | None):
        raise QuantityError(f'expected tags such as {{"penstock-host": "host-1"}}, got {shown(tags)}')
    return named or row.get("ResourceName") or row.get("ResourceId") or "", cost.amount


def _shown(name: str, value: str) -> str:
    return _instant(float(value)) if name == "hour" else value


def _money(amount: Decimal) -> str:
    return f"{amount:.6f}"


# -- one line for each hour, lease and unit ------------------------------------------------------------

COLUMNS_OF_CSV = (
    "run", "site", "flavour", "host", "unit", "operator", "from", "until", "cost", "currency", "used_s",
    "decided", "policy", "reason",
)  # fmt: skip


def _csv_row(line: Line) -> tuple[Any, ...]:
    return (
        line.run, line.site, line.flavour, line.host, line.unit, line.operator, _instant(line.from_s),
        _instant(line.until_s), f"{line.cost:f}", line.currency, f"{line.used_s:.3f}",
        _instant(line.decision.at_s), line.decision.policy, line.decision.reason,
    )  # fmt: skip


COLUMNS_OF_FOCUS = (
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingCurrency", "BillingPeriodStart",
    "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeDescription",
    "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit",
    "ListUnitPrice", "ProviderName", "RegionId", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "SkuId", "Tags", "x_Unit", "x_Operator", "x_Decision",
)  # fmt: skip
"""Columns of the FinOps Open Cost and Usage Specification; those beginning with `x_` are ours."""


def _focus_row(line: Line) -> tuple[Any, ...]:
    cost = f"{line.cost:f}"
    began = datetime.fromtimestamp(line.from_s, timezone.utc).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    ends = began.replace(year=began.year + began.month // 12, month=began.month % 12 + 1)
    hours = f"{line.used_s / HOUR_S:.9f}"
    tags = {"penstock-run": line.run, "penstock-site": line.site, "penstock-host": line.host}
    about = "idle" if line.unit == IDLE else line.unit
    return (
        cost, cost, cost, cost, line.currency, _instant(began.timestamp()), _instant(ends.timestamp()),
        _instant(line.from_s), _instant(line.until_s), "Usage", f"{line.flavour} for {about}",
        "Usage-Based", hours, "Hours", hours, "Hours", f"{line.price_per_hour:f}", line.site, line.site,
        line.host, line.host, "Virtual machine", "Compute", "Hosts", line.flavour, json.dumps(tags),
        line.unit, line.operator, f"{line.decision.policy}: {line.decision.reason}",
    )  # fmt: skip


def _write(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
