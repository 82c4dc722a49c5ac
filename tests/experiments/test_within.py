"""Parts of a run: what was decided and leased while the sources sent, and not before or after."""

from __future__ import annotations

from penstock.controller.journal import Journal
from penstock.experiments.within import host_time_s, scaling_events
from penstock.simulator import simulate
from penstock.topology.model import Choice
from tests.builders import a_flavour, a_site, a_topology


def a_journal(initial: int = 3, policy: Choice | None = None) -> Journal:
    """A simulated run of ten minutes, a host an instance, that begins with so many instances."""
    site = a_site(flavours=[a_flavour(cores=1.0)])
    topology = a_topology(
        sites=[site], initial_instances=initial, max_instances=initial, policy=policy or Choice("fixed")
    )
    journal = Journal("sqlite://", "r", buffered=True)
    simulate(topology, duration_s=600.0, journal=journal)
    return journal


def test_instances_a_run_begins_with_are_no_scaling_events() -> None:
    journal = a_journal()

    assert [row["policy"] for row in journal.rows("action") if row["kind"] == "StartInstance"] == [
        "controller"
    ] * 3
    assert scaling_events(journal, 0.0, 600.0) == 0


def test_a_decision_that_stops_several_instances_is_one_event_where_it_is_within() -> None:
    journal = a_journal(4, Choice("utilisation", {"step": "multi"}))
    at_s = {row["at_s"] for row in journal.rows("action") if row["policy"] == "utilisation"
            and row["kind"] == "StopInstance"}  # fmt: skip

    assert scaling_events(journal, 0.0, 600.0) == len(at_s) >= 1
    assert scaling_events(journal, max(at_s) + 1.0, 600.0) == 0


def test_hosts_count_for_the_time_within() -> None:
    journal = a_journal()

    assert host_time_s(journal, 0.0, 600.0) == 3 * 600.0
    assert host_time_s(journal, 100.0, 160.0) == 3 * 60.0
    assert host_time_s(journal, 700.0, 800.0) == 0.0
