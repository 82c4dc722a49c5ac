"""The provider `aws` end to end: moto's EC2 in the rig, where instances are hosts that run user data."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.rig.availability import unavailable
from penstock.rig.rig import Rig
from penstock.rig.testing import rig

__all__ = ["rig"]

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.skipif(os.environ.get("PENSTOCK_CLOUDS") != "full", reason="part of `make clouds`"),
    pytest.mark.spark,
]
ROOT = Path(__file__).parents[2]
SIZES = {"t3.small": (1.0, 1900)}


def wrapper(folder: Path) -> str:
    """This Python with this checkout's code, as an image would have it."""
    path = folder / "bin" / "python"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"}:{ROOT} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def on_control(rig: Rig, script: str, wanted: dict[str, Any], more: dict[str, str]) -> dict[str, Any]:
    """Run a script of this folder on the control host; the JSON it ends with."""
    control = rig.get("control")
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **more}
    done = control.run(
        sys.executable,
        str(ROOT / "tests" / "rig" / script),
        json.dumps(wanted),
        environment=environment,
        timeout_s=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def test_from_a_lease_to_the_bill(rig: Rig, tmp_path: Path) -> None:
    pytest.importorskip("moto")
    pytest.importorskip("boto3")
    from penstock.rig.cloud import serve

    control = rig.host("control", memory_mib=4096)
    assert control is not None
    cloud = serve(rig, SIZES)
    parameters = {
        "region": "eu-west-1",
        "image": cloud.image,
        "subnet": cloud.subnets["a"],
        "python": wrapper(tmp_path),
    }
    wanted = {"address": control.address, "hosts": 1, "provider": "aws", "parameters": parameters}
    seen = on_control(rig, "spark_on_hosts.py", wanted, cloud.environment)
    print(seen)
    assert seen["joined"], (seen, logs(rig))
    assert seen["records"] == 8
    instances = [host for host in rig.status()["hosts"] if host["name"].startswith("i-")]
    assert instances == []
    assert seen["left"] == []
    # The bill is the provider's own record of the instance.
    ((host, from_s, until_s, flavour),) = seen["used"]
    assert (host, flavour) == ("h1", "t3.small")
    assert [name.startswith("i-") for name in seen["ran_on"]] == [True]
    record = recorded(rig, cloud.environment)
    assert [(r["from_s"], r["until_s"]) for r in record] == [
        (pytest.approx(from_s, abs=1.5), pytest.approx(until_s, abs=1.5))
    ]


def recorded(rig: Rig, environment: dict[str, str]) -> list[dict[str, float]]:
    """What the cloud itself says of every instance there was."""
    script = """
import json, boto3
from penstock.providers.aws import _ended_s
found = []
for group in boto3.client("ec2").describe_instances()["Reservations"]:
    for one in group["Instances"]:
        until_s = _ended_s(one["StateTransitionReason"])
        found.append({"from_s": one["LaunchTime"].timestamp(), "until_s": until_s})
print(json.dumps(found))
"""
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    more = {**own, "PYTHONPATH": f"{ROOT / 'src'}", **environment}
    done = rig.get("control").run(sys.executable, "-c", script, environment=more)
    assert done.returncode == 0, done.stderr
    answer: list[dict[str, float]] = json.loads(done.stdout)
    return answer


def logs(rig: Rig) -> str:
    return "\n".join(path.read_text()[-2000:] for path in (rig.folder / "logs").glob("*.log"))
