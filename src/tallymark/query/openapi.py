"""`/openapi.json`, built from the table of routes and the table of parameters."""

from collections.abc import Iterable
from typing import Any

from tallymark import __version__
from tallymark.events.tenants import NAME_RULE
from tallymark.query.formats import MEDIA_TYPES
from tallymark.query.parameters import PARAMETERS
from tallymark.query.routes import Route
from tallymark.tenants import PARAMETER

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_PATH_PARTS = {
    "name": ("name of a meter, table, saved query or board", "events"),
    "id": ("number of a dead letter", "17"),
    "key": ("key of a row", "A"),
}
OF_A_TENANT = (
    "/v1/meters",
    "/v1/query",
    "/v1/queries",
    "/v1/boards",
    "/v1/tables",
    "/v1/dlq",
    "/v1/events",
    "/v1/tail",
)
"""paths whose answers are those of one tenant; the others take `?tenant=` too, and it changes nothing"""
_ERRORS = {
    "400": "wrong parameters",
    "404": "no such meter, tenant, letter or path",
    "503": "cannot answer now; see Retry-After",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tallymark",
            "version": __version__,
            "description": "Meters and questions. Events are sent to POST /v1/events of the collector.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": {"Problem": _problem()}},
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": _identifier(route),
        "parameters": [
            *map(_path_parameter, route.names),
            *(_key_parameter(*key, is_needed=key[0] in route.needed) for key in route.keys.items()),
            *(_query_parameter(name) for name in route.parameters),
            *(_tenant_parameters() if route.path.startswith(OF_A_TENANT) else ()),
        ],
        "responses": {
            "200": {"description": "the answer", "content": {kind: {} for kind in _kinds(route)}},
            **({"304": {"description": "as the ETag in If-None-Match has it"}} if _has_forms(route) else {}),
            **{code: {"description": why, "content": _PROBLEM} for code, why in _ERRORS.items()},
        },
    }
    if route.filters:
        operation["parameters"].append(_filter_parameter())
    if route.body:
        operation["requestBody"] = {
            "required": True,
            "description": route.body,
            "content": {kind: {"schema": {"type": name}} for kind, name in route.body_types.items()},
        }
    return operation


def _has_forms(route: Route) -> bool:
    return "consistency" in route.parameters


def _kinds(route: Route) -> Iterable[str]:
    return MEDIA_TYPES.values() if _has_forms(route) else (route.content,)


def _identifier(route: Route) -> str:
    words = [part.strip("{}").replace(".", "_") for part in route.path.split("/") if part]
    return "_".join([route.method.lower(), *(words or ["dashboard"])])


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _PATH_PARTS[name][0],
        "schema": {"type": "string"},
        "example": _PATH_PARTS[name][1],
    }


def _key_parameter(name: str, meaning: str, *, is_needed: bool) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "name": name,
        "in": "query",
        "required": is_needed,
        "description": meaning,
        "schema": text if is_needed else {"type": "array", "items": text},
    }


def _query_parameter(name: str) -> dict[str, Any]:
    parameter = PARAMETERS[name]
    text: dict[str, Any] = {"type": "string"}
    if parameter.choices:
        text["enum"] = list(parameter.choices)
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": parameter.meaning,
        "schema": {"type": "array", "items": text} if parameter.repeats else text,
        "example": [parameter.example] if parameter.repeats else parameter.example,
    }


def _tenant_parameters() -> list[dict[str, Any]]:
    """Either will do; both are fine as long as they agree."""
    parameter = {**_query_parameter(PARAMETER), "schema": {"type": "string", "pattern": f"^{NAME_RULE}$"}}
    return [parameter, {**parameter, "name": "Tallymark-Tenant", "in": "header"}]


def _filter_parameter() -> dict[str, Any]:
    return {
        "name": "label",
        "in": "query",
        "required": False,
        "description": "filters: KEY=value, or label.KEY=value for keys called like a parameter; repeat for `or`",
        "style": "form",
        "explode": True,
        "schema": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    }


def _problem() -> dict[str, Any]:
    text, number = {"type": "string"}, {"type": "integer"}
    return {
        "type": "object",
        "description": "RFC 9457",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {"type": text, "title": text, "status": number, "code": text, "detail": text},
    }
