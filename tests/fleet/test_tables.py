"""The tables a fleet keeps are those that its hosts and instances come to, whatever happened before."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.fleet.deployment import Deployment, Host, HostState, Instance, InstanceState
from penstock.fleet.tables import KeptTables
from penstock.topology.model import HostFlavour

UNITS, HOSTS = ("a", "b", "c"), ("h1", "h2", "h3", "h4")


@pytest.mark.parametrize("seed", range(20))
def test_kept_tables_are_those_of_a_fresh_count(seed: int) -> None:
    drawn = random.Random(seed)
    flavour = HostFlavour("small", 4.0, 4096, Decimal(1))
    tables = KeptTables()
    hosts: dict[str, Host] = {}
    instances: dict[str, Instance] = {}
    members: dict[str, dict[str, Instance]] = {unit: {} for unit in UNITS}
    for number in range(200):
        if drawn.random() < 0.2:
            name = drawn.choice(HOSTS)
            if name in hosts and drawn.random() < 0.4:
                del hosts[name]
            else:
                hosts[name] = Host(name, "here", flavour, drawn.choice(list(HostState)))
            tables.changed_host(name)
        elif instances and drawn.random() < 0.6:
            one = instances[drawn.choice(sorted(instances))]
            if drawn.random() < 0.3:
                del instances[one.id], members[one.unit][one.id]
            else:
                others = [None, *members[one.unit]]
                changed = replace(
                    one,
                    host=drawn.choice([None, *HOSTS]),
                    state=drawn.choice(list(InstanceState)),
                    replaces=drawn.choice(others),
                )
                instances[one.id] = members[one.unit][one.id] = changed
            tables.changed(one.unit)
        else:
            unit = drawn.choice(UNITS)
            new = Instance(
                f"{unit}-{number}", unit, drawn.choice([None, *HOSTS]), cores=drawn.choice([0.5, 1])
            )
            instances[new.id] = members[unit][new.id] = new
            tables.changed(unit)
        if drawn.random() < 0.5:  # several changes may come between two looks
            kept, fresh = tables.deployment(hosts, instances, members), Deployment(hosts, instances)
            assert kept == fresh
            assert kept.by_unit == fresh.by_unit
            assert kept.running == fresh.running
            assert list(kept.room.items()) == list(fresh.room.items())
            inside = [{host: set(found) for host, found in d.counted_by_host.items()} for d in (kept, fresh)]
            assert inside[0] == inside[1]
