"""What is needed of Kubernetes' API: JSON over HTTPS, with a list that is then watched."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from penstock.errors import ClusterError

PATCH = "application/strategic-merge-patch+json"
WATCH_S = 300


class RefusedError(ClusterError):
    """The API server did not do what it was asked; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Api:
    """A client with a certificate. Each call has a connection of its own, so threads may share it."""

    def __init__(self, port: int, authority: Path, certificate: Path, key: Path) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(str(certificate), str(key))

    def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return self._call("GET", path, query=query)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Make an object."""
        return self._call("POST", path, body)

    def ensure(self, path: str, body: dict[str, Any]) -> None:
        """Make an object, unless it is there."""
        try:
            self.post(path, body)
        except RefusedError as error:
            if error.status != 409:
                raise

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Change an object."""
        return self._call("PATCH", path, body, kind=PATCH)

    def delete(self, path: str, grace_s: int | None = None) -> None:
        """Delete an object; nothing happens where it is gone."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            self._call("DELETE", path, body)
        except RefusedError as error:
            if error.status != 404:
                raise

    def watch(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every object as it is (`ADDED`), then every change, for ever."""
        while True:
            listed = self.get(path)
            for item in listed["items"]:
                yield "ADDED", item
            version, valid = listed["metadata"]["resourceVersion"], True
            while valid:
                query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_S)}
                connection, answer = self._send("GET", path, None, query, timeout_s=WATCH_S + 30)
                try:
                    valid = answer.status < 300
                    for line in answer if valid else ():
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            valid = False
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        yield event["type"], event["object"]
                except (OSError, ValueError, http.client.HTTPException):
                    valid = False
                finally:
                    connection.close()

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> Any:
        connection, answer = self._send(method, path, body, query, kind)
        try:
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RefusedError(answer.status, text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        query: dict[str, str] | None,
        kind: str = "application/json",
        timeout_s: float = 30.0,
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=timeout_s
        )
        address = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, address, content, {"Accept": "application/json", "Content-Type": kind})
        return connection, connection.getresponse()
