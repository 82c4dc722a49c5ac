"""A cloud in the rig: an API like EC2's, in which a started instance becomes a host and runs its user data.

The API is moto's, served in the network of one site; `cloud_front` adds what moto lacks. A watcher lists the
instances and tells the rig's keeper which hosts there have to be. It stands in for a cloud in everything but
this: instances start within a second and cost nothing.
Started by `serve` as a service of the rig; needs moto (`moto[ec2,server]`) and boto3.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ClusterError
from penstock.rig.metadata import Notices
from penstock.rig.rig import Rig, order

PORT = 5000
REGION = "eu-west-1"
NAME = "cloud"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "rig", "AWS_SECRET_ACCESS_KEY": "rig", "AWS_DEFAULT_REGION": REGION}
"""Any would do: the rig's cloud asks for some and checks none."""
BOOT = (
    'mkdir -p /var/lib/cloud; printf %s "$1" > /var/lib/cloud/user-data; chmod 700 /var/lib/cloud/user-data; '
    "exec env -i HOME=~root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "
    "/var/lib/cloud/user-data"
)
_LOOK_S = 0.3


@dataclass(frozen=True, slots=True)
class RigCloud:
    """How the rig's cloud is reached from its hosts."""

    url: str
    subnets: dict[str, str]
    """The subnet of each site; instances put there are hosts of that site."""
    image: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which boto3 on a host of the rig finds this cloud."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.url}


def serve(rig: Rig, sizes: dict[str, tuple[float, int]], timeout_s: float = 60.0) -> RigCloud:
    """Start the cloud of a rig; `sizes` are cores and MiB of each instance type it has."""
    address, _ = rig.gateway(rig.sites[0])
    wanted = {"address": address, "folder": str(rig.folder), "sizes": sizes, "sites": rig.status()["sites"]}
    ready = rig.folder / "cloud.json"
    ready.unlink(missing_ok=True)
    rig.service(
        NAME, rig.sites[0], sys.executable, "-m", "penstock.rig.cloud", json.dumps(wanted), **CREDENTIALS
    )
    deadline_s = time.monotonic() + timeout_s
    while not ready.exists():
        if rig.status()["services"][NAME] is not None or time.monotonic() > deadline_s:
            raise ClusterError(f"the rig's cloud did not start: {rig.log(NAME).read_text()[-2000:]}")
        time.sleep(0.1)
    return RigCloud(**json.loads(ready.read_text()))


class _Watcher:
    """Makes hosts of instances, and no more of them once they end."""

    def __init__(
        self,
        ec2: Any,
        folder: Path,
        site_of: dict[str, str],
        sizes: dict[str, list[float]],
        notices: Notices,
    ) -> None:
        self._ec2 = ec2
        self._notices = notices
        self._folder = folder
        self._site_of = site_of
        self._sizes = sizes
        self._made: set[str] = set()

    def look(self) -> None:
        """Bring the rig's hosts into line with the instances; take away those whose notice is over."""
        due = self._notices.due()
        if due:
            self._ec2.terminate_instances(InstanceIds=due)
        pages = self._ec2.get_paginator("describe_instances").paginate()
        found = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
        for instance in found:
            name, state = instance["InstanceId"], instance["State"]["Name"]
            if state == "running" and name not in self._made:
                self._make(name, instance)
            elif state in ("shutting-down", "terminated", "stopping", "stopped") and name in self._made:
                self._made.discard(name)
                order(self._folder, "remove", name=name)
                print(f"{time.time():.3f} {name} is gone", flush=True)

    def _make(self, name: str, instance: dict[str, Any]) -> None:
        asked = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        script = base64.b64decode(asked["UserData"].get("Value", "")).decode()
        cores, memory_mib = self._sizes[instance["InstanceType"]]
        self._made.add(name)
        self._notices.seen(name, instance["PrivateIpAddress"])
        order(
            self._folder,
            "host",
            name=name,
            site=self._site_of[instance["SubnetId"]],
            address=instance["PrivateIpAddress"],
            cores=cores,
            memory_mib=int(memory_mib),
            boot=["bash", "-c", BOOT, "user-data", script] if script.startswith("#!") else [],
        )
        print(f"{time.time():.3f} {name} is a host at {instance['PrivateIpAddress']}", flush=True)


def main() -> None:
    """Serve the API and make hosts of instances until the rig ends."""
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    from penstock.rig.cloud_front import Front
    from penstock.rig.hosts import METADATA_ADDRESS

    wanted = json.loads(sys.argv[1])
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request would be one every 0.3 s
    # An API on another host is asked directly, whatever proxies the environment names.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    notices = Notices()
    application = Front(DomainDispatcherApplication(create_backend_app), notices)
    for address, port, what in ((wanted["address"], PORT, application), (METADATA_ADDRESS, 80, notices)):
        server = make_server(address, port, what, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://{wanted['address']}:{PORT}"
    ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=url)
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnets = {}
    for site, facts in wanted["sites"].items():
        # The upper half of a site's addresses: the lower one is for hosts the rig is asked for directly.
        upper = facts["addresses"].replace(".0/24", ".128/25")
        subnets[site] = ec2.create_subnet(VpcId=vpc, CidrBlock=upper)["Subnet"]["SubnetId"]
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    folder = Path(wanted["folder"])
    site_of = {subnet: site for site, subnet in subnets.items()}
    watcher = _Watcher(ec2, folder, site_of, wanted["sizes"], notices)
    (folder / "cloud.part").write_text(json.dumps({"url": url, "subnets": subnets, "image": image}))
    (folder / "cloud.part").rename(folder / "cloud.json")
    while True:
        try:
            watcher.look()
        except Exception as error:  # an API that is made to fail must not end the cloud
            print(f"{time.time():.3f} {type(error).__name__}: {error}", flush=True)
        time.sleep(_LOOK_S)


def tell(url: str, **wanted: Any) -> None:
    """Tell the cloud's front what shall go wrong; from within the rig."""
    request = urllib.request.Request(f"{url}/rig/front", json.dumps(wanted).encode(), method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(request, timeout=10).close()


if __name__ == "__main__":
    main()
