"""`penstock bill`: every line of it leads to a lease and to the decision behind it, and all add up."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.api import client
from penstock.cli.main import app
from penstock.controller.billing import IDLE, Bill, bill_of, by_operator
from penstock.controller.journal import Journal
from penstock.controller.status import Status
from penstock.errors import ClusterError
from penstock.experiments.twin import opened
from penstock.providers.prices import listed
from penstock.report.run_report import write_run_report
from penstock.runs.folder import RunFolder
from penstock.runs.plan import RunPlan
from penstock.simulator import SimulationSettings, simulate
from penstock.topology.file import dump_topology
from penstock.topology.model import Choice, HostFlavour, Operator, Service, Sink, Site, Source, Topology, Unit

HOURS = 3.0


def a_topology() -> Topology:
    levels = (20.0, 45.0, 25.0)
    return Topology(
        "web",
        (Source("s", workload=Choice("stepwise", {"levels_per_s": levels, "hold_s": 1800.0})),),
        (
            Operator("read", ("s",), slo_s=1.0, service=Service(0.1)),
            Operator("clean", ("read",), slo_s=1.0, service=Service(0.1)),
            Operator("count", ("clean",), slo_s=2.0, service=Service(0.2)),
        ),
        (Sink("k", ("count",)),),
        units=(
            Unit("front", ("read", "clean"), policy=Choice("rate"), initial_instances=4),
            Unit("back", ("count",), policy=Choice("rate"), initial_instances=4),
        ),
        sites=(
            Site(
                "c",
                flavours=(HostFlavour("m", 4.0, 8192, Decimal("0.37")),),
                currency="EUR",
                minimum_s=60.0,
                increment_s=1.0,
            ),
        ),
    )


@pytest.fixture(scope="module")
def a_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Decimal]:
    folder = tmp_path_factory.mktemp("run")
    topology = a_topology()
    with Journal(folder / "journal.db", "web", buffered=True) as journal:
        result = simulate(topology, SimulationSettings(seed=3), duration_s=HOURS * 3600, journal=journal)
        write_run_report(folder, topology, result, journal)
    return folder, result.resource_cost


@pytest.fixture(scope="module")
def the_bill(a_run: tuple[Path, Decimal]) -> Bill:
    with opened(a_run[0]) as journal:
        return bill_of(journal, a_topology())


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["bill", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("keys", [("unit",), ("site",), ("flavour", "hour"), ("host",), ("hour", "unit")])
def test_a_bill_adds_up_to_the_ledger_whatever_it_is_read_by(
    a_run: tuple[Path, Decimal], the_bill: Bill, keys: tuple[str, ...]
) -> None:
    assert the_bill.total == a_run[1]
    assert sum(the_bill.by(*keys).values()) == a_run[1]


def test_units_pay_for_the_cores_they_held_and_the_rest_was_idle(the_bill: Bill) -> None:
    parts = {key[0]: cost for key, cost in the_bill.by("unit").items()}
    assert set(parts) == {"front", "back", IDLE}
    assert 0 < the_bill.idle < the_bill.total / 2
    # A host's hour at 0.37 with one of its four cores held costs the holder a quarter.
    for line in the_bill.lines:
        span_s = line.until_s - line.from_s
        assert 0 < line.used_s <= span_s + 1e-6
        assert float(line.cost) == pytest.approx(0.37 * line.used_s / 3600, abs=2e-4)


def test_every_line_leads_to_the_lease_and_the_decision_that_made_it(
    a_run: tuple[Path, Decimal], the_bill: Bill
) -> None:
    with opened(a_run[0]) as journal:
        leases = {lease.host: lease for lease in journal.leases()}
        decided = {r["subject"]: r["reason"] for r in journal.rows("action") if r["kind"] == "LeaseHost"}
    for line in the_bill.lines:
        lease = leases[line.host]
        assert lease.started_s <= line.from_s < line.until_s <= lease.paid_until_s + 1e-6
        assert line.decision.reason == decided[line.host]
        assert line.decision.policy


def test_a_unit_is_divided_over_its_operators(the_bill: Bill) -> None:
    divided = by_operator(the_bill, a_topology())
    parts = {key[0]: cost for key, cost in divided.by("operator").items()}
    assert set(parts) == {"read", "clean", "count", IDLE}
    assert divided.total == the_bill.total
    assert float(parts["read"]) == pytest.approx(float(parts["clean"]))


def test_the_table_tells_the_whole_and_what_was_idle(
    a_run: tuple[Path, Decimal], the_bill: Bill, tmp_path: Path
) -> None:
    folder = str(a_run[0])
    output = shown(folder, "--by", "unit,hour")
    assert f"bill {a_run[1]:.6f} EUR" in output
    assert f"idle (paid, and nothing on it): {the_bill.idle:.6f}" in output
    assert "1970-01-01T01:00:00Z" in output
    another = str(shutil.copytree(folder, tmp_path / "another"))
    twice = shown(folder, another, "--by", "operator")
    assert f"bill {2 * a_run[1]:.6f} EUR" in twice, "several runs are one bill"
    assert "clean" in twice
    assert f"bill {a_run[1]:.6f} EUR" in shown(folder, f"{folder}/."), "a run named twice was paid once"


def test_csv_and_focus_have_a_line_for_each_hour_and_add_up(
    a_run: tuple[Path, Decimal], tmp_path: Path
) -> None:
    folder = str(a_run[0])
    rows = list(csv.DictReader(io.StringIO(shown(folder, "--format", "csv"))))
    assert sum(Decimal(row["cost"]) for row in rows) == a_run[1]
    text = shown(folder, "--format", "focus")
    focus = list(csv.DictReader(io.StringIO(text)))
    assert sum(Decimal(row["BilledCost"]) for row in focus) == a_run[1]
    assert {row["ChargeCategory"] for row in focus} == {"Usage"}
    assert {row["BillingCurrency"] for row in focus} == {"EUR"}
    assert json.loads(focus[0]["Tags"])["penstock-host"] == focus[0]["ResourceId"]

    record = tmp_path / "record.csv"
    record.write_text(text)
    assert "difference to the provider's record: +0" in shown(folder, "--record", str(record)).replace(
        "-0", "+0"
    )
    focus[0]["BilledCost"] = str(Decimal(focus[0]["BilledCost"]) + 1)
    with record.open("w", newline="") as file:
        writer = csv.DictWriter(file, focus[0].keys())
        writer.writeheader()
        writer.writerows(focus)
    compared = shown(folder, "--record", str(record))
    assert "difference to the provider's record: -1.0" in compared
    assert focus[0]["ResourceId"] in compared


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "colour"], "expected --by out of run, unit"),
        (["--format", "pdf"], "expected --format out of table, csv, focus"),
        (["--topology", "none.yaml"], "expected the run's topology"),
        (["--record", "none.csv"], "expected a provider's billing record"),
        (["--record", "none.csv", "--format", "csv"], "expected --record with the table"),
    ],
)
def test_a_wrong_question_is_answered_in_words(
    a_run: tuple[Path, Decimal], arguments: list[str], message: str
) -> None:
    from penstock.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=message):
        CliRunner().invoke(app, ["bill", str(a_run[0]), *arguments], catch_exceptions=False)


def test_a_bill_shows_the_list_prices_that_were_read_with_their_date(
    a_run: tuple[Path, Decimal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = a_topology().sites[0]
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    file = tmp_path / "t.yaml"
    file.write_text(dump_topology(a_topology()))
    arguments = (str(a_run[0]), "--topology", str(file))
    assert "list of" not in shown(*arguments)
    listed(
        site,
        lambda flavours: {f.name: (Decimal("0.25"), "EUR") for f in flavours},
        "a list",
        tmp_path,
        1_000_000_000.0,
    )
    assert "0.250000 EUR in the list of 2001-09-09" in shown(*arguments)


@pytest.fixture
def served(a_run: tuple[Path, Decimal], tmp_path: Path) -> Iterator[Path]:
    """The folder of a site whose service is up, with the run in it."""
    place = RunFolder.at(tmp_path / "edge" / "web")
    shutil.copy(a_run[0] / "journal.db", place.journal)
    place.write_plan(RunPlan.of(a_topology(), "web"))
    place.write_end(Status("web", 1.0, (), (), "0"), simulate(a_topology(), duration_s=60.0))
    client.start(tmp_path / "edge", "127.0.0.1", 0)
    yield tmp_path / "edge"
    client.stop(tmp_path / "edge")


def test_sites_are_asked_for_their_runs_and_all_is_one_bill(
    a_run: tuple[Path, Decimal], the_bill: Bill, served: Path, tmp_path: Path
) -> None:
    here, there = str(a_run[0]), tmp_path / "sites" / "edge"
    there.mkdir(parents=True)
    service = client.service_at(served)
    (there / client.SERVICE_FILE).write_text(json.dumps({"url": service.url}))
    (there / "token").write_text(service.token)

    assert shown(here, "--format", "csv") == shown(str(there), "--format", "csv")
    assert shown(here, "--by", "operator,hour") == shown(str(there / "web"), "--by", "operator,hour")
    both = shown(here, str(there), str(there / "web"))
    assert f"bill {2 * a_run[1]:.6f} EUR" in both, "of each site once"
    assert f"idle (paid, and nothing on it): {2 * the_bill.idle:.6f}" in both
    assert f"bill {a_run[1]:.6f} EUR" in shown(str(served), str(served / "web"))
    assert service.get("/runs/web/bill")["lines"] == [], "only where asked for"
    client.stop(served)
    with pytest.raises(ClusterError, match="does not answer"):
        CliRunner().invoke(app, ["bill", here, str(there)], catch_exceptions=False)
