"""`make clusters`: Penstock on existing clusters, with figures in build/clusters.json. About 25 minutes.

For each cluster the quickstart is run and compared with the local cluster's results, and a streaming job is
attached to under a load of 1 x, 4 x, 1 x. What cannot be had here is skipped, with the reason. Figures of
what is left out are those of the last run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from penstock.errors import ClusterError, PenstockError
from penstock.machine.processes import exit_on_sigterm
from penstock.report.figures import Figure, print_figures, write_figures
from penstock.spark.training import ensure_archive

from . import campaign, stored
from .campaign import Cluster
from .kubernetes import build
from .kubernetes.cluster import KubernetesCluster
from .shop import Sold, sell
from .standalone import StandaloneCluster
from .yarn import YarnCluster

RESULT = Path("build") / "clusters.json"
MOST = 4
"""Executors at most: at 4 x the load keeps two and a half of them busy."""
CLUSTERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Cluster]]] = {
    "standalone": StandaloneCluster,
    "yarn": YarnCluster,
    "kubernetes": KubernetesCluster,
}
NAMES = {
    "standalone": "existing standalone master",
    "yarn": "YARN",
    "kubernetes": "Kubernetes API server, pods as processes",
    "hdfs": "YARN with checkpoints on HDFS",
    "s3": "standalone with checkpoints at S3Proxy",
}
STORES = {"hdfs": stored.on_hdfs, "s3": stored.on_s3}
LONGEST_S = 900.0
"""What any one of them may take; idle cores need a third of it."""
SKIPPED, FAILED = "skipped", "could not be measured"


def unavailable(name: str) -> str | None:
    """Why a cluster cannot be had here; None where it can."""
    return build.unavailable() if name == "kubernetes" else None


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """ClusterError inside the block where it takes longer."""

    def too_long(*_: object) -> None:
        raise ClusterError(f"it was not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; short, for paths of sockets and command lines."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def figures_of(name: str, folder: Path, local: Sold | None, stream: bool) -> list[Figure]:
    """Start a cluster, run the shop and the stream on it, as far as wanted, and stop it."""
    if name in STORES:
        return stored.figures(folder, NAMES[name], STORES[name])
    found: list[Figure] = []
    title, began_s = NAMES[name], time.monotonic()
    with CLUSTERS[name](folder / name) as cluster:
        found.append(Figure(f"{title}: up after", time.monotonic() - began_s, unit="s"))
        if local is not None:
            found += shop_figures(title, sell(folder / "shop", cluster.site(folder)), local)
        if stream:
            outcome = campaign.run(cluster, "stream", folder / "stream", most=MOST)
            found += campaign.figures(title, outcome, MOST)
    return found


def with_earlier(found: Sequence[Figure], measured: Sequence[str]) -> list[Figure]:
    """These figures, and before them those of the last run that were not measured again."""
    try:
        earlier = [Figure(**row) for row in json.loads(RESULT.read_text())]
    except (OSError, ValueError, TypeError):
        earlier = []
    again = {figure.name for figure in found}
    again |= {f"{NAMES[name]}: {word}" for name in measured for word in (SKIPPED, FAILED)}
    return [*(figure for figure in earlier if figure.name not in again), *found]


def shop_figures(title: str, there: Sold, local: Sold) -> list[Figure]:
    """The shop there beside the shop on the local cluster."""
    same = there.spent == local.spent
    return [
        Figure(
            f"{title}: the quickstart's results", "the same" if same else "others",
            "the same as on the local cluster", holds=same and bool(there.spent),
        ),
        Figure(f"{title}: the quickstart's records", there.records_in, f"= {local.records_in}",
               holds=there.records_in == local.records_in),
        Figure(f"{title}: the quickstart's most executors for pricing", there.most_instances),
        Figure(f"{title}: the quickstart took", there.took_s, unit="s"),
    ]  # fmt: skip


def main() -> int:
    """Measure the wanted clusters; a figure that falls short is shown as such and fails nothing."""
    parser = argparse.ArgumentParser(prog="make clusters", description=__doc__)
    parser.add_argument("--only", default="", help="clusters, separated by commas: " + ", ".join(NAMES))
    parser.add_argument("--no-shop", action="store_true", help="leave the quickstart out")
    parser.add_argument("--no-stream", action="store_true", help="leave the attached job out")
    options = parser.parse_args()
    wanted = [name.strip() for name in options.only.split(",") if name.strip()] or list(NAMES)
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        print(f"unknown cluster {', '.join(unknown)}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 150)
    exit_on_sigterm()
    ensure_archive()
    found: list[Figure] = []
    with temporary_folder() as folder:
        local = None if options.no_shop or not set(wanted) & set(CLUSTERS) else sell(folder / "local")
        if local is not None:
            console.print(f"the quickstart on the local cluster: {local.records_in} records")
        for name in wanted:
            reason = unavailable(name)
            began_s = time.monotonic()
            console.print(f"{NAMES[name]} …")
            try:
                if reason is not None:
                    figures = [Figure(f"{NAMES[name]}: {SKIPPED}", reason)]
                else:
                    with bounded(LONGEST_S):
                        figures = figures_of(name, folder / name, local, not options.no_stream)
            except PenstockError as error:
                # One cluster that cannot be had (no Java, no Maven) must not hide the others.
                figures = [Figure(f"{NAMES[name]}: {FAILED}", str(error), holds=False)]
            print_figures(figures, f"{NAMES[name]}, {time.monotonic() - began_s:.0f} s", console)
            found += figures
            write_figures(with_earlier(figures, [name]), RESULT)
    console.print(
        f"{sum(f.holds is True for f in found)} bars reached, {sum(f.holds is False for f in found)} not"
    )
    console.print(f"written to {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
