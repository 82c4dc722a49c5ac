"""govmomi's vCenter simulator, with a proxy before it that loses answers, refuses and is away.

The simulator is govmomi's own (`make vcsim` builds it with Go); the proxy is ours. Machines of the
simulator have no guests, so their addresses are set by the simulator's own back door.
"""

from __future__ import annotations

import base64
import http.client
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyVim.connect import SmartConnect
from pyVmomi import vim

from penstock.providers.cloud_api import FLAVOUR, HOST, OWNER, SITE, group_of
from tests.providers.fakes.cloud import FakeCloud, FaultError, Recorded
from tests.providers.fakes.wire import Answer, Lost, Request, WireFake

PROGRAM = Path(__file__).parents[3] / "build" / "vcsim"
FOLDER, POOL, TEMPLATE = "DC0/vm", "DC0/host/DC0_C0/Resources", "DC0/vm/DC0_H0_VM0"
SOAP_FAULT = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>
<faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring>
<detail><{kind}Fault xmlns="urn:vim25" xsi:type="{kind}">{inside}</{kind}Fault></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"""


class VcenterMachines(FakeCloud):
    """The simulator's machines, seen by a session of the test's own, with times as they were seen."""

    def __init__(self, url: str, owner: str) -> None:
        super().__init__()
        place = urlsplit(url)
        self._service = SmartConnect(
            protocol="http", host=place.hostname, port=place.port, user="user", pwd="pass"
        )
        self._owner = owner
        self._strange: dict[str, dict[str, str]] = {}
        self._standing = {machine._moId for machine in self._inventory()}

    def _inventory(self) -> list[Any]:
        content = self._service.content
        view = content.viewManager.CreateContainerView(content.rootFolder, [vim.VirtualMachine], True)
        try:
            return list(view.view)
        finally:
            view.DestroyView()

    def sync(self) -> None:
        """Note what came and went since the last look."""
        with self.lock:
            present = {m._moId: m for m in self._inventory() if m._moId not in self._standing}
            for id, machine in present.items():
                if id not in self.records:
                    self._note(id, machine)
            for record in self.records.values():
                if record.until_s is None and record.id not in present:
                    record.until_s = time.time()

    def _note(self, id: str, machine: Any) -> None:
        name = machine.name
        prefix = f"{group_of(self._owner, 'c')}-"
        tags = self._strange.get(name) or {OWNER: self._owner, SITE: "c", HOST: name.removeprefix(prefix)}
        number = len(self.records) + 1
        record = Recorded(id, {FLAVOUR: "standard", **tags}, time.time(), f"10.0.0.{number}")
        self.records[id] = record
        entry = vim.option.OptionValue(key="SET.guest.ipAddress", value=record.address)
        self._wait(machine.ReconfigVM_Task(vim.vm.ConfigSpec(extraConfig=[entry])))

    def living(self) -> list[Recorded]:
        self.sync()
        found = super().living()
        for record in found:
            if not record.user_data:
                entries = {e.key: e.value for e in self._machine(record.id).config.extraConfig}
                text = entries.get("guestinfo.userdata", "")
                record.user_data = base64.b64decode(text).decode()
        return found

    def remove(self, id: str) -> bool:
        machine = self._machine(id)
        if machine.runtime.powerState == "poweredOn":
            self._wait(machine.PowerOffVM_Task())
        self._wait(machine.Destroy_Task())
        self.sync()
        return True

    def breaks(self, host: str) -> None:
        for record in self.living():
            if record.host == host:
                record.broken = True
                self._wait(self._machine(record.id).PowerOffVM_Task())

    def add_strange(self, host: str, owner: str, site: str = "c") -> Recorded:
        name = f"{group_of(owner, site)}-{host}"
        content = self._service.content
        find = content.searchIndex.FindByInventoryPath
        folder = find(FOLDER)
        if find(f"{FOLDER}/{name}") is not None:  # a name is once in a folder: a second one needs another
            folder = find(FOLDER).CreateFolder("second")
        self._strange[name] = {OWNER: owner, SITE: site, HOST: host}
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(pool=find(POOL)), powerOn=True)
        machine = self._wait(find(TEMPLATE).CloneVM_Task(folder=folder, name=name, spec=spec))
        self._wait(machine.PowerOnVM_Task())
        self.sync()
        return self.records[machine._moId]

    def _machine(self, id: str) -> Any:
        return vim.VirtualMachine(id, self._service._stub)

    @staticmethod
    def _wait(task: Any) -> Any:
        while (info := task.info).state not in ("success", "error"):
            time.sleep(0.01)
        if info.state == "error":
            raise info.error
        return info.result


class FaultyVcenter(WireFake):
    """A proxy before the simulator: what goes wrong goes wrong with clones, ends and listings."""

    cloud: VcenterMachines

    def __init__(self, cloud: VcenterMachines, url: str) -> None:
        super().__init__(cloud)
        self._place = urlsplit(url)

    def refusal(self, kind: str) -> Answer:
        name = {"capacity": "InsufficientResourcesFault", "unauthorised": "NoPermission"}.get(kind)
        if name is None:
            raise Lost
        inside = (
            "<privilegeId>VirtualMachine.Provisioning.Clone</privilegeId>" if name == "NoPermission" else ""
        )
        text = SOAP_FAULT.format(kind=name, text=f"the vCenter says: {kind}", inside=inside)
        return Answer(500, text.encode(), {"Content-Type": "text/xml; charset=utf-8"})

    def routed(self, request: Request) -> Answer:
        if self.cloud.away:
            raise FaultError("before")
        cloning = b"CloneVM_Task" in request.raw
        if cloning:
            fault = self.cloud.faults.pop(0) if self.cloud.faults else None
            if fault is not None and fault != "lost":
                raise FaultError(fault)
            answer = self._forwarded(request)
            self.cloud.sync()
            if fault == "lost":
                raise FaultError("lost")
            return answer
        if any(name in request.raw for name in (b"Destroy_Task", b"CreateContainerView")):
            with self.cloud.call():
                answer = self._forwarded(request)
            if b"Destroy_Task" in request.raw:
                self.cloud.sync()
            return answer
        return self._forwarded(request)

    def _forwarded(self, request: Request) -> Answer:
        assert self._place.hostname is not None
        line = http.client.HTTPConnection(self._place.hostname, self._place.port, timeout=30)
        try:
            kept = ("content-type", "soapaction", "cookie", "accept")
            headers = {name: value for name, value in request.headers.items() if name.lower() in kept}
            line.request(request.method, request.path, request.raw, headers)
            answer = line.getresponse()
            names = ("content-type", "set-cookie")
            back = {name: value for name, value in answer.getheaders() if name.lower() in names}
            return Answer(answer.status, answer.read(), back)
        except OSError as error:
            raise Lost from error
        finally:
            line.close()


@contextmanager
def vcsim() -> Iterator[str]:
    """The simulator's address; it ends with the test."""
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(30.0, process.kill)
        timer.start()
        try:
            url = process.stdout.readline().strip()
            timer.cancel()
            yield url
        finally:
            timer.cancel()
            process.kill()
