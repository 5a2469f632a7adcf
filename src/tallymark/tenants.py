"""Which tenant a request belongs to: the one function that says so, for events and for questions."""

from urllib.parse import parse_qsl

from tallymark.dashboard import PAGES
from tallymark.events.tenants import MAIN, check
from tallymark.http import Problem, Scope

HEADER = "tallymark-tenant"
PARAMETER = "tenant"
_PAGE_FOLDERS = {"static", *(page.split("/")[1] for page in PAGES)}


def tenant_of(scope: Scope) -> str:
    """The tenant in the header `Tallymark-Tenant` or in `?tenant=`, else `main`; raises Problem for anything else."""
    if not scope.query_string and HEADER not in scope.headers:
        return MAIN
    named = {
        *(_checked("header Tallymark-Tenant", name) for name in _headers(scope)),
        *(_checked("?tenant=", name) for name in _parameters(scope)),
    }
    if len(named) > 1:
        raise Problem(
            400,
            "bad_tenant",
            f"the request names {len(named)} tenants: {', '.join(sorted(named))}; name one, in the header "
            "Tallymark-Tenant or in ?tenant=",
        )
    return named.pop() if named else MAIN


def is_page(path: str) -> bool:
    """Whether this is the page or one of its files. Those are everybody's, and the page itself reads its `?tenant=`.

    A link with a wrong one leads to a page that says so, not to a problem document.
    """
    return path.removeprefix("/").partition("/")[0] in _PAGE_FOLDERS


def _headers(scope: Scope) -> list[str]:
    if HEADER not in scope.headers:
        return []
    # The server lists only values that are printable ASCII, and gives None for a first one that is not: that must not
    # count as absent. It has no word for one that is not the first; the readable one before it is taken.
    if scope.headers.get(HEADER) is None:
        raise Problem(400, "bad_tenant", "header Tallymark-Tenant may contain only printable ASCII")
    return [value.strip() for name, value in scope.headers.items() if name == HEADER]


def _parameters(scope: Scope) -> list[str]:
    given = parse_qsl(scope.query_string, keep_blank_values=True, errors="replace")
    return [value for name, value in given if name == PARAMETER]


def _checked(place: str, name: str) -> str:
    try:
        return check(name)
    except ValueError as error:
        raise Problem(400, "bad_tenant", f"{place}: {error}") from None
