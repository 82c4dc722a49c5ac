"""The page of every run of a service: its files for everybody, what a run holds with the token alone."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Request
from fastapi.responses import Response, StreamingResponse

from penstock.api.runs import Runs
from penstock.page.answers import Answers
from penstock.page.files import HEADERS, NAME, own_file, packed
from penstock.page.live import ALIVE, ALIVE_S, LiveFeed
from penstock.page.shown import Shown

LOOK_S = 0.25
"""How often a watching page's stream looks for something new; a look costs microseconds."""
RUN = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_PUBLIC = re.compile(rf"/(page/{RUN}/)?({NAME.pattern})?")
ROUTER = APIRouter(include_in_schema=False)


def is_public(method: str, path: str) -> bool:
    """Whether a request is for one of the page's own files, which tell nothing of any run."""
    return method == "GET" and _PUBLIC.fullmatch(path) is not None


class Pages:
    """The answers of every run's page, made when it is first looked at."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._answers: dict[str, Answers] = {}
        self._lock = threading.Lock()

    def answers(self, name: str) -> Answers:
        """The answers of one run's page; HTTPException where there is no such run, or nothing of it yet."""
        with self._lock:
            known = self._answers.get(name)
            if known is not None:
                return known
            place = self._runs.find(name)
            if place is None:
                raise HTTPException(404, [f"there is no run {name}"])
            if place.plan().journal is not None:
                raise HTTPException(409, ["its journal is on a server; the page reads files: use the API"])
            if not place.journal.exists():
                raise HTTPException(409, ["nothing is known of it yet"])
            made = self._answers[name] = Answers([Shown(place.root)])
            made.start()
            return made

    def close(self) -> None:
        """Let every journal go."""
        with self._lock:
            for answers in self._answers.values():
                answers.stop()
            self._answers.clear()


@asynccontextmanager
async def closing(app: FastAPI) -> AsyncIterator[None]:
    """Follows no run any more once the application ends."""
    yield
    app.state.pages.close()


def _answers(request: Request, name: Annotated[str, Path(pattern=f"^{RUN}$")]) -> Answers:
    found: Answers = request.app.state.pages.answers(name)
    return found


Asked = Annotated[Answers, Depends(_answers)]


@ROUTER.get("/")
def every_run(request: Request) -> Response:
    """The list of runs."""
    return _file(request, "runs.html")


@ROUTER.get("/page/{name}/")
def page(request: Request, name: str) -> Response:
    """One run's page."""
    return _file(request, "index.html")


@ROUTER.get("/page/{name}/data/live")
async def live(answers: Asked, after: int = 0) -> StreamingResponse:
    """What is new in a run, as it comes."""
    headers = {**HEADERS, "Connection": "close"}
    return StreamingResponse(_events(answers.feed, after), media_type="text/event-stream", headers=headers)


@ROUTER.get("/page/{name}/data/{what}")
def asked(request: Request, answers: Asked, what: str) -> Response:
    """What the page asks for."""
    try:
        data = answers.get(what, parse_qs(request.url.query))
    except (KeyError, IndexError, ValueError) as error:
        raise HTTPException(404, [f"there is no such thing: {error}"]) from None
    return _answer(request, data, "application/json")


@ROUTER.post("/page/{name}/data/{what}")
def told(request: Request, answers: Asked, what: str, said: dict[str, Any]) -> Response:
    """What the page has a run do."""
    try:
        return _answer(request, answers.post(what, said), "application/json")
    except (KeyError, ValueError, TypeError) as error:
        raise HTTPException(422, [f"there is no such order: {error}"]) from None


@ROUTER.get("/{file:path}")
def file_of_the_list(request: Request, file: str) -> Response:
    """A file of the list of runs, or of one run's page: they are the same."""
    return _file(request, re.sub(rf"^page/{RUN}/", "", file))


def _file(request: Request, name: str) -> Response:
    try:
        return _answer(request, *own_file(name))
    except KeyError:
        raise HTTPException(404, [f"there is no file {name}"]) from None


def _answer(request: Request, data: bytes, kind: str) -> Response:
    data, how = packed(data, request.headers.get("accept-encoding", ""))
    return Response(data, media_type=kind, headers={**HEADERS, **how})


async def _events(feed: LiveFeed | None, after: int) -> AsyncIterator[bytes]:
    place, quiet_s = 0, 0.0
    while feed is not None:
        place, fresh, over = feed.news(place, after)
        for event in fresh:
            yield event
        if over:
            return
        quiet_s = 0.0 if fresh else quiet_s + LOOK_S
        if quiet_s >= ALIVE_S:
            quiet_s = 0.0
            yield ALIVE
        await asyncio.sleep(LOOK_S)
