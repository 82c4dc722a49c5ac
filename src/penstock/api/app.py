"""The HTTP side of a service: every request needs the token, every change is validated, and nothing waits."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from decimal import Decimal
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from penstock.api import answers, budgets, pages, streams
from penstock.api.places import Place, Served
from penstock.api.runs import Runs
from penstock.controller.billing import bill_of
from penstock.errors import ClusterError, PenstockError, TopologyError
from penstock.machine.processes import log_tail
from penstock.page.live import ALIVE, ALIVE_S
from penstock.plain import plain
from penstock.runs import commands, telling
from penstock.runs.applying import StaleError, applied, previewed
from penstock.runs.assembly import parse
from penstock.runs.coordinating import Coordinator
from penstock.runs.folder import RunFolder
from penstock.spark.drivers import Drivers
from penstock.topology.model import Topology
from penstock.topology.setting import with_values

LARGEST = 1 << 20
"""Bytes a request may have."""
LOOK_S = 0.5
"""How often a stream of events looks for something new."""
ROWS = 1000
TABLES = ("tick", "observation", "action", "budget", "notice", "charge")

WRONG: dict[int | str, dict[str, Any]] = {
    401: {"model": answers.Mistakes, "description": "No token, or a wrong one."},
    404: {"model": answers.Mistakes, "description": "There is no such run."},
    409: {"model": answers.Mistakes, "description": "It cannot be done now."},
    413: {"model": answers.Mistakes, "description": "The request is too large."},
    422: {"model": answers.Mistakes, "description": "The request has mistakes: all of them are told."},
    503: {"model": answers.Mistakes, "description": "The run's controller does not answer."},
}


ROUTER = APIRouter(prefix="/api/v1")


def create_app(runs: Runs) -> FastAPI:
    """The application that serves these runs."""
    app = FastAPI(
        title="Penstock",
        version=version("penstock"),
        responses=WRONG,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_living,
    )
    app.state.runs, app.state.token = runs, runs.token
    app.state.pages = pages.Pages(runs)
    app.state.coordinator = Coordinator(runs.root)
    _translate_errors(app)
    _guard(app)
    app.include_router(ROUTER)
    app.include_router(streams.ROUTER)
    app.include_router(budgets.ROUTER)
    app.include_router(pages.ROUTER)  # after the API's: it has a place for every address
    return app


@asynccontextmanager
async def _living(app: FastAPI) -> AsyncIterator[None]:
    """Budgets are coordinated while the application lives, and runs are followed by nobody after it."""
    coordinator: Coordinator = app.state.coordinator
    coordinator.start()
    async with pages.closing(app):
        yield
    coordinator.stop()


@ROUTER.get("/openapi.json", include_in_schema=False)
def document(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@ROUTER.get("/runs")
def list_runs(runs: Served) -> list[answers.RunSummary]:
    """Every run of this service."""
    return [_summary(runs, name, place) for name, place in runs]


@ROUTER.post("/runs", status_code=202)
def start_run(runs: Served, wish: answers.NewRun) -> answers.Mistakes:
    """Start a run; it goes on when the service ends."""
    parse(wish.topology)
    try:
        runs.start(wish.name, wish.topology, wish.code, wish.duration_s, wish.site)
    except PenstockError as error:
        raise HTTPException(409, [str(error)]) from None
    return answers.Mistakes(errors=[])


@ROUTER.get("/runs/{name}")
def status(runs: Served, place: Place) -> Response:
    """What a run is doing: units, hosts, bill, last decisions, news."""
    text = runs.status_text(place)
    if text is None:
        raise HTTPException(409, ["nothing is known of it yet"])
    return Response(text, media_type="application/json")


@ROUTER.get("/runs/{name}/topology")
def topology(place: Place) -> answers.Version:
    """The version of the topology that runs, and the one before."""
    plan = place.plan()
    return answers.Version(
        revision=plan.revision,
        text=plan.topology,
        before=plan.before,
        places=dict(plan.places),
        site=plan.site,
        handed={unit: answers.Left(**asdict(note)) for unit, note in plan.handed.items()},
    )


@ROUTER.post("/runs/{name}/preview")
def look_ahead(place: Place, wish: answers.Wish) -> answers.Change:
    """What a change would do; nothing is changed."""
    revision, topology = _wished(place, wish)
    found = previewed(place, topology)
    return _change(revision, found)


@ROUTER.post("/runs/{name}/apply")
def apply(place: Place, wish: answers.Wish) -> answers.Change:
    """Go on with another version of the topology while it runs."""
    present, topology = _wished(place, wish)
    # Values are set in the version that was read: where another one runs by now, they are stale.
    written_for = present if wish.revision is None and wish.topology is None else wish.revision
    revision, found = applied(
        place,
        topology,
        reason=wish.reason,
        revision=written_for,
        by=answers.over_the_api(wish.by),
        give_up_state=wish.give_up_state,
        rehearse=wish.rehearse,
    )
    return _change(revision, found)


@ROUTER.post("/runs/{name}/commands", status_code=202)
def tell(place: Place, told: answers.Told) -> answers.Taken:
    """Tell its controller something: pause, advise, resume, stop, drain, move, move-unit, restart, undo."""
    return answers.Taken(errors=[], id=telling.told(place, _command(told)).id)


@ROUTER.get("/runs/{name}/undo")
def look_back(place: Place) -> answers.Change:
    """What taking the last change back would do; nothing is changed."""
    return _change(*telling.taken_back(place))


@ROUTER.get("/runs/{name}/journal/{table}")
def rows(
    place: Place,
    table: Annotated[str, Path(pattern=f"^({'|'.join(TABLES)})$")],
    since_s: Annotated[float, Query(ge=0)] = 0.0,
    limit: Annotated[int, Query(ge=1, le=ROWS)] = ROWS,
    until_s: Annotated[float | None, Query(ge=0)] = None,
) -> answers.Rows:
    """Observations, actions with their reasons, budgets, charges and news, the newest of those times."""
    with place.opened() as journal:
        found = journal.latest(table, limit, since_s, until_s)
    return answers.Rows(rows=[_plain(row) for row in found])


@ROUTER.get("/runs/{name}/log")
def log(
    place: Place,
    unit: Annotated[str | None, Query(max_length=200)] = None,
    lines: Annotated[int, Query(ge=1, le=ROWS)] = 50,
) -> answers.Log:
    """The end of what the run's controller wrote, or the driver of one of its units."""
    file = place.log
    if unit is not None:
        if unit not in place.plan().read_topology().unit_by_name:
            raise HTTPException(404, [f"the run has no unit {unit}"])
        file = Drivers.log_in(place.units, unit)
    return answers.Log(lines=[line.strip() for line in log_tail(file, lines).splitlines()])


