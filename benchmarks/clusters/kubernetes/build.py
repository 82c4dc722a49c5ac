"""Builds kube-apiserver and etcd from the Go module proxy, once: `make kube`. Ten minutes on two cores.

The programs are kept in the user's cache under a name made of go.sum and Go's version.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from penstock.errors import ClusterError
from penstock.machine.folders import cache_folder

SOURCE = Path(__file__).parent / "server"
VERSION = "v1.35.4"
PROGRAMS = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}


def unavailable() -> str | None:
    """Why the programs cannot be used now, with what would help; None where they can."""
    if shutil.which("go") is None:
        return "no Go is installed, which kube-apiserver and etcd are built with"
    if shutil.which("openssl") is None:
        return "no openssl is installed, which makes the API server's certificates"
    folder = programs()
    if not all((folder / name).exists() for name in PROGRAMS):
        return "kube-apiserver and etcd are not built yet: `make kube` builds them once, in about ten minutes"
    return None


def programs() -> Path:
    """The folder the programs are in, or will be."""
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    content = version.encode() + (SOURCE / "go.sum").read_bytes() + (SOURCE / "go.mod").read_bytes()
    return cache_folder("kube", hashlib.sha256(content).hexdigest()[:12])


def build() -> Path:
    """Build what is missing; the folder of the programs. Blocks for minutes the first time."""
    if shutil.which("go") is None:
        raise ClusterError("no Go is installed: kube-apiserver and etcd are built with it")
    folder = programs()
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"
    for name, package in PROGRAMS.items():
        if (folder / name).exists():
            continue
        print(f"building {name} {VERSION if name.startswith('kube') else ''}", flush=True)
        part = folder / f".{name}.part"
        done = subprocess.run(
            ["go", "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", str(part), package],
            cwd=SOURCE,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise ClusterError(f"{name} could not be built:\n{done.stderr[-2000:]}")
        part.rename(folder / name)
    return folder


def main() -> int:
    """Build, and say where the programs are."""
    try:
        print(f"kube-apiserver and etcd are in {build()}")
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
