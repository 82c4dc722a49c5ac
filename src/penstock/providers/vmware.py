"""The provider `vmware`: virtual machines of a vCenter, cloned from a template, over pyvmomi.

The SDK has no chain of credentials: they are taken from the variables its users know from govc, GOVC_URL,
GOVC_USERNAME and GOVC_PASSWORD. A machine's name says whose it is from its first moment on, and a folder
has each name once: a clone that is said again finds the first one and goes on with it. A flavour's cores
and memory are given to the clone. Prices are those of the topology file.
"""

from __future__ import annotations

import base64
import http.client
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from penstock.errors import (
    ClusterError,
    NoCapacityError,
    NotFoundError,
    ProviderError,
    UnauthorisedError,
    UnavailableError,
)
from penstock.fleet.ports import Offering
from penstock.providers.cloud import CloudProvider
from penstock.providers.cloud_api import FLAVOUR, CloudParameters, Machine, MachineState, Order, group_of, sdk
from penstock.providers.surroundings import Surroundings
from penstock.topology.model import Site

TASK_S = 120.0
"""How long a task of the vCenter may take."""
HALF_MADE_S = 60.0
"""A clone that was not started for so long after it was made is broken; before, somebody goes on with it."""
PROPERTIES = ("name", "runtime.powerState", "guest.ipAddress", "config.createDate", "config.extraConfig")
MADE = "guestinfo.penstock-made"
"""The entry that says a clone was given all it needs and was started."""


@dataclass(frozen=True, slots=True)
class VmwareParameters(CloudParameters):
    """Virtual machines of a vCenter."""

    name: ClassVar[str] = "vmware"
    template: str = ""
    """The inventory path of the template, such as Datacenter/vm/debian-13."""
    folder: str = ""
    """The inventory path of the folder machines are made in, such as Datacenter/vm/penstock."""
    pool: str = ""
    """The inventory path of their resource pool, such as Datacenter/host/Cluster/Resources."""
    url: str | None = None
    """The vCenter's address, such as https://vcenter.example/sdk; None means GOVC_URL."""
    insecure: bool = False
    """Whether to trust a certificate nobody vouches for."""


