"""Which run a request is about."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from penstock.api.runs import Runs
from penstock.runs.folder import RunFolder

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


def _runs(request: Request) -> Runs:
    found: Runs = request.app.state.runs
    return found


Served = Annotated[Runs, Depends(_runs)]


def _place(runs: Served, name: Name) -> RunFolder:
    found = runs.find(name)
    if found is None:
        raise HTTPException(404, [f"there is no run {name}"])
    return found


Place = Annotated[RunFolder, Depends(_place)]
