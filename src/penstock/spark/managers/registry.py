"""The managers of existing clusters by the master's URL, and what a site with one has to say.

A new manager is one file with a frozen dataclass for its parameters and a function `make`, and one line here.
`penstock check`, `penstock run` and the reference all read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.choosing import Registry
from penstock.errors import ConfigurationError
from penstock.providers.registry import HERE
from penstock.spark.managers import existing_standalone, in_driver, kubernetes, theirs, yarn
from penstock.spark.managers.theirs import ExistingCluster
from penstock.topology.model import Site, Topology


@dataclass(frozen=True, slots=True)
class _Kind:
    begins: str
    """How its master's URL begins."""
    parameters: type[Any]
    make: Callable[[Site, Any], ExistingCluster]


_KINDS = (
    _Kind(existing_standalone.SCHEME, existing_standalone.StandaloneParameters, existing_standalone.make),
    _Kind(yarn.SCHEME, yarn.YarnParameters, yarn.make),
    _Kind(kubernetes.SCHEME, kubernetes.KubernetesParameters, kubernetes.make),
    _Kind(in_driver.SCHEME, in_driver.InDriverParameters, in_driver.make),
)

MANAGERS = Registry("cluster manager", *(kind.parameters for kind in _KINDS))
"""Every manager's parameters by its name."""

Found = tuple[tuple[str, ...], str, str]


def make_manager(site: Site) -> ExistingCluster:
    """The manager behind a site's master; ConfigurationError tells what is wrong with what the site says."""
    kind = _kind(site)
    if kind is None:
        raise ConfigurationError(_unknown(site))
    return kind.make(site, MANAGERS.make(kind.parameters.name, site.cluster))


def on_this_machine(site: Site) -> bool:
    """Whether everything of a site's cluster is on this machine, and so shares its disk."""
    master = site.master
    if master is None or master.startswith(in_driver.SCHEME):
        return True
    try:
        addresses = make_manager(site).addresses
    except ConfigurationError:
        return False
    return bool(addresses) and all(address.loopback for address in addresses)


def wrong_masters(topology: Topology) -> Iterator[Found]:
    """Mistakes of sites about existing clusters, as (place in the file, code, message)."""
    for site in topology.sites:
        yield from _wrong_site(site)


def _wrong_site(site: Site) -> Iterator[Found]:
    path, what = ("sites", site.name), f'site "{site.name}"'
    if site.master is None:
        if site.cluster:
            told = f"{what}: cluster is about an existing cluster; write its master: too"
            yield (*path, "cluster"), "no-master", told
        if site.storage and site.provider.name in {kind.name for kind in HERE}:
            told = f"{what}: storage is about machines elsewhere; write the master: or the provider: of those"
            yield (*path, "storage"), "no-master", told
        return
    kind = _kind(site)
    if kind is None:
        yield (*path, "master"), "unknown-master", _unknown(site)
        return
    wrong = MANAGERS.mistakes(kind.parameters.name, site.cluster)
    for mistake in wrong:
        at = path if mistake.parameter is None else (*path, "cluster", mistake.parameter)
        yield at, mistake.code, f"{what}: {mistake.message}"
    # What Hadoop's configuration says is for the machine that runs it, not for one that checks a file.
    if not wrong and kind.begins != yarn.SCHEME:
        try:
            make_manager(site)
        except ConfigurationError as error:
            yield (*path, "master"), "wrong-master", f"{what}: {error}"


def storage_problem(site: Site) -> str | None:
    """Why what a site says of its storage will not do; None where it will."""
    storage = site.storage
    if storage is None:
        if on_this_machine(site):
            return None
        return (
            f"the machines behind {site.master} must share checkpoints and channels, and a disk of this "
            "machine is not theirs; name what all of them share: storage: /a/shared/folder, or hdfs://…"
        )
    shared = theirs.shared_folder(site)
    if shared is not None and not shared.startswith("/"):
        return f"storage: expected an absolute path, or a URL such as hdfs://names/penstock, got {storage!r}"
    return None


def _kind(site: Site) -> _Kind | None:
    master = site.master or ""
    for kind in _KINDS:
        if master == kind.begins or (kind.begins != yarn.SCHEME and master.startswith(kind.begins)):
            return kind
    return None


def _unknown(site: Site) -> str:
    return (
        f'site "{site.name}": expected a master such as spark://host:7077, yarn or k8s://https://host:6443, '
        f"got {site.master!r}"
    )
