"""Metrics: what Prometheus' own reader makes of them, of a running thing and of one that is over."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.controller.metrics import FAMILIES, Sample, Tally, exposition, newest, page_of, samples_of
from penstock.controller.status import QueryStatus, Status, UnitStatus
from penstock.errors import ConfigurationError
from penstock.fleet.units import UnitState
from penstock.machine.endpoint import TOKEN_FILE, Endpoint, listening_address, token_file
from tests.builders import a_measurement

ROOT = Path(__file__).parents[2]

STATUS = Status(
    'a "job"\n', 1_700_000_000.5, (
        UnitStatus("u", UnitState.RUNNING, "rate", 3, 2, 1, 8, 2.0,
                   measurement=a_measurement("u", queue=7, duration_s=0.25)),
    ), (), "1.25", "EUR",
    queries=(QueryStatus("orders", "id", 0.5, processed=40, waiting=7, duration_s=0.75, restarts=1),),
)  # fmt: skip


def test_a_running_thing_is_read_by_prometheus_in_both_formats() -> None:
    tally = Tally({"u": 100}, {"u": 93}, {("u", "StartInstance", "done"): 2})
    for openmetrics, families in ((True, openmetrics_families), (False, prometheus_families)):
        found = list(families(exposition(samples_of(STATUS, tally), openmetrics=openmetrics)))
        values = {sample.name: sample for family in found for sample in family.samples}
        assert set(values) <= set(FAMILIES)
        assert values["penstock_arrived_records_total"].value == 100
        assert values["penstock_cost_total"].labels == {"run": 'a "job"\n', "currency": "EUR"}
        assert values["penstock_query_duration_seconds"].value == 0.75
        assert values["penstock_waiting_records"].labels["unit"] == "u"
        assert values["penstock_decisions_total"].labels["status"] == "done"
        assert all(family.documentation for family in found)


def test_names_are_as_prometheus_prescribes() -> None:
    for name, family in FAMILIES.items():
        assert name.startswith("penstock_")
        assert name.endswith("_total") == (family.kind == "counter")
        assert not name.endswith(("_ms", "_percent", "_minutes"))


def test_a_run_that_is_over_is_told_with_its_times_and_ends_at_its_totals(tmp_path: Path) -> None:
    runner = CliRunner()
    topology = ROOT / "examples" / "topologies" / "smallest.yaml"
    made = runner.invoke(
        app, ["simulate", str(topology), "--duration", "20 min", "--out", str(tmp_path / "r")]
    )
    assert made.exit_code == 0, made.output
    told = runner.invoke(app, ["metrics", str(tmp_path / "r")])
    assert told.exit_code == 0, told.output
    families = {family.name: family for family in openmetrics_families(told.output)}
    unit = families["penstock_arrived_records"].samples[0].labels["unit"]
    arrived, processed = (
        [sample for sample in families[f"penstock_{name}_records"].samples if sample.labels["unit"] == unit]
        for name in ("arrived", "processed")
    )
    assert [sample.value for sample in arrived] == sorted(sample.value for sample in arrived)
    assert len({float(sample.timestamp) for sample in arrived}) > 3
    assert 0 < processed[-1].value <= arrived[-1].value
    assert families["penstock_cost"].samples[-1].value > 0


def test_of_a_series_the_newest_value_is_told_without_its_time() -> None:
    samples = [Sample("penstock_hosts", {"run": "r"}, value, at_s) for at_s, value in ((1.0, 5), (2.0, 7))]
    assert list(newest(samples)) == [Sample("penstock_hosts", {"run": "r"}, 7)]
    kind, text = page_of(lambda: newest(samples))("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.splitlines()[-2:] == ['penstock_hosts{run="r"} 7', "# EOF"]


def test_the_grafana_board_asks_for_metrics_there_are() -> None:
    board = json.loads((ROOT / "examples" / "attach" / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"penstock_[a-z0-9_]+", expression)}
    assert named <= set(FAMILIES)
    assert len(named) >= len(FAMILIES) / 2


def asked(url: str, token: str | None = None, **headers: str) -> urllib.request.Request:
    token = token_file().read_text() if token is None else token
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {token}", **headers})


def test_the_endpoint_serves_one_page_on_loopback_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    with Endpoint(0, "/metrics", lambda accepted: ("text/plain", f"seen {accepted}")) as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(asked(endpoint.url, Accept="everything"), timeout=10) as answer:
            assert answer.read() == b"seen everything"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(asked(endpoint.url.replace("metrics", "other")), timeout=10)
        port = int(endpoint.url.split(":")[2].split("/")[0])
        with pytest.raises(ConfigurationError, match="cannot listen"):
            Endpoint(port, "/metrics", lambda _: ("", ""))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(endpoint.url, timeout=2)


def test_metrics_are_for_whoever_has_the_token_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    with Endpoint(0, "/metrics", lambda _: ("text/plain", "a secret")) as endpoint:
        assert token_file().stat().st_mode & 0o777 == 0o600
        token = token_file().read_text()
        for wrong in ("", "x", token[:-1], token + "x", token.upper(), "ü"):
            with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                urllib.request.urlopen(asked(endpoint.url, wrong), timeout=10)
            assert b"secret" not in refused.value.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(endpoint.url, timeout=10)
    with Endpoint(0, "/metrics", lambda _: ("text/plain", "again")) as endpoint:
        assert token_file().read_text() == token, "Prometheus keeps its access"
        urllib.request.urlopen(asked(endpoint.url, token), timeout=10).close()


def test_a_token_may_come_from_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    monkeypatch.setenv(TOKEN_FILE, str(own))
    own.write_text("from-a-vault\n")
    with Endpoint(0, "/metrics", lambda _: ("text/plain", "")) as endpoint:
        urllib.request.urlopen(asked(endpoint.url, "from-a-vault"), timeout=10).close()
    own.write_text("")
    with pytest.raises(ConfigurationError, match="own is empty"):
        Endpoint(0, "/metrics", lambda _: ("", ""))
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "nowhere" / "own"))
    with pytest.raises(ConfigurationError, match="no token for the metrics"):
        Endpoint(0, "/metrics", lambda _: ("", ""))


@pytest.mark.parametrize("place", ["somewhere", "1.2.3.4:http", 99999, ""])
def test_a_wrong_place_to_listen_is_told(place: int | str) -> None:
    with pytest.raises(ConfigurationError, match="expected a port"):
        listening_address(place)