class VmwareApi:
    """vCenter's calls, in our words."""

    half_made_s = HALF_MADE_S

    def __init__(self, site: Site, parameters: VmwareParameters, owner: str) -> None:
        self._connect_sdk = sdk("pyVim.connect", "vmware")
        sdk_types = sdk("pyVmomi", "vmware")
        self._vim, self._vmodl = sdk_types.vim, sdk_types.vmodl
        self._address = parameters.url or os.environ.get("GOVC_URL") or ""
        if not self._address:
            raise ClusterError(
                f"site {site.name}: expected the vCenter in the parameter `url` or in GOVC_URL"
            )
        self._site, self._parameters = site, parameters
        self._prefix = f"{group_of(owner, site.name)}-"
        self._lock = threading.Lock()
        self._service: Any = None

    def create(self, order: Order) -> None:
        """Clone the template, or go on with the clone of this name, and start it."""
        with self._translated():
            content = self._content()
            folder, name = self._found(content, self._parameters.folder), f"{self._prefix}{order.host}"
            wanted = self._wanted(order)
            place = self._vim.vm.RelocateSpec(pool=self._found(content, self._parameters.pool))
            spec = self._vim.vm.CloneSpec(location=place, powerOn=True, template=False, config=wanted)
            template = self._found(content, self._parameters.template)
            with suppress(self._vim.fault.DuplicateName):  # of a try before whose answer was lost
                self._done(template.CloneVM_Task(folder=folder, name=name, spec=spec))
            machine = self._found(content, f"{self._parameters.folder}/{name}")
            entries = {entry.key for entry in machine.config.extraConfig}
            if f"guestinfo.{FLAVOUR}" not in entries:
                self._done(machine.ReconfigVM_Task(wanted))
            if machine.runtime.powerState != "poweredOn":
                with suppress(self._vim.fault.InvalidPowerState):
                    self._done(machine.PowerOnVM_Task())
            if MADE not in entries:
                made = self._vim.option.OptionValue(key=MADE, value="yes")
                self._done(machine.ReconfigVM_Task(self._vim.vm.ConfigSpec(extraConfig=[made])))

    def machines(self) -> Sequence[Machine]:
        """Every machine whose name says that it is ours; a clone somebody still works at is left out."""
        with self._translated():
            rows = self._listed()
        found = [self._machine(reference, values) for reference, values in rows]
        return [machine for machine in found if machine is not None]

    def delete(self, machine: Machine) -> None:
        """Switch a machine off and destroy it with its disk."""
        with self._translated():
            self._content()
            known = self._vim.VirtualMachine(machine.id, self._service._stub)
            with suppress(self._vim.fault.InvalidPowerState):
                self._done(known.PowerOffVM_Task())
            self._done(known.Destroy_Task())

    def offerings(self) -> Sequence[Offering]:
        """Nothing is known but by asking for a machine."""
        return ()

    # -- inside -----------------------------------------------------------------------------------

    def _content(self) -> Any:
        with self._lock:
            if self._service is None:
                place = urlsplit(self._address)
                self._service = self._connect_sdk.SmartConnect(
                    protocol=place.scheme,
                    host=place.hostname,
                    port=place.port or (80 if place.scheme == "http" else 443),
                    user=os.environ.get("GOVC_USERNAME") or place.username,
                    pwd=os.environ.get("GOVC_PASSWORD") or place.password,
                    disableSslCertValidation=self._parameters.insecure,
                )
            return self._service.content

    def _found(self, content: Any, path: str) -> Any:
        found = content.searchIndex.FindByInventoryPath(path)
        if found is None:
            raise NotFoundError(f"the vCenter of site {self._site.name} has no {path!r}")
        return found

    def _done(self, task: Any) -> None:
        """Wait for a task by asking for its state, which every vCenter answers."""
        end_s = time.monotonic() + TASK_S
        while (info := task.info).state not in ("success", "error"):
            if time.monotonic() > end_s:
                raise UnavailableError(f"vCenter: a task did not end within {TASK_S:g} s")
            time.sleep(0.1)
        if info.state == "error":
            raise info.error

    def _wanted(self, order: Order) -> Any:
        value = self._vim.option.OptionValue
        entries = {f"guestinfo.{key}": text for key, text in order.tags.items()}
        if order.user_data:
            entries["guestinfo.userdata"] = base64.b64encode(order.user_data.encode()).decode()
            entries["guestinfo.userdata.encoding"] = "base64"
        return self._vim.vm.ConfigSpec(
            numCPUs=max(1, int(order.flavour.cores)),
            memoryMB=order.flavour.memory_mib,
            extraConfig=[value(key=key, value=text) for key, text in entries.items()],
        )

    def _listed(self) -> list[tuple[str, dict[str, Any]]]:
        """Properties of all machines in the folder, in one question."""
        content, query = self._content(), self._vmodl.query.PropertyCollector
        folder = self._found(content, self._parameters.folder)
        view = content.viewManager.CreateContainerView(folder, [self._vim.VirtualMachine], True)
        try:
            path = query.TraversalSpec(name="all", path="view", skip=False, type=self._vim.view.ContainerView)
            wanted = query.FilterSpec(
                objectSet=[query.ObjectSpec(obj=view, skip=True, selectSet=[path])],
                propSet=[query.PropertySpec(type=self._vim.VirtualMachine, pathSet=list(PROPERTIES))],
            )
            answer = content.propertyCollector.RetrievePropertiesEx([wanted], query.RetrieveOptions())
            rows: list[tuple[str, dict[str, Any]]] = []
            while answer is not None:
                rows += [(o.obj._moId, {p.name: p.val for p in o.propSet}) for o in answer.objects]
                if not answer.token:
                    break
                answer = content.propertyCollector.ContinueRetrievePropertiesEx(answer.token)
            return rows
        finally:
            view.DestroyView()

    def _machine(self, reference: str, values: dict[str, Any]) -> Machine | None:
        name = values.get("name", "")
        if not name.startswith(self._prefix):
            return None
        entries = {entry.key: entry.value for entry in values.get("config.extraConfig") or ()}
        made = values.get("config.createDate")
        created_s = made.timestamp() if made is not None else None
        state, problem = MachineState.RUNNING, None
        if values.get("runtime.powerState") != "poweredOn":
            if MADE not in entries and created_s is not None and time.time() - created_s < self.half_made_s:
                return None
            state, problem = MachineState.BROKEN, "the machine is switched off"
        return Machine(
            reference,
            name[len(self._prefix) :],
            entries.get(f"guestinfo.{FLAVOUR}", ""),
            state,
            values.get("guest.ipAddress"),
            created_s,
            problem=problem,
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        faults, lost = self._vim.fault, self._vmodl.fault
        try:
            yield
        except ProviderError:
            raise
        except (faults.NotAuthenticated, lost.SecurityError) as error:
            self._service = None  # the session has ended: the next call begins another
            if isinstance(error, faults.NoPermission):
                raise UnauthorisedError(f"vCenter: {error.msg}") from error
            raise UnavailableError(f"vCenter: {error.msg}") from error
        except faults.InvalidLogin as error:
            raise UnauthorisedError(f"vCenter: {error.msg}") from error
        except lost.ManagedObjectNotFound as error:
            raise NotFoundError(f"vCenter: {error.msg}") from error
        except faults.InsufficientResourcesFault as error:
            raise NoCapacityError(f"vCenter: {error.msg}") from error
        except self._vmodl.MethodFault as error:
            raise ProviderError(f"vCenter: {type(error).__name__}: {error.msg}") from error
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"vCenter: {type(error).__name__}: {error}") from error


def make(site: Site, parameters: VmwareParameters, surroundings: Surroundings) -> CloudProvider:
    """The provider of a site."""
    api = VmwareApi(site, parameters, surroundings.owner)
    return CloudProvider(site, api, surroundings, parameters.pace)
