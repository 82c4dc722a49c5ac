"""Where hosts elsewhere reach this machine: the address of its master, drivers and broker."""

from __future__ import annotations

import os
import socket

from penstock.errors import ConfigurationError
from penstock.providers.registry import HERE, provider_parameters
from penstock.topology.model import Topology

LOOPBACK = "127.0.0.1"
VARIABLE = "PENSTOCK_ADDRESS"
"""The environment variable that names the address, where this machine has several."""


def own_address(topology: Topology) -> str:
    """The loopback where all hosts are on this machine; else the one that others reach it at.

    That is PENSTOCK_ADDRESS, or the address with which this machine would leave by its default route.
    """
    elsewhere = [
        site.name
        for site in topology.sites
        if site.master is None and not isinstance(provider_parameters(site.provider), HERE)
    ]
    if not elsewhere:
        return LOOPBACK
    named = os.environ.get(VARIABLE)
    if named:
        return named
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # an address nobody has: nothing is sent
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"hosts of site {elsewhere[0]} have to reach this machine, and it has no default route; "
            f"name its address in {VARIABLE}"
        ) from error
