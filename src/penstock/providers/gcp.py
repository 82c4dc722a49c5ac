"""The provider `gcp`: instances of Google's Compute Engine, over google-cloud-compute.

Credentials are those of Google's own chain (`google.auth.default`). An instance is inserted under its name
with a request id: saying it again changes nothing. A flavour's name (or its `type`) is a machine type such
as `n2-standard-4`. Labels may be of small letters alone, so our names are in the instance's metadata, and
one label finds it.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from penstock.errors import (
    ClusterError,
    NoCapacityError,
    ProviderError,
    QuotaError,
    ThrottledError,
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
    group_of,
    name_of,
    sdk,
)
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

LABEL = "penstock-group"
SCRIPT = "startup-script"
"""The metadata whose script an instance runs when it starts."""
ANSWERS_WITHIN_S = 20.0
"""How long it is waited whether an insert is refused after all; what is under way then is seen by listing."""
CALL_S = 30.0
_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STAGING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
}
"""What states mean; every other one is on the way to its end: Google stops what it takes back."""


@dataclass(frozen=True, slots=True)
class GcpParameters(CloudParameters):
    """Instances of Google's Compute Engine."""

    name: ClassVar[str] = "gcp"
    zone: str = ""
    """Where instances are, such as europe-west4-a."""
    image: str = ""
    """The image they start from, such as projects/debian-cloud/global/images/family/debian-13."""
    project: str | None = None
    """The project's id; None means GOOGLE_CLOUD_PROJECT."""
    network: str = "global/networks/default"
    """The network they are on; a subnetwork is taken where the name has `subnetworks` in it."""
    disk_gb: int = 20
    """The size of their disk."""


class GcpApi:
    """Compute Engine's calls, in our words."""

    def __init__(
        self,
        site: Site,
        parameters: GcpParameters,
        owner: str,
        *,
        connect: Callable[[Any], Any] | None = None,
    ) -> None:
        """`connect` makes a client of the SDK's class it is given, where it is not Google's own cloud."""
        self._compute = sdk("google.cloud.compute_v1", "gcp")
        self._errors = sdk("google.api_core.exceptions", "gcp")
        self._auth_error = sdk("google.auth.exceptions", "gcp").GoogleAuthError
        project = parameters.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise ClusterError(
                f"site {site.name}: expected Google's project in the parameter `project` or in "
                "GOOGLE_CLOUD_PROJECT"
            )
        make = connect or (lambda kind: kind())
        try:
            self._instances = make(self._compute.InstancesClient)
        except self._auth_error as error:
            raise UnauthorisedError(f"site {site.name}: {error}") from error
        self._where = {"project": project, "zone": parameters.zone}
        self._site, self._parameters, self._owner = site, parameters, owner
        self._group = group_of(owner, site.name)

    def create(self, order: Order) -> None:
        """Insert an instance under its name and with its request id."""
        wanted = {**self._where, "instance_resource": self._wanted(order), "request_id": order.token}
        with self._translated():
            try:
                operation = self._instances.insert(request=wanted, retry=None, timeout=CALL_S)
                operation.result(timeout=ANSWERS_WITHIN_S)
            except self._errors.Conflict:
                return  # it is there already
            except concurrent.futures.TimeoutError:
                return

    def machines(self) -> Sequence[Machine]:
        """Every instance with our label and our names in its metadata."""
        request = {**self._where, "filter": f"labels.{LABEL}={self._group}"}
        with self._translated():
            listed = list(self._instances.list(request=request, retry=None, timeout=CALL_S))
        found = [(instance, _metadata(instance)) for instance in listed]
        return [
            _machine(instance, names)
            for instance, names in found
            if (names.get(OWNER), names.get(SITE)) == (self._owner, self._site.name)
        ]

    def delete(self, machine: Machine) -> None:
        """Take an instance away; its disk goes with it."""
        request = {**self._where, "instance": machine.id}
        with self._translated():
            self._instances.delete(request=request, retry=None, timeout=CALL_S)

    def offerings(self) -> Sequence[Offering]:
        """Nothing is known but by asking for an instance."""
        return ()

    # -- inside -----------------------------------------------------------------------------------

    def _wanted(self, order: Order) -> dict[str, Any]:
        known = self._parameters
        items = [{"key": key, "value": value} for key, value in order.tags.items()]
        if order.user_data:
            items.append({"key": SCRIPT, "value": order.user_data})
        place = "subnetwork" if "subnetworks" in known.network else "network"
        wanted: dict[str, Any] = {
            "name": name_of(order),
            "machine_type": f"zones/{known.zone}/machineTypes/{order.flavour.machine_type}",
            "labels": {LABEL: self._group},
            "metadata": {"items": items},
            "disks": [
                {
                    "boot": True,
                    "auto_delete": True,
                    "initialize_params": {"source_image": known.image, "disk_size_gb": known.disk_gb},
                }
            ],
            "network_interfaces": [{place: known.network}],
        }
        if order.flavour.spot:
            wanted["scheduling"] = {
                "provisioning_model": "SPOT",
                "instance_termination_action": "DELETE",
                "automatic_restart": False,
            }
        return wanted

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ProviderError:
            raise
        except self._errors.GoogleAPICallError as error:
            raise _in_our_words(error) from error
        except self._auth_error as error:
            raise UnauthorisedError(f"Google: {error}") from error
        except (self._errors.GoogleAPIError, OSError) as error:
            raise UnavailableError(f"Google: {error}") from error


def _metadata(instance: Any) -> dict[str, str]:
    return {item.key: item.value for item in instance.metadata.items}


def _machine(instance: Any, names: dict[str, str]) -> Machine:
    state = _STATES.get(instance.status, MachineState.BROKEN)
    interfaces = list(instance.network_interfaces)
    made = instance.creation_timestamp
    return Machine(
        instance.name,
        names.get(HOST, instance.name),
        names.get(FLAVOUR, ""),
        state,
        (interfaces[0].network_i_p or None) if interfaces else None,
        datetime.fromisoformat(made.replace("Z", "+00:00")).timestamp() if made else None,
        problem=f"the instance is {instance.status}: stopped, or taken back"
        if state is MachineState.BROKEN
        else None,
    )


def _in_our_words(error: Any) -> ProviderError:
    status, text = int(error.code or 0), f"Google: {error.message}"
    reasons = {str(each.get("reason", "")) for each in error.errors or () if isinstance(each, dict)}
    said = f"{text} {' '.join(reasons)}".upper()
    if "RATELIMITEXCEEDED" in said:
        return ThrottledError(text)
    if "RESOURCE_POOL_EXHAUSTED" in said or "STOCKOUT" in said:
        return NoCapacityError(text)
    if "QUOTA" in said:
        return QuotaError(text)
    return error_of(status, text)


def make(site: Site, parameters: GcpParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site."""
    api = GcpApi(site, parameters, surroundings.owner)
    return CloudProvider(site, api, surroundings, parameters.pace)
