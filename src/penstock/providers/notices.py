"""Runs on a spot host: asks its cloud's metadata whether the host will be taken away, and tells the worker.

`python -m penstock.providers.notices CLOUD PID`. Once there is notice, the process PID (the host's worker)
is sent SIGPWR: it takes no new work, its cluster shows it as leaving, and whoever leases hosts sees that.
No secret and no port is needed for it. It ends with the worker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

METADATA = "http://169.254.169.254"
"""Where every cloud tells a machine about itself."""
EVERY_S = 2.0
"""How often is asked; the shortest notice is 30 s."""
ANSWER_S = 2.0
TOKEN_S = 21600

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def aws(base: str = METADATA) -> bool:
    """EC2: a time at which a spot instance is taken is shown two minutes before, else there is no page."""
    lasts = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
    token = _read(f"{base}/latest/api/token", lasts, "PUT")
    page = f"{base}/latest/meta-data/spot/instance-action"
    text = _read(page, {"X-aws-ec2-metadata-token": token.decode()} if token else {})
    return bool(text) and json.loads(text).get("action") in ("terminate", "stop", "hibernate")


def azure(base: str = METADATA) -> bool:
    """Azure: an event of the kind Preempt among the scheduled ones, about 30 s before."""
    text = _read(f"{base}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events: list[dict[str, Any]] = json.loads(text).get("Events", []) if text else []
    return any(event.get("EventType") == "Preempt" for event in events)


def gcp(base: str = METADATA) -> bool:
    """Google: the word TRUE, about 30 s before."""
    address = f"{base}/computeMetadata/v1/instance/preempted"
    return _read(address, {"Metadata-Flavor": "Google"}).strip() == b"TRUE"


CLOUDS: Mapping[str, Callable[[str], bool]] = {"aws": aws, "azure": azure, "gcp": gcp}
"""How each cloud is asked, by its provider's name."""


def _read(url: str, headers: Mapping[str, str], method: str = "GET") -> bytes:
    """What a page says; nothing where there is none."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    try:
        with _DIRECT.open(request, timeout=ANSWER_S) as answer:
            said: bytes = answer.read(100_000)
            return said
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return b""
        raise


def watch(cloud: str, pid: int, base: str = METADATA, every_s: float = EVERY_S) -> bool:
    """Ask until there is notice, and send it on; False where the process ended before."""
    asks = CLOUDS[cloud]
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        try:
            noticed = asks(base)
        except (OSError, ValueError) as error:
            # A metadata service may be away for a while; whoever reads the host's log learns of it.
            print(f"the metadata of {cloud} cannot be read: {error}", file=sys.stderr, flush=True)
            noticed = False
        if noticed:
            print(f"{cloud} takes this host away: the worker {pid} leaves its cluster", flush=True)
            os.kill(pid, signal.SIGPWR)
            return True
        time.sleep(every_s)


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
