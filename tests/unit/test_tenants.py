"""Which tenant a request belongs to: the header's, the parameter's, or `main`."""

from types import SimpleNamespace
from typing import Any

import pytest

from tallymark.http import Problem
from tallymark.tenants import tenant_of


class Headers:
    """Like granian's: names in lower case, several of one name, and no value that is not printable ASCII.

    `tests/unit/collector/test_tenants.py` asks the real one.
    """

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._pairs = pairs

    def __contains__(self, name: str) -> bool:
        return any(name == each for each, _ in self._pairs)

    def get(self, name: str) -> str | None:
        """The first of this name, None also if that cannot be read."""
        first = next((value for each, value in self._pairs if each == name), None)
        return first if first is not None and first.isascii() else None

    def items(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self._pairs if value.isascii()]


def asked(query: str = "", *headers: str) -> str:
    pairs = [("host", "localhost"), *(("tallymark-tenant", each) for each in headers)]
    scope: Any = SimpleNamespace(method="POST", path="/v1/events", query_string=query, headers=Headers(*pairs))
    return tenant_of(scope)


def test_without_a_word_it_is_main() -> None:
    assert asked() == "main"
    assert asked("wait=applied&timeout=3") == "main"


def test_the_header_or_the_parameter_names_it() -> None:
    assert asked("", "acme") == "acme"
    assert asked("", " acme ") == "acme"
    assert asked("tenant=acme") == "acme"
    assert asked("wait=applied&tenant=acme") == "acme"
    assert asked("t%65nant=a%63me") == "acme", "however it is encoded"


def test_both_may_say_the_same_but_not_something_else() -> None:
    assert asked("tenant=acme", "acme") == "acme"
    assert asked("tenant=acme&tenant=acme") == "acme"
    for several in (("tenant=acme", "globex"), ("", "acme", "globex"), ("tenant=acme&tenant=globex",)):
        with pytest.raises(Problem, match="the request names 2 tenants: acme, globex; name one") as told:
            asked(*several)
        assert (told.value.status, told.value.code) == (400, "bad_tenant")


@pytest.mark.parametrize("name", ["", "Acme", "a%00b", "%ff", "x" * 64, "a,b"])
def test_a_bad_name_is_never_taken_for_none(name: str) -> None:
    with pytest.raises(Problem, match=r"\?tenant=: .* cannot name a tenant"):
        asked(f"tenant={name}")


@pytest.mark.parametrize("name", ["", "Acme"])
def test_nor_is_a_bad_header(name: str) -> None:
    with pytest.raises(Problem, match=r"header Tallymark-Tenant: .* cannot name a tenant") as told:
        asked("", name)
    assert told.value.code == "bad_tenant"


@pytest.mark.parametrize("headers", [["démo"], ["démo", "main"], ["démo", "démo"]])
def test_a_header_that_cannot_be_read_is_refused_even_beside_one_that_can(headers: list[str]) -> None:
    with pytest.raises(Problem, match=r"^header Tallymark-Tenant may contain only printable ASCII$") as told:
        asked("", *headers)
    assert (told.value.status, told.value.code) == (400, "bad_tenant")


def test_what_is_wrong_is_blamed_on_the_place_where_it_stands() -> None:
    with pytest.raises(Problem, match=r"^\?tenant=: 'DEMO' cannot name a tenant"):
        asked("tenant=DEMO", "main")
    with pytest.raises(Problem, match=r"^header Tallymark-Tenant: 'DEMO' cannot name a tenant"):
        asked("tenant=main", "DEMO")
