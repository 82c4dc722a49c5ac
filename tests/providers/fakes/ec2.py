"""EC2 for the provider `aws`: moto keeps the instances, and calls in front of it go wrong on purpose."""

from __future__ import annotations

import base64
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl

from penstock.providers.aws import NOTICE_S, _ended_s
from penstock.rig.cloud_front import FAULTS
from tests.providers.fakes.cloud import FakeCloud, Recorded
from tests.providers.fakes.wire import Answer, Lost, Request, WireFake

REGION, IMAGE = "eu-west-1", "ami-12c6146b"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "of-a-fake", "AWS_SECRET_ACCESS_KEY": "of-a-fake"}


class MotoInstances(FakeCloud):
    """A cloud whose machines are moto's: what it records is what moto says."""

    def __init__(self, url: str) -> None:
        import boto3

        super().__init__()
        self.url = url
        self.moto: Any = boto3.client(
            "ec2", region_name=REGION, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x"
        )
        self.here = threading.local()
        self.moto.describe_instances()  # the first call takes seconds: moto reads its tables

    def add(self, tags: Mapping[str, str], token: str = "", user_data: str = "", group: str = "") -> Recorded:
        """A machine comes to be: as it was asked for over the wire, or by nobody of ours."""
        with self.lock:
            request: Request | None = getattr(self.here, "request", None)
            if request is not None:
                self.here.answer = forwarded(self.url, request)
                found = re.search(r"<instanceId>(i-\w+)<", self.here.answer[1])
                assert found is not None, self.here.answer
                name = found[1]
            else:
                given = [{"Key": key, "Value": value} for key, value in tags.items()]
                name = self.moto.run_instances(
                    ImageId=IMAGE,
                    InstanceType="t3.small",
                    MinCount=1,
                    MaxCount=1,
                    TagSpecifications=[{"ResourceType": "instance", "Tags": given}],
                )["Instances"][0]["InstanceId"]
            one = self._instance(name)
            record = Recorded(
                name,
                dict(tags),
                one["LaunchTime"].timestamp(),
                one["PrivateIpAddress"],
                user_data=user_data,
                token=token,
            )
            self.records[name] = record
            return record

    def remove(self, id: str) -> bool:
        """A machine ends."""
        with self.lock:
            record = self.records.get(id)
            if record is None or record.until_s is not None:
                return False
            self.moto.terminate_instances(InstanceIds=[id])
            record.until_s = _ended_s(self._instance(id)["StateTransitionReason"]) or time.time()
            return True

    def breaks(self, host: str) -> None:
        """A machine stops."""
        for record in self.living():
            if record.host == host:
                self.moto.stop_instances(InstanceIds=[record.id])
                record.broken = True

    def _instance(self, name: str) -> Any:
        return self.moto.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]


class FrontOfMoto(WireFake):
    """The wire: faults and tokens here, everything else by moto."""

    cloud: MotoInstances

    def routed(self, request: Request) -> Answer:
        asked = dict(parse_qsl(request.raw.decode()))
        action = asked.get("Action")
        with self.cloud.call():
            if action == "RunInstances":
                return self._run(request, asked)
            if action == "TerminateInstances":
                with self.cloud.lock:
                    self.cloud.remove(asked["InstanceId.1"])
            if action == "DescribeSpotInstanceRequests":
                return text(200, self._notices(asked))
            return text(*forwarded(self.cloud.url, request))

    def _notices(self, asked: Mapping[str, str]) -> str:
        """Instances that will be taken away, which moto never does: marked two minutes before."""
        assert (asked["Filter.1.Name"], asked["Filter.1.Value.1"]) == (
            "status-code",
            "marked-for-termination",
        )
        marked = [r for r in self.cloud.living() if r.taken_s is not None]
        items = "".join(
            f"<item><spotInstanceRequestId>sir-{record.id}</spotInstanceRequestId>"
            f"<instanceId>{record.id}</instanceId><status><code>marked-for-termination</code>"
            f"<updateTime>{instant(record.taken_s - NOTICE_S)}</updateTime></status></item>"
            for record in marked
            if record.taken_s is not None
        )
        name = "DescribeSpotInstanceRequestsResponse"
        return f"<{name}><spotInstanceRequestSet>{items}</spotInstanceRequestSet></{name}>"

    def _run(self, request: Request, asked: Mapping[str, str]) -> Answer:
        tags = {
            asked[f"TagSpecification.1.Tag.{n}.Key"]: asked[f"TagSpecification.1.Tag.{n}.Value"]
            for n in range(1, 20)
            if f"TagSpecification.1.Tag.{n}.Key" in asked
        }
        script = base64.b64decode(asked.get("UserData", "")).decode()
        here, self.cloud.asked = self.cloud.here, asked
        here.request, here.answer = request, (200, "<RunInstancesResponse></RunInstancesResponse>")
        try:
            self.cloud.make(tags, asked["ClientToken"], script)
            return text(*here.answer)
        finally:
            here.request = None

    def refusal(self, kind: str) -> Answer:
        status, code, message = FAULTS[kind]
        error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return text(status, f"<Response><Errors>{error}</Errors><RequestID>x</RequestID></Response>")


def instant(at_s: float) -> str:
    """A time as EC2 writes it."""
    return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def text(status: int, body: str) -> Answer:
    return Answer(status, body.encode(), {"Content-Type": "text/xml"})


def forwarded(url: str, request: Request) -> tuple[int, str]:
    """What moto answers."""
    headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
    ask = urllib.request.Request(url, request.raw, headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(ask, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        raise Lost from error


@contextmanager
def moto_server() -> Iterator[str]:
    """moto's own server on loopback, with nothing in it."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    try:
        # Its state is the process's: what an earlier server had is still there.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=30
        ).close()
        yield url
    finally:
        server.stop()
