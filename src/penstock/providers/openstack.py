"""The provider `openstack`: servers of an OpenStack cloud, over openstacksdk.

Credentials are those of the SDK's own chain: `clouds.yaml`, or the `OS_…` variables. Nova knows no token:
what keeps a server from being made twice is its tag, which a listing finds. A flavour's name in the
topology is its name in the cloud. OpenStack has no price list: prices are those of the topology file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar

from penstock.errors import (
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
    group_of,
    sdk,
)
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

_STATES = {
    "BUILD": MachineState.STARTING,
    "REBUILD": MachineState.STARTING,
    "ACTIVE": MachineState.RUNNING,
    "DELETED": MachineState.GONE,
    "SOFT_DELETED": MachineState.GONE,
}
"""What Nova's states mean; every other one is of no use to us."""


@dataclass(frozen=True, slots=True)
class OpenStackParameters(CloudParameters):
    """Servers of an OpenStack cloud."""

    name: ClassVar[str] = "openstack"
    image: str = ""
    """The image servers start from, by name or id."""
    cloud: str | None = None
    """The cloud's name in clouds.yaml; None means what the environment says."""
    network: str | None = None
    """The network servers are on, by name or id; None means the project's own."""
    key: str | None = None
    """The key pair servers let in."""
    zone: str | None = None
    """The availability zone."""


class OpenStackApi:
    """Nova's calls, in our words."""

    def __init__(self, site: Site, parameters: OpenStackParameters, owner: str) -> None:
        openstack = sdk("openstack", "openstack")
        self._errors = openstack.exceptions
        self._site, self._parameters, self._owner = site, parameters, owner
        self._group = group_of(owner, site.name)
        self._ids: dict[tuple[str, str], str] = {}
        try:
            self._cloud = openstack.connect(cloud=parameters.cloud)
        except self._errors.ConfigException as error:
            raise UnauthorisedError(f"site {site.name}: no cloud to connect to: {error}") from error

    def create(self, order: Order) -> None:
        """Make a server with our tag; Nova says later whether there was room for it."""
        known = self._parameters
        wishes: dict[str, Any] = {"networks": "auto"}
        with self._translated():
            if known.network:
                wishes["networks"] = [{"uuid": self._id("network", known.network)}]
            if known.key:
                wishes["key_name"] = known.key
            if known.zone:
                wishes["availability_zone"] = known.zone
            if order.user_data:
                wishes["user_data"] = base64.b64encode(order.user_data.encode()).decode()
            self._cloud.compute.create_server(
                name=order.host,
                image_id=self._id("image", known.image),
                flavor_id=self._id("flavour", order.flavour.machine_type),
                metadata=dict(order.tags),
                tags=[self._group],
                **wishes,
            )

    def machines(self) -> Sequence[Machine]:
        """Every server with our tag and our names in its metadata."""
        with self._translated():
            return [
                self._machine(server)
                for server in self._cloud.compute.servers(tags=self._group)
                if (server.metadata.get(OWNER), server.metadata.get(SITE)) == (self._owner, self._site.name)
            ]

    def delete(self, machine: Machine) -> None:
        """Take a server away."""
        with self._translated():
            self._cloud.compute.delete_server(machine.id, ignore_missing=False)

    def offerings(self) -> Sequence[Offering]:
        """Which of the site's flavours the cloud has."""
        with self._translated():
            known = {flavour.name for flavour in self._cloud.compute.flavors()}
        return [
            Offering(
                f.name,
                available=f.machine_type in known,
                why_not=None if f.machine_type in known else "no such flavour",
            )
            for f in self._site.flavours
        ]

    # -- inside -----------------------------------------------------------------------------------

    def _id(self, what: str, name: str) -> str:
        found = self._ids.get((what, name))
        if found is None:
            find = {
                "image": lambda: self._cloud.image.find_image(name, ignore_missing=True),
                "flavour": lambda: self._cloud.compute.find_flavor(name, ignore_missing=True),
                "network": lambda: self._cloud.network.find_network(name, ignore_missing=True),
            }[what]()
            if find is None:
                raise NotFoundError(f"the cloud of site {self._site.name} has no {what} {name!r}")
            found = self._ids[what, name] = str(find.id)
        return found

    def _machine(self, server: Any) -> Machine:
        state = _STATES.get(server.status, MachineState.BROKEN)
        if server.task_state == "deleting":
            state = MachineState.ENDING
        fault = (server.fault or {}).get("message") if state is MachineState.BROKEN else None
        addresses = [each["addr"] for nets in (server.addresses or {}).values() for each in nets]
        return Machine(
            server.id,
            server.metadata.get(HOST, server.name),
            server.metadata.get(FLAVOUR, ""),
            state,
            addresses[0] if addresses else None,
            _instant_s(server.launched_at or server.created_at),
            problem=fault or (f"the server is {server.status}" if state is MachineState.BROKEN else None),
            never_ran=state is MachineState.BROKEN and "No valid host" in (fault or ""),
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except ProviderError:
            raise
        except errors.HttpException as error:
            raise _in_our_words(error) from error
        except errors.SDKException as error:
            raise UnavailableError(f"OpenStack: {error}") from error
        except sdk("keystoneauth1", "openstack").exceptions.ClientException as error:
            status = getattr(error, "http_status", 0)
            kind = UnauthorisedError if status in (401, 403) else UnavailableError
            raise kind(f"OpenStack: {error}") from error


def _in_our_words(error: Any) -> ProviderError:
    status, text = error.status_code or 0, f"OpenStack: {error}"
    after = error.response.headers.get("Retry-After") if error.response is not None else None
    if status == 403 and "quota" in text.lower():
        return QuotaError(text)
    return error_of(status, text, after)


def _instant_s(written: str | None) -> float | None:
    if not written:
        return None
    found = datetime.fromisoformat(written.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def make(site: Site, parameters: OpenStackParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site."""
    api = OpenStackApi(site, parameters, surroundings.owner)
    return CloudProvider(site, api, surroundings, parameters.pace)
