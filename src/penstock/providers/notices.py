"""Runs on a spot host: asks its cloud's metadata whether the host will be taken away, and tells the worker.

`python -m penstock.providers.notices CLOUD PID`. The process PID (the host's worker) is then sent SIGPWR: it
takes no new work, its cluster shows it as leaving, and whoever leases hosts sees that. No secret and no port
is needed for it. What runs there ends by that, so a host whose cloud gives longer notice, and tells whoever
leases it as well, goes on until shortly before its end: what it does is moved in order. All of this ends with
the worker.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from penstock.machine.asking import DIRECT, NO_ANSWER

METADATA = "http://169.254.169.254"
"""Where every cloud tells a machine about itself."""
EVERY_S = 2.0
"""How often is asked; the shortest notice is 30 s."""
LAST_S = 30.0
"""So long before its end a worker leaves, whoever else was told: as much as the other clouds give."""
ANSWER_S = 2.0
TOKEN_S = 21600


def aws(base: str = METADATA) -> float | None:
    """EC2: the time at which a spot instance is taken is shown two minutes before, else there is no page."""
    lasts = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
    token = _read(f"{base}/latest/api/token", lasts, "PUT")
    page = f"{base}/latest/meta-data/spot/instance-action"
    text = _read(page, {"X-aws-ec2-metadata-token": token.decode()} if token else {})
    told = json.loads(text) if text else {}
    if told.get("action") not in ("terminate", "stop", "hibernate"):
        return None
    return datetime.strptime(told["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()


def azure(base: str = METADATA) -> float | None:
    """Azure: an event of the kind Preempt among the scheduled ones, about 30 s before."""
    text = _read(f"{base}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events: list[dict[str, Any]] = json.loads(text).get("Events", []) if text else []
    return _soon() if any(event.get("EventType") == "Preempt" for event in events) else None


def gcp(base: str = METADATA) -> float | None:
    """Google: the word TRUE, about 30 s before."""
    address = f"{base}/computeMetadata/v1/instance/preempted"
    return _soon() if _read(address, {"Metadata-Flavor": "Google"}).strip() == b"TRUE" else None


CLOUDS: Mapping[str, Callable[[str], float | None]] = {"aws": aws, "azure": azure, "gcp": gcp}
"""How each cloud is asked, by its provider's name: when the host is taken away, in seconds since 1970."""


def _soon() -> float:
    return time.time() + LAST_S


def _read(url: str, headers: Mapping[str, str], method: str = "GET") -> bytes:
    """What a page says; nothing where there is none."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    try:
        with DIRECT.open(request, timeout=ANSWER_S) as answer:
            said: bytes = answer.read(100_000)
            return said
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return b""
        raise


def watch(cloud: str, pid: int, base: str = METADATA, every_s: float = EVERY_S) -> bool:
    """Ask until it is time to leave, and tell the worker; False where that ended before."""
    asks, told = CLOUDS[cloud], False
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        try:
            taken_s = asks(base)
        except (*NO_ANSWER, ValueError, KeyError) as error:
            # A metadata service may be away for a while; whoever reads the host's log learns of it.
            print(f"the metadata of {cloud} cannot be read: {error!r}", file=sys.stderr, flush=True)
            taken_s = None
        left_s = math.inf if taken_s is None else taken_s - time.time()
        if left_s < math.inf and not told:
            told = True
            print(f"{cloud} takes this host away in {left_s:.0f} s", flush=True)
        if left_s <= LAST_S:
            print(f"the worker {pid} leaves its cluster", flush=True)
            os.kill(pid, signal.SIGPWR)
            return True
        time.sleep(every_s)


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
