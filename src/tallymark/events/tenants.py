"""Tenants: whose events these are. Everything with a name (meters, ids, dead letters) has it within its tenant."""

import re

MAIN = "main"
"""the operator's own, and whose an event is that names no tenant"""
DEMO = "demo"
"""the traffic of `tallymark up --demo`, apart from the user's own"""
MOST_TENANTS = 100

NAME_RULE = "[a-z0-9][a-z0-9_-]{0,62}"
_NAME = re.compile(NAME_RULE)
_SHOWN_CHARS = 80


def main_first(name: str) -> tuple[bool, str]:
    """The key to sort tenants by."""
    return name != MAIN, name


def check(name: str) -> str:
    """The name, if it can be a tenant's; raises ValueError with the rule if not."""
    if not isinstance(name, str):
        shown = repr(name)[:_SHOWN_CHARS]
        raise ValueError(f"{shown} cannot name a tenant: it is not a str but of type {type(name).__name__}")
    if _NAME.fullmatch(name):
        return name
    shown = repr(name[:_SHOWN_CHARS]) + ("…" if len(name) > _SHOWN_CHARS else "")
    raise ValueError(
        f"{shown} cannot name a tenant: use 1 to 63 lowercase letters, digits, - and _, beginning with a letter "
        "or digit"
    )
