"""Hadoop YARN: `master: yarn`. Drivers run here (client mode), executors in YARN's containers.

Where the ResourceManager is, and all else of the cluster, stands in Hadoop's own configuration folder.
Executors are asked for through Spark's YARN backend with dynamic allocation off.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

from penstock.errors import ConfigurationError
from penstock.spark.access import CLOSED
from penstock.spark.managers.theirs import (
    Address,
    ExistingCluster,
    driver_address,
    python_of,
    shared_folder,
)
from penstock.topology.model import Site

SCHEME = "yarn"
CONF_VARIABLE = "HADOOP_CONF_DIR"
RESOURCE_MANAGER = "yarn.resourcemanager"
DEFAULT_PORT = 8032


@dataclass(frozen=True, slots=True)
class YarnParameters:
    """Hadoop YARN: executors are its containers, the driver runs on this machine."""

    name: ClassVar[str] = "yarn"
    conf_folder: str = ""
    """Hadoop's configuration (`yarn-site.xml` and so on); by default what HADOOP_CONF_DIR says."""
    queue: str = ""
    """The queue applications are submitted to; by default YARN's."""
    jars: str = ""
    """Where executors find Spark's jars: `local:/opt/spark/jars/*`; by default they are uploaded."""
    driver_address: str = ""
    """The address at which executors reach this machine; by default Spark's choice."""
    python: str = ""
    """The Python that executors run; by default the one at the same path as here."""


def make(site: Site, parameters: YarnParameters) -> ExistingCluster:
    """The manager behind a site's master; ConfigurationError where Hadoop's configuration is not found."""
    folder = parameters.conf_folder or os.environ.get(CONF_VARIABLE, "")
    if not folder:
        raise ConfigurationError(
            "master yarn needs Hadoop's configuration: give cluster: {conf_folder: /etc/hadoop/conf}, "
            f"or set {CONF_VARIABLE}"
        )
    addresses = resource_managers(Path(folder))
    settings = {
        # YARN hands every application a secret of its own: nobody else speaks with its driver and executors.
        **CLOSED,
        **driver_address(parameters.driver_address, ()),
        # An application master on a lost machine is started again; failures long ago do not count.
        "spark.yarn.am.attemptFailuresValidityInterval": "1h",
    }
    if parameters.queue:
        settings["spark.yarn.queue"] = parameters.queue
    if parameters.jars:
        settings["spark.yarn.jars"] = parameters.jars
    if (shared := shared_folder(site)) is not None:
        # Paths of a run mean the shared folder, whatever file system Hadoop has as its default.
        settings["spark.hadoop.fs.defaultFS"] = "file:///"
        settings["spark.yarn.stagingDir"] = f"file://{shared}/.penstock-staging"
    variables = {CONF_VARIABLE: folder, "YARN_CONF_DIR": folder, **python_of(parameters.python)}
    return ExistingCluster("YARN's ResourceManager", SCHEME, addresses, settings, variables)


def resource_managers(folder: Path) -> tuple[Address, ...]:
    """Where the ResourceManagers listen, by `yarn-site.xml`; ConfigurationError where there is none."""
    file = folder / "yarn-site.xml"
    try:
        found = {
            (item.findtext("name") or "").strip(): (item.findtext("value") or "").strip()
            for item in ElementTree.parse(file).getroot().iter("property")
        }
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigurationError(
            f"expected Hadoop's configuration in {folder}: {file.name}: {error}"
        ) from None
    several = [f".{one.strip()}" for one in found.get(f"{RESOURCE_MANAGER}.ha.rm-ids", "").split(",") if one]
    addresses = []
    for which in several or [""]:
        host = found.get(f"{RESOURCE_MANAGER}.hostname{which}") or found.get(
            f"{RESOURCE_MANAGER}.hostname", ""
        )
        text = found.get(f"{RESOURCE_MANAGER}.address{which}") or host
        # A variable of Hadoop's stays one: Spark resolves it, we only do not ask there.
        if text and "${" not in text:
            with contextlib.suppress(ValueError):
                addresses.append(Address.read(text, DEFAULT_PORT))
    return tuple(addresses)
