"""Spark's own cluster for tests: `master: local-cluster[2,1,1024]`, one inside each driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.spark.managers.theirs import ExistingCluster
from penstock.topology.model import Site

SCHEME = "local-cluster["
_MASTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")


@dataclass(frozen=True, slots=True)
class InDriverParameters:
    """Spark's `local-cluster[workers, cores, MiB]`: a small cluster in each driver, for tests alone."""

    name: ClassVar[str] = "local-cluster"


def make(site: Site, parameters: InDriverParameters) -> ExistingCluster:
    """The manager behind a site's master; ConfigurationError where its numbers are wrong."""
    master = str(site.master)
    if not _MASTER.fullmatch(master):
        raise ConfigurationError(
            "expected a master such as local-cluster[2,1,1024] (workers, cores and MiB of each), "
            f"got {master!r}"
        )
    return ExistingCluster("Spark's cluster for tests", master)
