"""Kubernetes: `master: k8s://https://host:6443`. Drivers run here (client mode), executors are pods.

Executors are asked for through Spark's Kubernetes backend with dynamic allocation off. A pod that is told to
go first finishes its tasks (Spark's decommissioning).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from penstock.errors import ConfigurationError
from penstock.spark.managers.theirs import Address, ExistingCluster, driver_address, python_of
from penstock.topology.model import Site

SCHEME = "k8s://"
PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class KubernetesParameters:
    """Kubernetes: executors are its pods, the driver runs where they can reach it."""

    name: ClassVar[str] = "kubernetes"
    image: str
    """The container image of executors, with Spark and the Python of the job."""
    namespace: str = "default"
    """The namespace pods are made in."""
    service_account: str = ""
    """The service account of the executors' pods; by default the namespace's own."""
    ca_file: str = ""
    """The certificate of the API server's authority; by default as kubectl's configuration says."""
    token_file: str = ""
    """A file with the token to authenticate with; by default as kubectl's configuration says."""
    context: str = ""
    """The context of kubectl's configuration to use; by default its present one."""
    request_cores: str = ""
    """What a pod asks for in cores, such as `0.5`; by default the executor's cores."""
    driver_address: str = ""
    """The address at which pods reach this machine; by default Spark's choice."""
    python: str = ""
    """The Python that executors run, inside the image; by default the one at the same path as here."""


def make(site: Site, parameters: KubernetesParameters) -> ExistingCluster:
    """The manager behind a site's master; ConfigurationError where its URL is none."""
    master = str(site.master)
    text = master.removeprefix(SCHEME)
    parts = urlsplit(text if "://" in text else f"https://{text}")
    try:
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if not parts.hostname or port is None:
        raise ConfigurationError(f"expected a master such as k8s://https://host:6443, got {master!r}")
    addresses = (Address(parts.hostname, port),)
    prefix = "spark.kubernetes"
    chosen = {
        f"{prefix}.container.image": parameters.image,
        f"{prefix}.namespace": parameters.namespace,
        f"{prefix}.authenticate.executor.serviceAccountName": parameters.service_account,
        f"{prefix}.authenticate.caCertFile": parameters.ca_file,
        f"{prefix}.authenticate.oauthTokenFile": parameters.token_file,
        f"{prefix}.context": parameters.context,
        f"{prefix}.executor.request.cores": parameters.request_cores,
        # What the API server tells is looked at often: a target of ours shows within a second.
        f"{prefix}.allocation.batch.delay": "200ms",
        f"{prefix}.executor.eventProcessingInterval": "200ms",
        # Pods of a lost node are deleted without an event that Spark understands, and missed only by listing.
        f"{prefix}.executor.apiPollingInterval": "10s",
        f"{prefix}.executor.missingPodDetectDelta": "10s",
        # Pods that wait for room are taken back as soon as they are not wanted any more, not a minute later.
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    }
    settings = {name: value for name, value in chosen.items() if value}
    settings |= driver_address(parameters.driver_address, addresses)
    return ExistingCluster(
        "Kubernetes' API server", master, addresses, settings, python_of(parameters.python)
    )
