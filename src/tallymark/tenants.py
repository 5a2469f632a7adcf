"""Which tenant a request belongs to: the one function that says so, for events and for questions."""

from urllib.parse import parse_qsl

from tallymark.events.tenants import MAIN, check
from tallymark.http import Problem, Scope

HEADER = "tallymark-tenant"
PARAMETER = "tenant"


def tenant_of(scope: Scope) -> str:
    """The tenant in the header `Tallymark-Tenant` or in `?tenant=`, else `main`; raises Problem for anything else."""
    if not scope.query_string and HEADER not in scope.headers:
        return MAIN
    return _one(_headers(scope), _parameters(scope))


def _headers(scope: Scope) -> list[str]:
    if HEADER not in scope.headers:
        return []
    # The server leaves out a value that is not printable ASCII; such a header must not count as absent.
    return [value.strip() for name, value in scope.headers.items() if name == HEADER] or [""]


def _parameters(scope: Scope) -> list[str]:
    given = parse_qsl(scope.query_string, keep_blank_values=True, errors="replace")
    return [value for name, value in given if name == PARAMETER]


def _one(headers: list[str], parameters: list[str]) -> str:
    try:
        named = {check(name) for name in (*headers, *parameters)}
    except ValueError as error:
        place = "header Tallymark-Tenant" if headers else "?tenant="
        raise Problem(400, "bad_tenant", f"{place}: {error}") from None
    if len(named) > 1:
        raise Problem(
            400,
            "bad_tenant",
            f"the request names {len(named)} tenants: {', '.join(sorted(named))}; name one, in the header "
            "Tallymark-Tenant or in ?tenant=",
        )
    return named.pop() if named else MAIN
