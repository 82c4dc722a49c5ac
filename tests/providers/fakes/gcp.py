"""A stateful fake of Compute Engine's HTTP API: instances of one zone, as far as used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from penstock.providers.cloud_api import FLAVOUR, HOST, OWNER, SITE, TOKEN
from tests.providers.fakes.cloud import FakeCloud, Recorded
from tests.providers.fakes.wire import Answer, Request, WireFake

PROJECT, ZONE = "a-project", "europe-west4-a"
BASE = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}"


class FakeGoogleInstances(FakeCloud):
    """Instances are known by the names they are inserted under."""

    putting: str = ""

    def new_id(self, number: int, tags: Mapping[str, str]) -> str:
        name, self.putting = self.putting or f"strange-{number}", ""
        return name


class FakeGoogle(WireFake):
    """The HTTP API of a Compute Engine that is not one."""

    cloud: FakeGoogleInstances

    def refusal(self, kind: str) -> Answer:
        status, reason, text = {
            "quota": (403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 24.0"),
            "capacity": (503, "backendError", "ZONE_RESOURCE_POOL_EXHAUSTED: the zone has not enough of it"),
            "throttled": (403, "rateLimitExceeded", "Rate Limit Exceeded"),
            "unauthorised": (403, "forbidden", "Required 'compute.instances.create' permission"),
        }[kind]
        error = {"code": status, "message": text, "errors": [{"reason": reason, "message": text}]}
        return Answer(status, {"error": error})

    def routed(self, request: Request) -> Answer:
        path, method = request.path, request.method
        if path == f"{BASE}/instances" and method == "GET":
            with self.cloud.call():
                wanted = request.query["filter"].partition("=")[2]
                found = [record for record in self.cloud.listed() if record.group == wanted]
                return Answer(200, {"items": [self._shown(record) for record in found]})
        if path == f"{BASE}/instances" and method == "POST":
            with self.cloud.call():
                return self._insert(request)
        if path.startswith(f"{BASE}/instances/") and method == "DELETE":
            with self.cloud.call():
                if self.cloud.remove(path.rsplit("/", 1)[1]):
                    return Answer(200, self._operation("delete"))
                return Answer(404, {"error": {"code": 404, "message": "no such instance", "errors": []}})
        return self.unknown(request)

    def _insert(self, request: Request) -> Answer:
        body = self.cloud.asked = request.json
        assert body["machineType"].endswith("/machineTypes/standard")
        assert body["disks"][0]["autoDelete"] is True
        items = {item["key"]: item["value"] for item in body["metadata"]["items"]}
        assert request.query["requestId"] == items[TOKEN]
        names = {key: items[key] for key in (OWNER, SITE, HOST, FLAVOUR, TOKEN)}
        with self.cloud.lock:
            known = self.cloud.records.get(body["name"])
            if known is not None and known.token != request.query["requestId"]:
                return Answer(409, {"error": {"code": 409, "message": "it exists", "errors": []}})
            self.cloud.putting = body["name"]
            label = body["labels"]["penstock-group"]
            token = request.query["requestId"]
            self.cloud.make(names, token, items.get("startup-script", ""), label)
        return Answer(200, self._operation("insert"))

    def _operation(self, kind: str) -> dict[str, Any]:
        return {"name": f"operation-{kind}-{self.cloud.calls}", "status": "DONE", "operationType": kind}

    def _shown(self, record: Recorded) -> dict[str, Any]:
        status = "STOPPING" if record.broken else "RUNNING" if self.cloud.running(record) else "STAGING"
        return {
            "id": str(abs(hash(record.id)) % 10**15),
            "name": record.id,
            "status": status,
            "labels": {"penstock-group": record.group},
            "metadata": {"items": [{"key": key, "value": value} for key, value in record.tags.items()]},
            "networkInterfaces": [{"networkIP": record.address}],
            "creationTimestamp": datetime.fromtimestamp(record.from_s, timezone.utc).isoformat(),
        }
