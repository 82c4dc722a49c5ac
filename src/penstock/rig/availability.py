"""Whether this machine can have a rig, found out by making a little of everything in throwaway namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

PROGRAMS = ("ip", "unshare", "nsenter", "mount", "pivot_root", "bash")
"""Programs the rig calls: iproute2, util-linux and bash."""

_PROBE = """
ip link add v0 type veth peer name v1
ip link add b0 type bridge
ip link set v0 master b0
ip tuntap add t0 mode tun
mount -t tmpfs tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work overlay /mnt/root
"""


@cache
def unavailable() -> str | None:
    """Why there can be no rig here; None where there can."""
    if sys.platform != "linux":
        return "the rig needs Linux"
    if os.geteuid() != 0:
        return "the rig needs root, for namespaces and network links"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"the rig needs {', '.join(missing)} (Debian: iproute2, util-linux, bash)"
    if not Path("/dev/net/tun").exists():
        return "the rig needs /dev/net/tun"
    command = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "bash", "-ec", _PROBE)
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "the rig cannot be had here: making namespaces took more than 20 s"
    if tried.returncode:
        said = tried.stderr.strip() or f"unshare ended with {tried.returncode}"
        return f"the rig cannot be had here: {said}"
    return None
