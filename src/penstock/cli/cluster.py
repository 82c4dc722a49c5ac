"""`penstock cluster`: a local elastic Spark cluster that stays until it is taken down."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import PenstockError
from penstock.quantities import counted, duration_s, memory_mib

app = typer.Typer(
    no_args_is_help=True, help="A local elastic Spark cluster: bring it up, look at it, take it down."
)

Name = Annotated[str, typer.Option(help="The cluster's name, where there are several.")]


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False)


def _fail(error: PenstockError) -> typer.Exit:
    _console().print(f"[red]error:[/red] {error}")
    return typer.Exit(1)


@app.command()
def up(
    hosts: Annotated[int, typer.Option(help="Hosts to begin with.", min=0)] = 1,
    cores: Annotated[
        int, typer.Option(help="Cores each host declares; may exceed the machine's.", min=1)
    ] = 4,
    memory: Annotated[str, typer.Option(help="Memory each host declares.")] = "4 GiB",
    start_delay: Annotated[str, typer.Option(help="How long a host takes from lease to start.")] = "0 s",
    port: Annotated[int | None, typer.Option(help="The master's port; a free one by default.")] = None,
    web_port: Annotated[int | None, typer.Option(help="The port of its page; a free one by default.")] = None,
    name: Name = "local",
) -> None:
    """Start a standalone master and hosts; a cluster of that name that runs already gets what it lacks."""
    from penstock.spark.managers.local_cluster import LocalCluster
    from penstock.spark.training import ensure_archive

    console = _console()
    try:
        cluster = LocalCluster(
            hosts,
            name=name,
            cores=cores,
            memory_mib=memory_mib(memory),
            start_delay_s=duration_s(start_delay),
            persistent=True,
            port=port,
            web_port=web_port,
        )
        cluster.check()  # before the minute that the archive takes
        ensure_archive()
        try:
            cluster.start()
        except BaseException:
            # Half a cluster is of no use; one that ran before is not ours to take down.
            if not cluster.adopted:
                cluster.stop()
            raise
    except PenstockError as error:
        raise _fail(error) from None
    console.print(f"cluster {name} is up: {cluster.master_url} with {counted(len(cluster.hosts()), 'host')}")
    console.print(f"only you may use it: start jobs with SPARK_CONF_DIR={cluster.conf}")
    console.print(f"logs in {cluster.folder / 'logs'}")
    console.print(f"take it down with `penstock cluster down{'' if name == 'local' else f' --name {name}'}`")


@app.command()
def status(name: Name = "local") -> None:
    """Show the hosts, what runs on them, and the applications."""
    from penstock.spark.managers.local_cluster import LocalCluster

    console = _console()
    try:
        cluster = LocalCluster.open(name)
        table = Table(
            "host", "address", "state", "cores used", "memory used", "executors", title=cluster.master_url
        )
        places = cluster.executors()
        for host in cluster.hosts().values():
            here = [f"{place.application}/{place.executor}" for place in places if place.host == host.id]
            table.add_row(
                host.id,
                host.address,
                host.state.value,
                f"{host.cores_used}/{host.cores}",
                f"{host.memory_used_mib}/{host.memory_mib} MiB",
                ", ".join(here) or "–",
            )
        console.print(table)
        for application in cluster.applications():
            console.print(
                f"{application.id} {application.name}: {application.state.lower()}, {application.cores} cores"
            )
    except PenstockError as error:
        raise _fail(error) from None


@app.command()
def down(name: Name = "local") -> None:
    """Stop the cluster and everything that runs on it."""
    from penstock.spark.managers.local_cluster import LocalCluster

    try:
        cluster = LocalCluster.open(name)
    except PenstockError as error:
        raise _fail(error) from None
    cluster.stop()
    _console().print(f"cluster {name} is down")
