"""Writes two pages of the reference: the service's API, from its OpenAPI document, and the metrics."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.controller.metrics import FAMILIES

NOTE = "<!-- Written by `python -m penstock.cli.references docs`; change the code, not this page. -->"
_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "yes or no"}
_TYPES |= {"object": "object"}


def api() -> str:
    """Every request the service answers, with what it takes and gives."""
    from penstock.api.app import create_app
    from penstock.api.runs import Runs

    with tempfile.TemporaryDirectory() as folder:
        document = create_app(Runs(Path(folder) / "runs")).openapi()
    parts = [
        "# API\n",
        f"{NOTE}\n",
        "`penstock serve runs` answers below `http://127.0.0.1:8765`. Every request needs the token in "
        "`runs/token`, as `Authorization: Bearer TOKEN`. `GET /api/v1/openapi.json` gives the OpenAPI "
        "document. "
        "What a run is doing is told as a [`Status`](recorded.md#status).\n",
        "An answer that is not 2xx has the reasons as texts under `errors`:\n",
        "| status | meaning |\n| --- | --- |",
    ]
    operations = list(_operations(document))
    wrong: dict[str, str] = {}
    for _, _, operation in operations:
        wrong |= {code: told["description"] for code, told in operation["responses"].items() if code >= "300"}
    parts += [f"| {code} | {meaning} |" for code, meaning in sorted(wrong.items())]
    parts.append("")
    for method, path, operation in operations:
        parts.append(f"## {method} {path}\n\n{' '.join(operation['description'].split())}\n")
        parts += _parameters(operation)
        parts += _bodies(operation)
    parts.append("## What is sent and answered\n")
    for name, schema in document["components"]["schemas"].items():
        parts += _schema(name, schema)
    return "\n".join(parts).rstrip() + "\n"


def metrics() -> str:
    """Every metric, with whether it only grows and what it is."""
    return "\n".join(
        [
            "# Metrics\n",
            f"{NOTE}\n",
            "For Prometheus: `penstock.attach(spark, metrics=9464)` in a job of your own, "
            "`penstock metrics RUN --serve 9464` for a run. Both answer only with the token of the file that "
            "`PENSTOCK_METRICS_TOKEN` names, or else `metrics.token` in the user's own folder for Penstock "
            "(`penstock metrics RUN --serve` says where). `penstock metrics RUN` prints all that the journal "
            "has as OpenMetrics text, each value with its time.\n",
            "```yaml\nscrape_configs:\n  - job_name: penstock\n    authorization:\n"
            "      credentials_file: /home/me/.cache/penstock/metrics.token\n    static_configs:\n"
            "      - targets: [127.0.0.1:9464]\n```\n",
            "| name | kind | meaning |\n| --- | --- | --- |",
            *(f"| `{name}` | {family.kind} | {family.help} |" for name, family in FAMILIES.items()),
            "",
        ]
    )


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _parameters(operation: Mapping[str, Any]) -> list[str]:
    own = [one for one in operation.get("parameters", ()) if one["name"] != "name"]
    if not own:
        return []
    lines = ["| parameter | kind |\n| --- | --- |"]
    return [*lines, *(f"| `{one['name']}` | {_type(one['schema'])} |" for one in own), ""]


def _bodies(operation: Mapping[str, Any]) -> list[str]:
    lines = []
    sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if sent is not None:
        lines.append(f"Sent: {_type(sent)}.")
    for code, told in operation["responses"].items():
        given = told.get("content", {}).get("application/json", {}).get("schema")
        if code < "300" and given:
            lines.append(f"Answer ({code}): {_type(given)}.")
    return [" ".join(lines), ""] if lines else []


def _schema(name: str, schema: Mapping[str, Any]) -> list[str]:
    needed = schema.get("required", ())
    lines = [
        f"### {name}\n",
        f"{schema.get('description', '')}\n",
        "| field | kind | meaning |\n| --- | --- | --- |",
    ]
    for field, told in schema["properties"].items():
        kind = _type(told) + ("" if field in needed else ", or left out")
        meaning = " ".join(told.get("description", "").split()).replace("|", "\\|")
        lines.append(f"| `{field}` | {kind} | {meaning} |")
    return [*lines, ""]


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    choices = re.fullmatch(r"\^\((.+)\)\$", schema.get("pattern", ""))
    if choices:
        return "one of " + ", ".join(f"`{value}`" for value in choices[1].split("|"))
    return _TYPES.get(str(schema.get("type")), "anything")
