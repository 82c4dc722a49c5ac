"""The provider `azure`: virtual machines of Azure, over its management SDK.

Credentials are those of `DefaultAzureCredential`: environment, workload or managed identity, command line.
A machine is put by its name, and only where there is none: saying it again changes nothing. Its network
interface and disk are made with it and deleted with it, so nothing of it can stay behind. A flavour's name
(or its `type`) is a size such as `Standard_D4s_v5`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import (
    ClusterError,
    NoCapacityError,
    NotFoundError,
    ProviderError,
    QuotaError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_api import (
    FLAVOUR,
    HOST,
    OWNER,
    SITE,
    CloudParameters,
    Machine,
    MachineState,
    Order,
    error_of,
    name_of,
    sdk,
)
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

NETWORK_VERSION = "2022-11-01"
"""The version of the network API by which an interface is made along with its machine."""
NO_ROOM = ("AllocationFailed", "SkuNotAvailable", "ZonalAllocationFailed", "OverconstrainedAllocationRequest")
"""What Azure says where it has no such machine to give."""
_STATES = {
    "PowerState/running": MachineState.RUNNING,
    "PowerState/starting": MachineState.STARTING,
    "PowerState/stopping": MachineState.BROKEN,
    "PowerState/stopped": MachineState.BROKEN,
    "PowerState/deallocating": MachineState.BROKEN,
    "PowerState/deallocated": MachineState.BROKEN,
}


@dataclass(frozen=True, slots=True)
class AzureParameters(CloudParameters):
    """Virtual machines of Azure."""

    name: ClassVar[str] = "azure"
    region: str = ""
    """Where machines are, such as westeurope."""
    resource_group: str = ""
    """The resource group they are made in."""
    subnet: str = ""
    """The id of the subnet they are on."""
    image: str = ""
    """The id of the image they start from, or publisher:offer:sku:version."""
    key: str = ""
    """The public SSH key they let in; Azure makes no Linux machine without one."""
    subscription: str | None = None
    """The subscription's id; None means AZURE_SUBSCRIPTION_ID."""


