"""How a broker of ours lets nobody in without its password, and how our clients come by that.

The password is made with the broker and lies in its folder, in files for its owner alone. Clients of the same
user find it by the broker's address. Nothing of it stands on a command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

from penstock.errors import ClusterError, ConfigurationError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import cache_folder, private_folder
from penstock.machine.secrets import new_secret, redacted, remember, remember_all

USER = "penstock"
PASSWORD_FILE = "password"
CLIENT_FILE = "client.properties"
"""What clients elsewhere need to be let in by a broker off the loopback address."""
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def password_of(folder: Path) -> str:
    """The password of the broker in a folder, made at the first call."""
    file = private_folder(folder) / PASSWORD_FILE
    if not file.exists():
        written(file, new_secret(), mode=PRIVATE)
    return remember(file.read_text().strip())


def server_settings(password: str, *listeners: str) -> dict[str, str]:
    """Settings of a broker that asks for the password on all these listeners."""
    login = f'{_MODULE} required username="{USER}" password="{password}" user_{USER}="{password}";'
    return {
        "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in listeners),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": login for name in listeners},
    }


def with_tls(folder: Path, java: Path, address: str, password: str, listener: str) -> dict[str, str]:
    """Settings with which a listener of a broker speaks TLS; its certificate is made at the first call.

    What a client elsewhere needs, certificate and password, is put into CLIENT_FILE: a channel names a copy
    of it as its `client_file`.
    """
    store, keytool = folder / "keys.p12", str(java.parent / "keytool")
    about = ["-storetype", "PKCS12", "-storepass:env", "STORE", "-keystore", str(store), "-alias", USER]
    if not store.exists():
        made = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650", "-dname"]
        _run([keytool, *made, f"CN={address}", "-ext", f"SAN=ip:{address}", *about], password)
        store.chmod(PRIVATE)
    certificate = _run([keytool, "-exportcert", "-rfc", *about], password)
    login = f'{_MODULE} required username="{USER}" password="{password}";'
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": " ".join(certificate.split("\n")).strip(),
    }
    text = "".join(f"{name}={value}\n" for name, value in client.items())
    written(folder / CLIENT_FILE, text, mode=PRIVATE)
    at = f"listener.name.{listener.lower()}"
    return {
        "listener.security.protocol.map": f"{listener}:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
        f"{at}.ssl.keystore.type": "PKCS12",
        f"{at}.ssl.keystore.location": str(store.resolve()),
        f"{at}.ssl.keystore.password": password,
        f"{at}.ssl.key.password": password,
        # It is a client of itself, too.
        f"{at}.ssl.truststore.type": "PEM",
        f"{at}.ssl.truststore.certificates": client["ssl.truststore.certificates"],
    }


def _run(command: list[str], password: str) -> str:
    surroundings = {**os.environ, "STORE": password}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=surroundings)
    except OSError as error:
        raise ClusterError(f"a certificate needs Java's keytool: {error}") from None
    if done.returncode != 0:
        raise ClusterError(f"a certificate could not be made: {redacted(done.stdout + done.stderr)}")
    return done.stdout


def make_known(folder: Path, port: int) -> None:
    """Let this user's clients find the broker's password by its port."""
    written(_known(port), json.dumps(str(folder.resolve())), mode=PRIVATE)


def forget(folder: Path, port: int) -> None:
    """The broker of this folder does not listen there any more."""
    if _folder_at(port) == folder.resolve():
        _known(port).unlink(missing_ok=True)


def client_settings(bootstrap: str, file: str | None = None) -> dict[str, str]:
    """Settings a client needs to be let in: out of the user's file, or for a broker of ours; else none."""
    if file is not None:
        return _read(Path(file))
    found = re.fullmatch(r"\s*(?:127\.0\.0\.1|localhost):(\d{1,5})\s*", bootstrap)
    folder = None if found is None else _folder_at(int(found[1]))
    if folder is None or not (folder / PASSWORD_FILE).exists():
        return {}
    login = f'{_MODULE} required username="{USER}" password="{password_of(folder)}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}


def _read(file: Path) -> dict[str, str]:
    """The settings of a properties file, one a line."""
    try:
        lines = file.expanduser().read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"client_file: {file} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, sign, value = line.partition("=")
        if not sign:
            # The line itself is not told: it may hold a secret.
            raise ConfigurationError(f"client_file: {file}, line {number}: expected name=value")
        found[name.strip()] = value.strip()
    remember_all(found)
    return found


def _known(port: int) -> Path:
    return cache_folder("brokers") / f"{port}.json"


def _folder_at(port: int) -> Path | None:
    with contextlib.suppress(OSError, ValueError):
        return Path(json.loads(_known(port).read_text()))
    return None
