"""A stateful fake of OpenStack's HTTP APIs: Keystone, Nova, Glance and Neutron, as far as they are used."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from tests.providers.fakes.cloud import FakeCloud, FaultError, Recorded
from tests.providers.fakes.wire import Answer, Request, WireFake

IMAGE, NETWORK = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
FLAVOUR_ID = "11111111-0000-4000-8000-000000000003"


class FakeNova(FakeCloud):
    """Nova has no tokens and names servers by UUIDs. A server without room is made, and ends in ERROR."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.honours_tokens = False

    def new_id(self, number: int, tags: Mapping[str, str]) -> str:
        return str(uuid.UUID(int=number))


class FakeOpenStack(WireFake):
    """The HTTP API of an OpenStack cloud that is not one."""

    def refusal(self, kind: str) -> Answer:
        if kind == "quota":
            text = "Quota exceeded for cores: Requested 2, but already used 20 of 20 cores"
            return Answer(403, {"forbidden": {"code": 403, "message": text}})
        if kind == "throttled":
            return Answer(429, {"overLimit": {"code": 429, "message": "slow down"}}, {"Retry-After": "0"})
        return Answer(403, {"forbidden": {"code": 403, "message": "Policy doesn't allow this"}})

    def routed(self, request: Request) -> Answer:
        path, method = request.path.rstrip("/"), request.method
        if path.startswith("/identity"):
            return self._identity(request)
        if path in ("/compute/v2.1", "/compute"):
            return Answer(
                200, {"version": self._version("v2.1", f"{self.url}/compute/v2.1/", "2.100", "2.1")}
            )
        if path in ("/image/v2", "/image"):
            links = [{"rel": "self", "href": f"{self.url}/image/v2/"}]
            return Answer(200, {"versions": [{"id": "v2.9", "status": "CURRENT", "links": links}]})
        if path.startswith("/image/v2/images"):
            image = {"id": IMAGE, "name": "debian-13", "status": "active"}
            if path == "/image/v2/images":
                return Answer(200, {"images": [image]})
            known = path.rsplit("/", 1)[1] in (IMAGE,)
            return Answer(200, image) if known else Answer(404, {"message": "no such image"})
        if path.startswith("/network"):
            return self._network(path)
        if path.startswith("/compute/v2.1/flavors"):
            return self._flavours(path)
        if path == "/compute/v2.1/servers" and method == "POST":
            with self.cloud.call():
                return self._make(request.json["server"])
        if path == "/compute/v2.1/servers/detail":
            with self.cloud.call():
                wanted = request.query.get("tags", "")
                found = [r for r in self.cloud.listed() if not wanted or r.group == wanted]
                return Answer(200, {"servers": [self._shown(record) for record in found]})
        if path.startswith("/compute/v2.1/servers/") and method == "DELETE":
            with self.cloud.call():
                gone = self.cloud.remove(path.rsplit("/", 1)[1])
                return Answer(204) if gone else Answer(404, {"itemNotFound": {"message": "no such server"}})
        return self.unknown(request)

    def _make(self, server: dict[str, Any]) -> Answer:
        assert server["imageRef"] == IMAGE
        assert server["flavorRef"] == FLAVOUR_ID
        text = base64.b64decode(server.get("user_data", "")).decode()
        (tag,) = server["tags"]
        try:
            record = self.cloud.make(server["metadata"], "", text, tag)
        except FaultError as fault:
            if fault.kind != "capacity":
                raise
            record = self.cloud.add(server["metadata"], "", text, tag)
            record.broken = True
            record.from_s = record.until_s or record.from_s
            self.homeless.add(record.id)
        return Answer(202, {"server": {"id": record.id, "links": [], "adminPass": "x"}})

    def _shown(self, record: Recorded) -> dict[str, Any]:
        status = "ERROR" if record.broken else "ACTIVE" if self.cloud.running(record) else "BUILD"
        made = datetime.fromtimestamp(record.from_s, timezone.utc).isoformat()
        shown: dict[str, Any] = {
            "id": record.id,
            "name": record.host,
            "status": status,
            "metadata": record.tags,
            "tags": [record.group],
            "addresses": {"private": [{"addr": record.address, "version": 4}]},
            "created": made,
            "OS-SRV-USG:launched_at": made,
            "OS-EXT-STS:task_state": None,
        }
        if record.id in self.homeless:
            shown["fault"] = {"code": 500, "message": "No valid host was found."}
        return shown

    @property
    def homeless(self) -> set[str]:
        """Servers for which there was no room."""
        return self.__dict__.setdefault("_homeless", set())

    def _flavours(self, path: str) -> Answer:
        flavour = {"id": FLAVOUR_ID, "name": "standard", "vcpus": 2, "ram": 4096, "disk": 20}
        if path.endswith(("/flavors", "/flavors/detail")):
            return Answer(200, {"flavors": [flavour]})
        if path.endswith("/os-extra_specs"):
            return Answer(200, {"extra_specs": {}})
        known = path.rsplit("/", 1)[1] == FLAVOUR_ID
        return Answer(200, {"flavor": flavour}) if known else Answer(404, {"itemNotFound": {"message": "no"}})

    def _network(self, path: str) -> Answer:
        network = {"id": NETWORK, "name": "private"}
        if path in ("/network", "/network/v2.0"):
            version = self._version("v2.0", f"{self.url}/network/v2.0/", "", "")
            return Answer(200, {"versions": [version]})
        if path.endswith("/networks"):
            return Answer(200, {"networks": [network]})
        return Answer(404, {"NeutronError": {"message": "no such network"}})

    def _version(self, id: str, href: str, most: str, least: str) -> dict[str, Any]:
        links = [{"rel": "self", "href": href}]
        return {"id": id, "status": "CURRENT", "version": most, "min_version": least, "links": links}

    def _identity(self, request: Request) -> Answer:
        if request.method == "GET":
            links = [{"rel": "self", "href": f"{self.url}/identity/v3/"}]
            return Answer(200, {"version": {"id": "v3.14", "status": "stable", "links": links}})
        services = {
            "compute": "/compute/v2.1",
            "image": "/image",
            "network": "/network",
            "identity": "/identity",
        }
        catalog = [
            {
                "type": kind,
                "id": kind,
                "name": kind,
                "endpoints": [
                    {
                        "id": kind,
                        "interface": "public",
                        "region": "here",
                        "region_id": "here",
                        "url": f"{self.url}{place}",
                    }
                ],
            }
            for kind, place in services.items()
        ]
        domain = {"id": "default", "name": "Default"}
        token = {
            "methods": ["password"],
            "user": {"id": "u", "name": "tester", "domain": domain},
            "project": {"id": "p", "name": "tests", "domain": domain},
            "catalog": catalog,
            "roles": [{"id": "r", "name": "member"}],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
        }
        return Answer(201, {"token": token}, {"X-Subject-Token": "a-token-of-a-fake"})
