"""A stateful fake of Azure's management API over HTTP: virtual machines and interfaces, as far as used."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tests.providers.fakes.cloud import FakeCloud, Recorded
from tests.providers.fakes.wire import Answer, Request, WireFake

SUBSCRIPTION, GROUP, SUBNET = "00000000-0000-4000-8000-00000000000a", "tests", "/subnets/one"
BASE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers"
MACHINES = f"{BASE}/Microsoft.Compute/virtualMachines"
INTERFACES = f"{BASE}/Microsoft.Network/networkInterfaces"


class FakeAzureMachines(FakeCloud):
    """Machines are known by the names they are put under."""

    putting: str = ""

    def new_id(self, number: int, tags: Mapping[str, str]) -> str:
        name, self.putting = self.putting or f"strange-{number}", ""
        return f"{MACHINES}/{name}"


class FakeAzure(WireFake):
    """The HTTP API of an Azure that is not one."""

    cloud: FakeAzureMachines

    def refusal(self, kind: str) -> Answer:
        code, status, text = {
            "quota": ("OperationNotAllowed", 409, "It exceeds the approved cores quota."),
            "capacity": ("SkuNotAvailable", 409, "The requested size is currently not available."),
            "throttled": ("TooManyRequests", 429, "Slow down."),
            "unauthorised": ("AuthorizationFailed", 403, "The client has no permission."),
        }[kind]  # fmt: skip
        return Answer(status, {"error": {"code": code, "message": text}})

    def routed(self, request: Request) -> Answer:
        path, method = request.path, request.method
        if path == MACHINES and method == "GET":
            with self.cloud.call():
                return Answer(200, {"value": [self._shown(record) for record in self.cloud.listed()]})
        if path == INTERFACES and method == "GET":
            return Answer(200, {"value": [self._interface(record) for record in self.cloud.listed()]})
        if path.startswith(f"{MACHINES}/") and method == "PUT":
            with self.cloud.call():
                return self._put(path, request)
        if path.startswith(f"{MACHINES}/") and method == "DELETE":
            with self.cloud.call():
                assert request.query["forceDeletion"] == "true"
                return Answer(202 if self.cloud.remove(path) else 204)
        return self.unknown(request)

    def _put(self, path: str, request: Request) -> Answer:
        body = self.cloud.asked = request.json
        wanted = body["properties"]
        assert wanted["hardwareProfile"]["vmSize"] == "standard"
        interface = wanted["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
        assert interface["deleteOption"] == wanted["storageProfile"]["osDisk"]["deleteOption"] == "Delete"
        assert wanted["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"]
        with self.cloud.lock:
            known = self.cloud.records.get(path)
            if known is not None and known.until_s is None and request.headers.get("If-None-Match") == "*":
                return Answer(412, {"error": {"code": "ConditionNotMet", "message": "It is there."}})
            self.cloud.putting = path.rsplit("/", 1)[1]
            text = base64.b64decode(wanted["osProfile"].get("customData", "")).decode()
            record = self.cloud.make(body["tags"], path, text)
        return Answer(201, self._shown(record))

    def _shown(self, record: Recorded) -> dict[str, Any]:
        running = self.cloud.running(record)
        power = "PowerState/stopped" if record.broken else "PowerState/running"
        statuses = (
            [{"code": "ProvisioningState/succeeded"}, {"code": power}] if running or record.broken else []
        )
        return {
            "id": record.id,
            "name": record.id.rsplit("/", 1)[1],
            "location": "westeurope",
            "tags": record.tags,
            "properties": {
                "provisioningState": "Succeeded" if running else "Creating",
                "timeCreated": datetime.fromtimestamp(record.from_s, timezone.utc).isoformat(),
                "instanceView": {"statuses": statuses},
            },
        }

    def _interface(self, record: Recorded) -> dict[str, Any]:
        place = {"name": "it", "properties": {"privateIPAddress": record.address}}
        return {
            "id": f"{INTERFACES}/{record.id.rsplit('/', 1)[1]}",
            "properties": {"virtualMachine": {"id": record.id}, "ipConfigurations": [place]},
        }