@ROUTER.get("/runs/{name}/bill")
def bill(place: Place, lines: bool = False) -> answers.Bill:
    """Every lease, and what they have cost so far; with `lines` each hour of them, too."""
    topology = place.plan().read_topology()
    with place.opened() as journal:
        charges, leases = journal.charges(), journal.rows("lease")
        by_line = plain(bill_of(journal, topology)) if lines else {}
    return answers.Bill(
        total=str(sum((charge.amount for charge in charges), Decimal(0))),
        currency=next((site.currency for site in topology.sites if site.currency), ""),
        leases=[_plain(row) for row in leases],
        **by_line,
    )


@ROUTER.get("/runs/{name}/events", response_class=StreamingResponse)
def events(runs: Served, place: Place) -> StreamingResponse:
    """The run's status whenever it changes, as server-sent events, until the run is over or interrupted."""
    return StreamingResponse(_events(runs, place), media_type="text/event-stream")


async def _events(runs: Runs, place: RunFolder, alive_s: float = ALIVE_S) -> AsyncIterator[str]:
    last, quiet_s = None, 0.0
    while True:
        text = runs.status_text(place)
        if text is not None and text != last:
            last, quiet_s = text, 0.0
            yield f"event: status\ndata: {' '.join(text.split())}\n\n"
        if place.result() is not None or not place.running():
            yield "event: end\ndata: {}\n\n"
            return
        if quiet_s >= alive_s:
            quiet_s = 0.0
            yield ALIVE.decode()
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S


