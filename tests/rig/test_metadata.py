"""An instance of the rig's cloud is told by its metadata that it will be taken away, it alone and in time."""

from __future__ import annotations

import io
import json
import time
from typing import Any

from penstock.rig.cloud_front import Front
from penstock.rig.metadata import NOTICE_PATH, TOKEN_PATH, Notices


def asked(
    notices: Notices, method: str, path: str, address: str, token: str | None = None
) -> tuple[str, str]:
    said: list[str] = []
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": address}
    if token is not None:
        environ["HTTP_X_AWS_EC2_METADATA_TOKEN"] = token
    body = b"".join(notices(environ, lambda status, headers: said.append(status)))
    return said[0][:3], body.decode()


def test_an_instance_learns_of_its_own_notice_and_of_no_other() -> None:
    notices = Notices()
    notices.seen("i-1", "10.77.1.130")
    notices.seen("i-2", "10.77.1.131")
    status, token = asked(notices, "PUT", TOKEN_PATH, "10.77.1.130")
    assert status == "200"
    assert asked(notices, "GET", NOTICE_PATH, "10.77.1.130", token)[0] == "404"
    notices.give("i-1", 120.0)
    status, text = asked(notices, "GET", NOTICE_PATH, "10.77.1.130", token)
    assert (status, json.loads(text)["action"]) == ("200", "terminate")
    assert asked(notices, "GET", NOTICE_PATH, "10.77.1.131", token)[0] == "404"
    assert asked(notices, "GET", NOTICE_PATH, "10.77.1.130")[0] == "401", "without a token nothing is told"
    assert notices.due() == []


def test_an_instance_is_taken_once_when_its_time_is_over() -> None:
    notices = Notices()
    notices.give("i-1", 0.0)
    time.sleep(0.01)
    assert notices.due() == ["i-1"]
    assert notices.due() == []


def test_the_front_gives_notice_where_it_is_told_to() -> None:
    notices = Notices()
    front = Front(lambda environ, start: [], notices)
    front._told({"interrupt": {"i-7": 0.0}}, lambda *_: None)
    assert notices.due() == ["i-7"]


def test_the_front_lists_who_was_given_notice_as_ec2_does() -> None:
    notices = Notices()
    front = Front(lambda environ, start: [], notices)
    body = b"Action=DescribeSpotInstanceRequests&Version=2016-11-15"
    environ = {"CONTENT_LENGTH": str(len(body)), "PATH_INFO": "/"}

    def listed() -> str:
        asked = {**environ, "wsgi.input": io.BytesIO(body)}
        return b"".join(front(asked, lambda *_: None)).decode()

    assert "<instanceId>" not in listed()
    notices.give("i-7", 120.0)
    assert "<instanceId>i-7</instanceId><status><code>marked-for-termination</code>" in listed()
