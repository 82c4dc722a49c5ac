"""The providers by name. A site's `provider:`, `penstock check` and the docs all read this table.

A new provider is one file with a frozen dataclass for its parameters and a function `make`, one line here,
and its line in the contract suite.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.choosing import Registry
from penstock.errors import ConfigurationError
from penstock.fleet.ports import Provider
from penstock.providers.aws import AwsParameters
from penstock.providers.azure import AzureParameters
from penstock.providers.gcp import GcpParameters
from penstock.providers.local import LocalParameters
from penstock.providers.managed import ManagedParameters
from penstock.providers.openstack import OpenStackParameters
from penstock.providers.ssh import SshParameters
from penstock.providers.surroundings import Surroundings
from penstock.providers.vmware import VmwareParameters
from penstock.simulator.provider import SimulatedParameters
from penstock.topology.model import Choice, Site

_PROVIDERS: dict[type[Any], str] = {
    SimulatedParameters: "penstock.providers.simulated",
    LocalParameters: "penstock.providers.local",
    ManagedParameters: "penstock.providers.managed",
    SshParameters: "penstock.providers.ssh",
    AwsParameters: "penstock.providers.aws",
    AzureParameters: "penstock.providers.azure",
    GcpParameters: "penstock.providers.gcp",
    OpenStackParameters: "penstock.providers.openstack",
    VmwareParameters: "penstock.providers.vmware",
}
"""The parameters of each and the module whose `make` makes it, imported only once it is wanted."""

HERE = (SimulatedParameters, LocalParameters, ManagedParameters)
"""Those whose hosts do not have to be reached over a network. All others join by a script."""
SELL_SPOT = (AwsParameters, AzureParameters, GcpParameters, SimulatedParameters)
"""Those that sell spot hosts, or play that they do."""

PROVIDERS = Registry("provider", *_PROVIDERS)
"""Every provider's parameters by its name."""


def provider_parameters(choice: Choice) -> Any:
    """The parameters of the provider a site chose; ConfigurationError tells what is wrong with the choice."""
    return PROVIDERS.make(choice.name, choice.parameters)


def make_provider(site: Site, surroundings: Surroundings) -> Provider:
    """The provider a site chose; ConfigurationError or ClusterError tell why it cannot be had."""
    parameters = provider_parameters(site.provider)
    bought = [flavour.name for flavour in site.flavours if flavour.spot]
    if bought and not isinstance(parameters, SELL_SPOT):
        raise ConfigurationError(
            f"site {site.name}, flavour {bought[0]}: the provider {site.provider.name} sells no spot hosts"
        )
    module = import_module(_PROVIDERS[type(parameters)])
    provider: Provider = module.make(site, parameters, surroundings)
    return provider
