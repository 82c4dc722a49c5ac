"""`penstock rig`: hosts for tests, as real as one machine allows, until they are taken down."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import ConfigurationError
from penstock.quantities import duration_s, memory_mib

app = typer.Typer(
    no_args_is_help=True,
    help="Hosts for tests in namespaces of this machine: bring them up, cut, heal, kill, take them down.",
)

Name = Annotated[str, typer.Option("--name", help="The rig's name, where there are several.")]


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False)


@app.command()
def up(
    sites: Annotated[int, typer.Option(help="Sites, named a, b, …", min=1, max=26)] = 1,
    hosts: Annotated[int, typer.Option(help="Hosts of each site, named a1, a2, …", min=0)] = 2,
    cores: Annotated[float, typer.Option(help="CPU limit of a host.", min=0.01)] = 1.0,
    memory: Annotated[str, typer.Option(help="Memory limit of a host; its disk counts too.")] = "2 GiB",
    delay: Annotated[str, typer.Option(help="Delay between sites, one way.")] = "0 ms",
    jitter: Annotated[str, typer.Option(help="By how much the delay differs either way.")] = "0 ms",
    loss: Annotated[float, typer.Option(help="Share of packets lost between sites.", min=0, max=1)] = 0.0,
    name: Name = "rig",
) -> None:
    """Make sites and hosts; they stay until `penstock rig down`. Needs root."""
    from penstock.rig.rig import Rig

    letters = [chr(ord("a") + number) for number in range(sites)]
    rig = Rig(letters, name=name, persistent=True)
    how = {"delay_ms": duration_s(delay) * 1000, "jitter_ms": duration_s(jitter) * 1000, "loss": loss}
    size = {"cores": cores, "memory_mib": memory_mib(memory)}
    rig.up()
    try:
        for position, one in enumerate(letters):
            for other in letters[position + 1 :]:
                rig.link(one, other, **how)
            for number in range(1, hosts + 1):
                rig.host(f"{one}{number}", one, **size)  # type: ignore[arg-type]
    except BaseException:
        rig.down()
        raise
    _show(name)
    _console().print(f"take it down with `penstock rig down{'' if name == 'rig' else f' --name {name}'}`")


@app.command()
def status(name: Name = "rig") -> None:
    """Show the sites, hosts and links."""
    _show(name)


@app.command()
def cut(
    names: Annotated[list[str], typer.Argument(help="A host, a site, or two sites.")], name: Name = "rig"
) -> None:
    """Cut off a host, a site, or two sites from each other."""
    from penstock.rig.rig import Rig

    Rig.open(name).cut(*names)


@app.command()
def heal(
    names: Annotated[list[str], typer.Argument(help="A host, a site, or two sites.")], name: Name = "rig"
) -> None:
    """Undo a cut."""
    from penstock.rig.rig import Rig

    Rig.open(name).heal(*names)


@app.command()
def kill(hosts: Annotated[list[str], typer.Argument(help="Hosts.")], name: Name = "rig") -> None:
    """Cut the power of hosts; `start` switches them on again with a new disk."""
    from penstock.rig.rig import Rig

    rig = Rig.open(name)
    for host in hosts:
        rig.kill(host)


@app.command()
def start(hosts: Annotated[list[str], typer.Argument(help="Hosts.")], name: Name = "rig") -> None:
    """Switch hosts on."""
    from penstock.rig.rig import Rig

    rig = Rig.open(name)
    for host in hosts:
        rig.start(host)


@app.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    host: Annotated[str, typer.Argument(help="A host that is switched on.")],
    command: Annotated[list[str], typer.Argument(help="What to run on it.")],
    name: Name = "rig",
) -> None:
    """Run a command on a host, within its limits."""
    from penstock.rig.rig import Rig

    inside = Rig.open(name).get(host).command(command)
    try:
        os.execvp(inside[0], inside)
    except OSError as error:
        raise ConfigurationError(f"could not run {command[0]}: {error}") from error


@app.command()
def down(name: Name = "rig") -> None:
    """End everything in the rig and leave nothing behind, also where it crashed."""
    from penstock.rig.rig import Rig, sweep

    Rig(name=name, persistent=True).down()
    sweep()
    _console().print(f"rig {name} is down")


def _show(name: str) -> None:
    from penstock.rig.rig import Rig

    found = Rig.open(name).status()
    table = Table("host", "site", "address", "state", "cores", "memory", title=f"rig {name}")
    for host in found["hosts"]:
        table.add_row(
            host["name"],
            host["site"],
            host["address"],
            host["state"],
            "–" if host["cores"] is None else f"{host['cores']:g}",
            "–" if host["memory_mib"] is None else f"{host['memory_mib']} MiB",
        )
    console = _console()
    console.print(table)
    for link in found["links"]:
        one, other = link["between"]
        way = "cut" if link["cut"] else f"{link['delay_ms']:g} ms ± {link['jitter_ms']:g} ms"
        console.print(f"{one} – {other}: {way}, loss {link['loss']:.1%}")
    for service, code in found["services"].items():
        console.print(f"{service}: {'runs' if code is None else f'ended with {code}'}")
    console.print(f"limits: {found['limits']}")
