"""`tallymark agent`: this machine's figures and its applications' metrics, every second."""

import argparse
import importlib.util
import os
import re
import socket
import time
from typing import Any

from tallymark.commands.command import Command, CommandFailed, WrongUsage
from tallymark.commands.configuration import add_settings, read_settings
from tallymark.commands.output import print_json, print_table
from tallymark.commands.progress import Progress
from tallymark.commands.service import DEFAULT_URL, add_tenant, add_url, chosen_tenant
from tallymark.role import file_stem
from tallymark.settings import AgentSettings, Settings

MAX_SERVER_CHARS = 128
_EVERY = re.compile(r"([1-9][0-9]{0,5})(s|m)?")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser)
    add_tenant(parser)
    parser.add_argument("--server", metavar="NAME", help="name of this machine in the metrics (its host name)")
    parser.add_argument(
        "--statsd", metavar="HOST:PORT", help="where to listen for StatsD over UDP (127.0.0.1:8125); `off` disables it"
    )
    parser.add_argument(
        "--scrape",
        metavar="URL",
        action="append",
        help="a Prometheus endpoint to scrape; repeatable; NAME=URL puts `NAME.` before its metrics",
    )
    parser.add_argument(
        "--process",
        metavar="NAME",
        action="append",
        help="also measure CPU and memory of processes with this name; repeatable",
    )
    parser.add_argument("--every", metavar="1s", help="how often to measure, in whole seconds or minutes (1s)")
    parser.add_argument(
        "--once", action="store_true", help="print one snapshot and exit; nothing is sent (StatsD only with --statsd)"
    )
    add_settings(parser)


def _run(arguments: argparse.Namespace) -> int:
    _require_psutil()
    settings = read_settings(arguments)
    agent = _complete(arguments, settings)
    return _once(arguments, agent) if arguments.once else _supervise(settings, agent)


def _require_psutil() -> None:
    if importlib.util.find_spec("psutil") is None:
        raise CommandFailed(
            'the agent needs the package psutil, which is not installed; pip install "tallymark[agent]"'
        )


def _complete(arguments: argparse.Namespace, settings: Settings) -> AgentSettings:
    """The section `agent` with the flags in it and nothing left to guess; wrong ones are wrong usage."""
    from tallymark.agent.listening import address
    from tallymark.agent.scraping import target
    from tallymark.client.options import Options

    agent = settings.agent
    named = arguments.url or ",".join(agent.urls) or os.environ.get("TALLYMARK_URL") or DEFAULT_URL
    agent.urls = [url.strip() for url in named.split(",") if url.strip()]
    agent.tenant = chosen_tenant({"--tenant": arguments.tenant, "agent.tenant": agent.tenant or None}) or ""
    agent.server = arguments.server or agent.server or socket.gethostname()
    agent.statsd = arguments.statsd or agent.statsd
    agent.scrape = arguments.scrape or agent.scrape
    agent.processes = arguments.process or agent.processes
    agent.every_s = _seconds(arguments.every) if arguments.every else agent.every_s
    if len(agent.server) > MAX_SERVER_CHARS or not agent.server.isprintable():
        raise WrongUsage(
            f"--server {agent.server[:40]!r} has {len(agent.server):,} characters; up to {MAX_SERVER_CHARS} printable"
            " ones are allowed"
        )
    _require_labels("--process", agent.processes, 'process_mem_bytes{{name="{}"}}')
    _require_labels("agent.disks", agent.disks, 'disk_used_bytes{{path="{}"}}')
    try:
        Options(urls=tuple(agent.urls))
        for endpoint in agent.scrape:
            target(endpoint)
        if agent.statsd != "off":
            address(agent.statsd)
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    return agent


def _require_labels(option: str, given: list[str], longest: str) -> None:
    """Each has to fit into the name of a metric: `longest` is the longest name that it is a label in."""
    from tallymark.agent.snapshot import is_text
    from tallymark.events.model import MAX_KEY_CHARS

    room = MAX_KEY_CHARS - len(longest.format(""))
    for label in given:
        if not is_text(label) or "\0" in label:
            raise WrongUsage(f"{option} {label[:40]!a} is not UTF-8 or contains U+0000, so it cannot name a metric")
        if len(label) > room:
            raise WrongUsage(
                f"{option} {label[:40]!r} has {len(label):,} characters; up to {room} fit into a metric's name"
            )


def _seconds(text: str) -> int:
    match = _EVERY.fullmatch(text)
    if match is None:
        raise WrongUsage(f"--every {text!r} is not a whole number of seconds or minutes; write 1s, 10s or 1m")
    seconds = int(match[1]) * (60 if match[2] == "m" else 1)
    if seconds > 3600:
        raise WrongUsage(f"--every {text!r} is over an hour; at most 60m")
    return seconds


def _once(arguments: argparse.Namespace, agent: AgentSettings) -> int:
    from tallymark.agent.listening import CannotListen
    from tallymark.agent.service import once

    second = int(time.time())
    try:
        with Progress(f"measuring for {agent.every_s} s …" if agent.every_s > 2 else ""):
            values, refused = once(agent, listen=arguments.statsd is not None)
    except CannotListen as error:
        raise CommandFailed(str(error)) from error
    if arguments.output == "json":
        facts: dict[str, Any] = {"server": agent.server, "time": second * 1000, "values": values, "refused": refused}
        print_json(facts)
    else:
        print_table(["metric", "value"], sorted(values.items()))
        if refused:
            print()
            print_table(["refused", "times"], sorted(refused.items()))
    return 0


def _supervise(settings: Settings, agent: AgentSettings) -> int:
    from tallymark.agent.listening import CannotListen
    from tallymark.agent.supervising import supervise
    from tallymark.supervisor.console import Console
    from tallymark.supervisor.lock import FolderTaken

    # A folder of its own, so that `tallymark up` can run on the same data folder.
    folder = settings.folder.absolute() / file_stem("agent", settings.instance)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return supervise(agent, folder, Console())
    except FolderTaken as error:
        raise CommandFailed(str(error)) from error
    except CannotListen as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot work in {folder}: {error.strerror}; choose another folder with --data") from error


COMMANDS = {
    "agent": Command(
        "agent",
        "Send this machine's CPU, memory, load, disk, network and process figures every second, and with them what\n"
        "applications send by StatsD and what Prometheus endpoints expose. What cannot be sent yet waits on disk.\n"
        "The measuring process is restarted if it dies or hangs. Ctrl-C sends the rest and exits.",
        "tallymark agent --once\n"
        "tallymark agent --server web-1 --url http://127.0.0.1:8080\n"
        "tallymark agent --scrape http://127.0.0.1:9100/metrics --scrape orders=http://127.0.0.1:8000/metrics",
        _arguments,
        _run,
    )
}
