"""Real `sshd`s in rig hosts. Where the machine has none, the program is unpacked from Debian's package."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from penstock.machine.folders import cache_folder

PACKAGES = ("openssh-server", "libwrap0")


@cache
def find_sshd() -> str | None:
    """The program; None where it is not to be had. Nothing is installed and nothing is started."""
    found = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if found is not None:
        return found
    tools = cache_folder("tools", "sshd")
    program = tools / "usr" / "sbin" / "sshd"
    if not program.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        fetch = ["apt-get", "download", "-qq", *PACKAGES]
        if subprocess.run(fetch, cwd=tools, capture_output=True).returncode:
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, timeout=120)
            subprocess.run(fetch, cwd=tools, capture_output=True)
        for package in tools.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(tools)], capture_output=True)
    return str(program) if program.exists() else None


def make_key(folder: Path) -> Path:
    """A key to log in with; its public half is beside it."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key


def boot(public: str) -> tuple[str, ...]:
    """What a host runs from its start: an sshd that lets the holder of the key in as root."""
    program = find_sshd()
    libraries = str(next(Path(str(program)).parents[2].glob("usr/lib/*-linux-gnu"), ""))
    script = f"""
mkdir -p /run/sshd ~root/.ssh /etc/ssh
chmod 700 ~root ~root/.ssh
echo '{public.strip()}' > ~root/.ssh/authorized_keys
rm -rf ~root/.penstock
grep -q ^sshd: /etc/passwd || echo 'sshd:x:74:74::/run/sshd:/usr/sbin/nologin' >> /etc/passwd
sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow
rm -f /etc/ssh/rig_key*
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/rig_key
export LD_LIBRARY_PATH={libraries}
exec {program} -D -e -f /dev/null -h /etc/ssh/rig_key -o PasswordAuthentication=no -o UsePAM=no
"""
    return ("bash", "-c", script)