class AzureApi:
    """Azure's calls, in our words."""

    def __init__(
        self,
        site: Site,
        parameters: AzureParameters,
        owner: str,
        *,
        credential: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`credential` and `options` (of the SDK's clients) are for other clouds of Azure's kind."""
        compute = sdk("azure.mgmt.compute", "azure")
        network = sdk("azure.mgmt.network", "azure")
        self._errors = sdk("azure.core.exceptions", "azure")
        self._missing = sdk("azure.core", "azure").MatchConditions.IfMissing
        subscription = parameters.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID")
        if not subscription:
            raise ClusterError(
                f"site {site.name}: expected Azure's subscription in the parameter `subscription` or in "
                "AZURE_SUBSCRIPTION_ID"
            )
        credential = credential or sdk("azure.identity", "azure").DefaultAzureCredential()
        # Pauses and second tries are the provider's: the SDK's own would hold up a thread for minutes.
        chosen = {"retry_total": 0, **(options or {})}
        self._machines = compute.ComputeManagementClient(credential, subscription, **chosen).virtual_machines
        self._networks = network.NetworkManagementClient(credential, subscription, **chosen)
        self._site, self._parameters, self._owner = site, parameters, owner

    def create(self, order: Order) -> None:
        """Put a machine under its name, where there is none."""
        with self._translated():
            try:
                self._machines.begin_create_or_update(
                    self._parameters.resource_group,
                    name_of(order),
                    self._wanted(order),
                    etag="*",
                    match_condition=self._missing,
                    polling=False,
                )
            except self._errors.ResourceExistsError as error:
                if _code(error) not in ("", "ConditionNotMet", "PreconditionFailed"):
                    raise
            except self._errors.HttpResponseError as error:
                if error.status_code != 412:
                    raise  # 412: it is there already

    def machines(self) -> Sequence[Machine]:
        """Every machine of the resource group with our tags; addresses are their interfaces'."""
        group = self._parameters.resource_group
        with self._translated():
            found = [
                machine
                for machine in self._machines.list(group, expand="instanceView")
                if ((machine.tags or {}).get(OWNER), (machine.tags or {}).get(SITE))
                == (self._owner, self._site.name)
            ]
            addresses: dict[str, str] = {}
            if found:
                for interface in self._networks.network_interfaces.list(group):
                    for place in interface.ip_configurations or ():
                        if interface.virtual_machine is not None and place.private_ip_address:
                            addresses[str(interface.virtual_machine.id).lower()] = place.private_ip_address
        return [_machine(machine, addresses.get(str(machine.id).lower())) for machine in found]

    def delete(self, machine: Machine) -> None:
        """Take a machine away at once; its disk and interface go with it."""
        statuses: list[int] = []
        with self._translated():
            self._machines.begin_delete(
                self._parameters.resource_group,
                machine.id.rsplit("/", 1)[1],
                force_deletion=True,
                polling=False,
                raw_response_hook=lambda answer: statuses.append(answer.http_response.status_code),
            )
        if statuses == [204]:
            raise NotFoundError(f"Azure has no machine {machine.id}")

    def offerings(self) -> Sequence[Offering]:
        """Nothing is known but by asking for a machine."""
        return ()

    # -- inside -----------------------------------------------------------------------------------

    def _wanted(self, order: Order) -> dict[str, Any]:
        known = self._parameters
        image: dict[str, str] = {"id": known.image}
        if not known.image.startswith("/"):
            parts = ("publisher", "offer", "sku", "version")
            image = dict(zip(parts, known.image.split(":"), strict=False))
        goes = {"deleteOption": "Delete"}
        place = {"name": "it", "properties": {"subnet": {"id": known.subnet}, "primary": True}}
        interface = {
            "name": name_of(order),
            "properties": {"primary": True, **goes, "ipConfigurations": [place]},
        }
        keys = [{"path": "/home/penstock/.ssh/authorized_keys", "keyData": known.key}]
        system: dict[str, Any] = {
            "computerName": name_of(order),
            "adminUsername": "penstock",
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}},
        }
        if order.user_data:
            system["customData"] = base64.b64encode(order.user_data.encode()).decode()
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": order.flavour.machine_type},
            "storageProfile": {"imageReference": image, "osDisk": {"createOption": "FromImage", **goes}},
            "osProfile": system,
            "networkProfile": {
                "networkApiVersion": NETWORK_VERSION,
                "networkInterfaceConfigurations": [interface],
            },
        }
        if order.flavour.spot:
            properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
        return {"location": known.region, "tags": dict(order.tags), "properties": properties}

    @contextmanager
    def _translated(self) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except ProviderError:
            raise
        except errors.ClientAuthenticationError as error:
            raise UnauthorisedError(f"Azure: {error.message}") from error
        except errors.HttpResponseError as error:
            raise _in_our_words(error) from error
        except errors.AzureError as error:
            raise UnavailableError(f"Azure: {error}") from error


def _machine(machine: Any, address: str | None) -> Machine:
    tags = machine.tags or {}
    statuses = [
        (s.code or "", s.message or "") for s in getattr(machine.instance_view, "statuses", None) or ()
    ]
    powers = [code for code, _ in statuses if code.startswith("PowerState/")]
    provisioning = machine.provisioning_state or ""
    state = _STATES.get(powers[0], MachineState.BROKEN) if powers else MachineState.STARTING
    problem = None
    if provisioning == "Deleting":
        state = MachineState.ENDING
    elif provisioning == "Failed":
        state = MachineState.BROKEN
        problem = next(
            (f"{code}: {text}" for code, text in statuses if "failed" in code.lower()), "it failed"
        )
    elif state is MachineState.BROKEN:
        problem = f"the machine is {powers[0].rpartition('/')[2]}: stopped, or taken back"
    return Machine(
        machine.id,
        tags.get(HOST, machine.name),
        tags.get(FLAVOUR, ""),
        state,
        address,
        machine.time_created.timestamp() if machine.time_created is not None else None,
        problem=problem,
        never_ran=problem is not None and any(word in problem for word in NO_ROOM),
    )


def _in_our_words(error: Any) -> ProviderError:
    status, code = error.status_code or 0, _code(error)
    text = f"Azure: {code}: {error.message}" if code else f"Azure: {error.message}"
    after = error.response.headers.get("Retry-After") if error.response is not None else None
    if code in NO_ROOM:
        return NoCapacityError(text)
    if "quota" in text.lower():
        return QuotaError(text)
    return error_of(status, text, after)


def _code(error: Any) -> str:
    return str(getattr(getattr(error, "error", None), "code", None) or "")


def make(site: Site, parameters: AzureParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site."""
    api = AzureApi(site, parameters, surroundings.owner)
    return CloudProvider(site, api, surroundings, parameters.pace)
