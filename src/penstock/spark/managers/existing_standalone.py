"""A standalone master of somebody else's: `master: spark://host:7077`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import ConfigurationError
from penstock.spark.managers.theirs import Address, ExistingCluster, driver_address, python_of
from penstock.topology.model import Site

SCHEME = "spark://"
DEFAULT_PORT = 7077


@dataclass(frozen=True, slots=True)
class StandaloneParameters:
    """An existing standalone master, or several of which one leads: `spark://host:7077,other:7077`."""

    name: ClassVar[str] = "standalone"
    driver_address: str = ""
    """The address at which executors reach this machine; by default Spark's choice."""
    python: str = ""
    """The Python that executors run; by default the one at the same path as here."""


def make(site: Site, parameters: StandaloneParameters) -> ExistingCluster:
    """The manager behind a site's master; ConfigurationError where its URL is none."""
    master = str(site.master)
    try:
        addresses = tuple(
            Address.read(part, DEFAULT_PORT) for part in master.removeprefix(SCHEME).split(",") if part
        )
    except ValueError:
        addresses = ()
    if not addresses or not all(address.host for address in addresses):
        raise ConfigurationError(f"expected a master such as spark://host:7077, got {master!r}")
    return ExistingCluster(
        "the standalone master",
        master,
        addresses,
        driver_address(parameters.driver_address, addresses),
        python_of(parameters.python),
    )
