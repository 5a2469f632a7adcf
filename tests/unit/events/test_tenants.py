"""A tenant's name: what it may be, and what is said of one that it may not."""

import pytest

from tallymark.events.tenants import check


@pytest.mark.parametrize("name", ["main", "demo", "a", "0", "acme-eu_2", "x" * 63])
def test_plain_lowercase_names_are_tenants(name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize(
    "name", ["", "Acme", "-a", "_a", "a.b", "a b", "a/b", "a\n", "x" * 64, "ä", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_others_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a tenant: use 1 to 63 lowercase letters, digits, - and _"):
        check(name)


def test_of_an_endless_name_only_the_beginning_is_shown() -> None:
    with pytest.raises(ValueError, match=r"'A{80}'…") as told:
        check("A" * 1_000_000)
    assert len(str(told.value)) < 250
