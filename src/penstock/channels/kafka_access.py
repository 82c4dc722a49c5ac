"""How a broker of ours lets nobody in without its password, and how our clients come by that.

The password is made with the broker and lies in its folder, in files for its owner alone. Clients of the same
user find it by the broker's address. Nothing of it stands on a command line.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.machine.files import PRIVATE, written
from penstock.machine.folders import cache_folder, private_folder
from penstock.machine.secrets import new_secret, remember, remember_all

USER = "penstock"
PASSWORD_FILE = "password"
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
