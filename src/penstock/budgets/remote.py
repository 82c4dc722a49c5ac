"""Cost functions of others, asked by HTTP: the black boxes of paper 004 (Section 4.3).

One request asks for one budget: `POST url` with `{"latency_s": 1.5}`, answered by `{"cost": 12.0}`, or by a
cost of null where the budget cannot be kept. Requests time out and are tried again; answers are remembered
until `refresh`; every request sent is counted, because some providers charge for it.
"""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.request
from typing import Any, ClassVar

import numpy as np

from penstock.budgets.costs import CostFunction, FloatArray, UnansweredError
from penstock.errors import ConfigurationError, told
from penstock.quantities import shown

LARGEST_ANSWER = 64 * 1024
"""Bytes of one answer that are read."""
LARGEST_COST = 1e15
"""Costs beyond this are no costs; sums of them would not be finite."""
LONGEST_REASON = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A cost function answers where it was asked: whoever is sent elsewhere is told so."""

    def redirect_request(self, *arguments: Any, **keywords: Any) -> None:
        """Follow nothing; urllib then raises the redirection as an HTTPError."""


_OPENER = urllib.request.build_opener(_NoRedirect)


class RemoteCost(CostFunction):
    """A cost function behind a URL; blocking, safe to ask again."""

    local: ClassVar[bool] = False
    known: ClassVar[bool] = False
    stepped: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 2.0,
        retries: int = 2,
        wait_s: float = 0.1,
        fee_per_call: float = 0.0,
        token: str | None = None,
    ) -> None:
        """`token` is shown to the provider with every request, where it wants one."""
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"a remote cost function needs a URL beginning with http, got {url!r}")
        if not timeout_s > 0 or retries < 0 or wait_s < 0 or not fee_per_call >= 0:
            raise ConfigurationError(
                f"{url}: expected timeout_s above 0, retries, wait_s and fee_per_call not below 0, got "
                f"{timeout_s!r}, {retries!r}, {wait_s!r} and {fee_per_call!r}"
            )
        self.url = url
        self.fee_per_call = fee_per_call
        self._sent = 0
        self._timeout_s = timeout_s
        self._retries = retries
        self._wait_s = wait_s
        self._answers: dict[float, float] = {}
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __repr__(self) -> str:
        return f"RemoteCost({self.url!r})"

    @property
    def requests(self) -> int:
        """Requests sent so far, failed ones too."""
        return self._sent

    def refresh(self) -> None:
        """Forget the answers: the provider's prices or load may have changed."""
        self._answers.clear()

    def costs(self, latencies_s: FloatArray) -> FloatArray:
        """The provider's answers, one request for each budget not asked for before."""
        return np.array([self._answer(float(latency_s)) for latency_s in latencies_s])

    def _answer(self, latency_s: float) -> float:
        if latency_s not in self._answers:
            self._answers[latency_s] = self._ask(latency_s)
        return self._answers[latency_s]

    def _ask(self, latency_s: float) -> float:
        reason = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(self._wait_s * attempt)
            self._sent += 1
            try:
                return self._request(latency_s)
            except (OSError, ValueError, http.client.HTTPException, RecursionError) as error:
                # URLError and timeouts are OSErrors; an answer that is no JSON is a ValueError, one nested
                # without end a RecursionError, and one that is no HTTP or is cut off an HTTPException.
                reason = told(f"{type(error).__name__}: {error}"[:LONGEST_REASON])
        tries = f"{self._retries + 1} tries" if self._retries else "one try"
        raise UnansweredError("?", f"{self.url} at {latency_s:g} s, {tries}: {reason}")

    def _request(self, latency_s: float) -> float:
        request = urllib.request.Request(
            self.url,
            data=json.dumps({"latency_s": latency_s}).encode(),
            headers=self._headers,
        )
        with _OPENER.open(request, timeout=self._timeout_s) as answer:
            content = self._content(answer, time.monotonic() + self._timeout_s)
        found = json.loads(content)
        if not isinstance(found, dict) or "cost" not in found:
            raise ValueError(f'expected {{"cost": number or null}}, got {str(found)[:80]!r}')
        cost = found["cost"]
        if cost is None:
            return math.inf
        if isinstance(cost, bool) or not isinstance(cost, (int, float)):
            raise ValueError(f"expected a number or null as the cost, got {shown(cost)}")
        if not 0 <= cost <= LARGEST_COST:  # NaN is not, either
            raise ValueError(f"expected a cost from 0 to {LARGEST_COST:g}, got {shown(cost)}")
        return float(cost)

    def _content(self, answer: Any, until_s: float) -> bytes:
        """The answer's bytes; ValueError for one that does not end, TimeoutError for one that drips."""
        content = b""
        while part := answer.read1(LARGEST_ANSWER + 1):
            content += part
            if len(content) > LARGEST_ANSWER:
                raise ValueError(f"expected an answer of at most {LARGEST_ANSWER} bytes")
            if time.monotonic() > until_s:
                raise TimeoutError(f"no whole answer within {self._timeout_s:g} s")
        return content