def _command(told: answers.Told) -> commands.Command:
    by = answers.over_the_api(told.by)
    return commands.Command(
        told.kind,
        told.reason,
        told.subject,
        by,
        revision=told.revision,
        to=told.to,
        give_up_state=told.give_up_state,
    )


def _wished(place: RunFolder, wish: answers.Wish) -> tuple[int, Topology]:
    """The version that runs, and the topology somebody asks for; every mistake in it is told."""
    plan = place.plan()
    topology = plan.read_topology() if wish.topology is None else parse(wish.topology)
    return plan.revision, parse(with_values(topology, wish.set)) if wish.set else topology


def _summary(runs: Runs, name: str, place: RunFolder) -> answers.RunSummary:
    try:
        return _read_summary(runs, name, place)
    except PenstockError as error:  # one that is damaged, or of a later version, hides no other
        return answers.RunSummary(name=name, topology="", revision=0, phase="unreadable", asks=[str(error)])


def _read_summary(runs: Runs, name: str, place: RunFolder) -> answers.RunSummary:
    plan, status = place.plan(), place.status()
    if place.result() is not None:
        phase = "ended"
    elif runs.is_running(name, place):
        phase = status.phase if status is not None else "starting"
    else:
        phase = "interrupted"
    bill = None if status is None else status.bill
    topology = plan.read_topology().name
    return answers.RunSummary(
        name=name,
        topology=topology,
        revision=plan.revision,
        phase=phase,
        bill=bill,
        asks=[] if status is None else list(status.asks),
        site=plan.site,
        hosts=0 if status is None else len(status.hosts),
    )


def _change(revision: int, found: Any) -> answers.Change:
    return answers.Change(
        revision=revision,
        changes=[str(change) for change in found.changes],
        restarts=list(found.restarts),
        starts=list(found.starts),
        stops=list(found.stops),
        untouched=list(found.untouched),
        refused=list(found.refused),
        renewals=list(found.renewals),
        given_up=list(found.given_up),
        costs=list(found.costs),
        drains=list(found.drains),
        because=list(found.because),
    )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("id", "run")}


def _translate_errors(app: FastAPI) -> None:
    """Every error is a list of words under `errors`, and no request ends in a traceback."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        told = [
            ".".join(str(part) for part in mistake["loc"]) + ": " + str(mistake["msg"])
            for mistake in error.errors()
        ]
        return JSONResponse({"errors": told}, 422)

    @app.exception_handler(AnyHTTPException)
    async def refused(_: Request, error: AnyHTTPException) -> JSONResponse:
        detail: Any = error.detail
        told = detail if isinstance(detail, list) else [str(detail)]
        return JSONResponse({"errors": told}, error.status_code, error.headers)

    @app.exception_handler(PenstockError)
    async def failed(_: Request, error: PenstockError) -> JSONResponse:
        if isinstance(error, TopologyError):
            return JSONResponse({"errors": [str(mistake) for mistake in error.mistakes]}, 422)
        code = 503 if isinstance(error, ClusterError) and not isinstance(error, StaleError) else 409
        return JSONResponse({"errors": [str(error)]}, code)


def _guard(app: FastAPI) -> None:
    """Before anything of a request is read: who it is from, and how large it is."""
    wanted = f"Bearer {app.state.token}".encode()

    @app.middleware("http")
    async def guarded(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if pages.is_public(request.method, request.url.path):
            return await call_next(request)
        given = request.headers.get("authorization", "").encode()
        if not secrets.compare_digest(given, wanted):
            told = {"errors": ["this needs the service's token"]}
            return JSONResponse(told, 401, {"WWW-Authenticate": "Bearer"})
        length = request.headers.get("content-length", "0")
        chunked = "chunked" in request.headers.get("transfer-encoding", "")
        if chunked or not length.isdigit() or int(length) > LARGEST:
            return JSONResponse({"errors": [f"a request has at most {LARGEST} bytes, told beforehand"]}, 413)
        return await call_next(request)
