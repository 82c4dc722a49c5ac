"""Everything a topology file may choose by name, gathered from the rooms that know it.

The topology room stands above the rooms of policies, filters, providers and workloads, so it cannot ask
them; this is where they are put together for checking a file.
"""

from __future__ import annotations

from penstock.channels.registry import CHANNELS
from penstock.channels.sinks import clashing_folders
from penstock.filters.registry import FILTERS
from penstock.policies.registry import POLICIES
from penstock.providers.registry import PROVIDERS
from penstock.spark.managers.registry import wrong_masters
from penstock.topology.validation import Known
from penstock.workload.registry import WORKLOADS


def known_names() -> Known:
    """Every policy, filter, provider, workload and channel, with what checks their parameters."""
    return Known(
        policies=POLICIES,
        filters=FILTERS,
        providers=PROVIDERS,
        workloads=WORKLOADS,
        channels=CHANNELS,
        rules=(clashing_folders, wrong_masters),
    )
