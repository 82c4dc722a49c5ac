"""Asking over HTTP: past any proxy, and what it raises where no whole answer comes."""

from __future__ import annotations

import http.client
import urllib.request

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Whoever is named is reached as named, whatever proxy the environment has."""
NO_ANSWER = (OSError, http.client.HTTPException)
"""Out of reach, too slow, refused, or cut off amid the answer, which is no `OSError`."""
