"""Talking to a running Tallymark."""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from tallymark.client.transport import Answer, BadUrl, HttpTransport, NoAnswer, Request
from tallymark.commands.command import CommandFailed, WrongUsage
from tallymark.events import tenants

DEFAULT_URL = "http://127.0.0.1:8080"


class Away(CommandFailed):
    """The service does not answer now; it may in a moment."""


class ServiceRefused(CommandFailed):
    """The service answered, and not with success; `problem` is the problem document, if it sent one."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(refusal(answer))
        content = answer.json()
        self.problem: dict[str, Any] = content if isinstance(content, dict) else {}

    @property
    def code(self) -> str | None:
        return self.problem.get("code")


class ServiceBusy(ServiceRefused, Away):
    """It answered that it cannot now."""


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help=f"where Tallymark runs (TALLYMARK_URL, else {DEFAULT_URL})")


def add_tenant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", metavar="NAME", help="whose events and meters (TALLYMARK_TENANT, else main)")


def connect(arguments: argparse.Namespace, *, tenant: str | None = None) -> HttpTransport:
    """A connection to the service that the arguments or the environment name, for their tenant if they have one.

    Another `tenant` takes precedence; an empty one is none, whatever the environment says.
    """
    url = arguments.url or os.environ.get("TALLYMARK_URL") or DEFAULT_URL
    try:
        return HttpTransport(
            url, key=os.environ.get("TALLYMARK_KEY"), tenant=(_tenant(arguments) if tenant is None else tenant) or None
        )
    except BadUrl as error:
        raise WrongUsage(str(error)) from error


def _tenant(arguments: argparse.Namespace) -> str | None:
    """None for commands that are about all tenants."""
    return chosen_tenant({"--tenant": arguments.tenant}) if hasattr(arguments, "tenant") else None


def chosen_tenant(places: Mapping[str, str | None]) -> str | None:
    """The tenant in the first of these places that has one, else in TALLYMARK_TENANT; None if there is none."""
    for place, tenant in (*places.items(), ("TALLYMARK_TENANT", os.environ.get("TALLYMARK_TENANT") or None)):
        if tenant is not None:
            try:
                return tenants.check(tenant)
            except ValueError as error:
                raise WrongUsage(f"{place}: {error}") from None
    return None


def ask(
    transport: HttpTransport,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    timeout_s: float = 30.0,
    decode: Callable[[Answer], Any] = Answer.json,
) -> dict[str, Any]:
    """The answer's JSON object; anything but success is a CommandFailed that says what the service said."""
    headers = {"content-type": "application/json"} if body is not None else {}
    try:
        answer = transport.exchange(Request(method, path, body, headers), timeout_s=timeout_s)
    except NoAnswer as error:
        raise unreachable(error) from error
    if answer.status >= 400:
        raise (ServiceBusy if answer.worth_a_retry else ServiceRefused)(answer)
    if answer.status == 204:
        return {}
    content = decode(answer)
    if not isinstance(content, dict):
        raise CommandFailed(
            f"unexpected answer to {method} {transport.url}{path}; is this really Tallymark? Check --url"
        )
    return content


def unreachable(error: NoAnswer) -> CommandFailed:
    return Away(f"{error}; start it with `tallymark up`, or say where it runs with --url or TALLYMARK_URL")


def refusal(answer: Answer) -> str:
    """What a problem document says, in one line."""
    content = answer.json()
    if isinstance(content, dict) and "detail" in content:
        # After the first line comes the excerpt with its caret, which makes no sense on one line.
        said = str(content["detail"]).partition("\n")[0]
    else:
        said = answer.body[:200].decode(errors="replace").replace("\n", " ").strip()
    way_out = {401: "; set TALLYMARK_KEY", 403: "; the key in TALLYMARK_KEY does not allow this"}.get(answer.status, "")
    return f"{said or 'refused'} (HTTP {answer.status}){way_out}"
