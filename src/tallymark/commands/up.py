"""`tallymark up`: the whole path on this machine, in the foreground."""

import argparse
import errno
import importlib.util
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.commands.command import Command, CommandFailed, WrongUsage
from tallymark.commands.configuration import add_settings, as_flags, read_settings
from tallymark.commands.meters import put, read_file
from tallymark.events.tenants import DEMO
from tallymark.http import family, free_port, is_loopback
from tallymark.role import file_stem
from tallymark.settings import Settings
from tallymark.suggest import suggest
from tallymark.supervisor.child import ChildSpec
from tallymark.supervisor.console import Console
from tallymark.supervisor.lock import FolderTaken
from tallymark.supervisor.supervisor import Plan, Supervisor

ROLES = ("collector", "query", "keeper", "pipeline")
# The collector first, so that nothing new comes in; the query service last, because it knows when all is counted.
STOP_ORDER = ("collector", "pipeline", "keeper", "query")
TITLES = {"pipeline": "Spark"}
STOP_S = {"pipeline": 20.0}
LEAVE_S = 3.0
# What each extra brings, by the names that are imported.
NEEDED_BY = {
    "collector": ("granian", "httptools", "uvloop", "pyarrow", "numpy", "xxhash", "prometheus_client"),
    "query": ("granian", "uvloop", "polars", "pyarrow", "numpy", "xxhash", "yaml", "prometheus_client"),
    "keeper": ("polars", "pyarrow", "numpy", "prometheus_client"),
    "pipeline": ("pyspark", "polars", "pyarrow", "numpy", "xxhash", "prometheus_client"),
}
NEEDED = tuple(dict.fromkeys(package for packages in NEEDED_BY.values() for package in packages))


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, address=True)
    parser.add_argument(
        "--roles",
        metavar="ROLE,…",
        type=_roles,
        default=ROLES,
        help="run only these of collector, query, keeper and pipeline, on a machine of a cluster",
    )
    parser.add_argument(
        "--meters", metavar="FILE", type=Path, help="apply this YAML file of meters once everything runs"
    )
    parser.add_argument(
        "--demo", action="store_true", help="with light traffic: people watching videos, 50 events a second"
    )


def _roles(text: str) -> tuple[str, ...]:
    """The roles in the order in which they are started."""
    asked = [word.strip() for word in text.split(",") if word.strip()]
    for word in asked:
        if word not in ROLES:
            raise WrongUsage(f"--roles: no role {word!r}{suggest(word, ROLES, what='there are')}")
    if not asked:
        raise WrongUsage(f"--roles is empty; there are {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in asked)


def _run(arguments: argparse.Namespace) -> int:
    front = _front(arguments.roles)
    settings = read_settings(arguments, section=front or "collector")
    _require_packages(arguments.roles, settings)
    if front:
        _require_loopback(getattr(settings, front).host)
    if arguments.demo and "collector" not in arguments.roles:
        raise WrongUsage("--demo sends events, so it needs the collector among --roles")
    if arguments.meters and not front:
        raise WrongUsage("--meters is applied over HTTP, so it needs the collector or query among --roles")
    meters = read_file(arguments.meters) if arguments.meters else []
    console = Console()
    up = _Up(arguments, settings, meters, console)
    _make_folder(settings.folder)
    try:
        return Supervisor(up.plan(), settings.folder, console).run()
    except FolderTaken as error:
        raise CommandFailed(str(error)) from error


def _front(roles: Sequence[str]) -> str:
    """The role whose port people see, if one of these has a port."""
    return next((role for role in ("collector", "query") if role in roles), "")


class _Up:
    """What the supervisor must know about Tallymark."""

    def __init__(
        self, arguments: argparse.Namespace, settings: Settings, meters: Sequence[object], console: Console
    ) -> None:
        self._arguments, self._settings, self._meters, self._console = arguments, settings, meters, console
        self._roles: tuple[str, ...] = arguments.roles
        self._front = _front(self._roles)
        self._host, self._port, self._address = "", 0, ""
        if self._front:
            section = getattr(settings, self._front)
            self._host, self._port = section.host, section.port or free_port(section.host)
            self._address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        self._url = f"http://{self._address}"

    def plan(self) -> Plan:
        flags = as_flags(self._arguments, self._settings)
        demo = ChildSpec(
            "demo", (sys.executable, "-m", "tallymark.load.demo", "--url", self._url), announces=False, stop_s=2
        )
        return Plan(
            children=[self._role(role, flags) for role in self._roles],
            stop_order=[role for role in STOP_ORDER if role in self._roles],
            before_start=self._require_port,
            why_not_ready=self._why_not_ready,
            on_ready=self._on_ready,
            companions=[demo] if self._arguments.demo else [],
            is_drained=self._is_drained,
            address=self._address,
            instance=self._settings.instance,
        )

    def _role(self, role: str, flags: list[str]) -> ChildSpec:
        own = ["--host", self._host, "--port", str(self._port)] if role == self._front else []
        return ChildSpec(
            role,
            (sys.executable, "-m", "tallymark", role, *flags, *own),
            environment={"TALLYMARK_SUPERVISED": ",".join(self._roles)},
            title=TITLES.get(role, ""),
            stop_s=STOP_S.get(role, 10.0) + self._leave_s(role),
            files=file_stem(role, self._settings.instance),
        )

    def _leave_s(self, role: str) -> float:
        """What a role of a cluster needs longer: to be left alone by others, and to hear from brokers that are away."""
        if role == "collector" and self._shares_log():
            return LEAVE_S + 2 * self._settings.log.delivery_timeout_s
        return LEAVE_S if role == "query" and self._shares_store() else 0.0

    def _shares_log(self) -> bool:
        from tallymark.log.address import address  # here, as below: most commands need neither

        return address(self._settings, "events").is_shared

    def _shares_store(self) -> bool:
        from tallymark.store.address import address

        return address(self._settings).is_shared

    def _require_port(self) -> None:
        """After the folder's lock is taken: the same folder is the better explanation for a port in use."""
        if self._front:
            require_port(self._host, self._port)

    def _why_not_ready(self) -> str:
        if not self._front:
            return ""
        transport = HttpTransport(self._url, timeout_s=2.0)
        try:
            answer = transport.exchange(Request("GET", "/readyz"))
        except NoAnswer as error:
            return str(error)
        finally:
            transport.close()
        waiting = unready(answer.json(), self._roles if self._front == "collector" else ())
        if not waiting and answer.status == 200:
            return ""
        return f"waiting for {', '.join(waiting) or self._url}"

    def _on_ready(self) -> None:
        if self._meters:
            self._apply_meters()
        which = "" if self._roles == ROLES else f" ({', '.join(self._roles)})"
        where = f" at {self._url}" if self._front else ""
        self._console.say(
            f"Tallymark is ready{which}{where}  (Ctrl-C stops it; data and logs in {self._settings.folder})"
        )
        if "collector" not in self._roles:
            return
        event = '{"event": "view", "props": {"video": "A"}}'
        self._console.say(
            f"try: curl '{self._url}/v1/events?wait=applied' -H 'content-type: application/json' -d '{event}'"
        )
        self._console.say(f"     curl '{self._url}/v1/meters/events/total?event=view'")
        if self._arguments.demo:
            self._console.say(f"demo: its traffic is the tenant {DEMO}, apart from your own events:")
            self._console.say(f"     curl '{self._url}/v1/meters/demo_views/top?by=video&tenant={DEMO}'")

    def _apply_meters(self) -> None:
        from tallymark.meters import Meter, to_mapping

        transport = HttpTransport(self._url)
        for meter in self._meters:
            assert isinstance(meter, Meter)
            try:
                put(transport, to_mapping(meter))
            except CommandFailed as error:
                self._console.say(f"the meter {meter.name} of {self._arguments.meters} was not applied: {error}")
        transport.close()

    def _is_drained(self) -> bool:
        """The public port is closed by now, so the query service is asked at its own."""
        if self._shares_log() or self._roles != ROLES:
            return True  # others work on, and others send
        try:
            place = self._settings.run_folder / f"{file_stem('query', self._settings.instance)}.json"
            address = json.loads(place.read_bytes())["address"]
            transport = HttpTransport(f"http://{address}", timeout_s=2.0)
            status = transport.exchange(Request("GET", "/v1/status")).json()
            transport.close()
        except (OSError, ValueError, KeyError, NoAnswer):
            return True  # nobody can tell; whatever is in the log is counted at the next start
        return isinstance(status, dict) and status.get("in_flight") == 0


def unready(report: object, roles: Sequence[str]) -> list[str]:
    """Which of these are not ready by the parts of `/readyz`; on a cluster its status is the collector's alone."""
    parts = report if isinstance(report, dict) else {}
    return troubled(report) or [role for role in roles if not (parts.get(role) or {}).get("ready")]


def troubled(report: object) -> list[str]:
    """The roles that `/readyz` says cannot work yet, with their troubles if it names them."""
    parts = report.items() if isinstance(report, dict) else ()
    found = []
    for role, part in parts:
        if isinstance(part, dict) and not part.get("ready", True):
            said = part.get("troubles") or ([part["detail"]] if "detail" in part else [])
            found.append(f"{role} ({'; '.join(map(str, said))})" if said else role)
    return found


def require_port(host: str, port: int) -> None:
    """Raises CommandFailed if somebody else serves there."""
    try:
        socket.create_server((host, port), family=family(host)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandFailed(
                f"port {port} on {host} is in use by another program; stop it, or choose another port with --port"
            ) from error
        raise CommandFailed(
            f"cannot serve on {host}:{port}: {error.strerror}; choose another with --host and --port"
        ) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(
            f"cannot make the data folder {folder}: {error.strerror}; choose another with --data"
        ) from error


def _require_loopback(host: str) -> None:
    if not is_loopback(host):
        raise WrongUsage(
            f"--host {host} would be open to others and there are no API keys yet; "
            "use 127.0.0.1 behind a proxy with its own access control"
        )


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def needed(roles: Sequence[str], settings: Settings) -> tuple[list[str], str]:
    """The packages that these roles import on this profile, and the extras that bring them."""
    packages = dict.fromkeys(package for role in roles for package in NEEDED_BY[role])
    cluster = [
        *(["confluent_kafka"] if settings.log.kind == "kafka" else []),
        *(["cassandra"] if settings.store.kind == "cassandra" else []),
    ]
    extras = "all" if set(roles) == set(ROLES) else ",".join(roles)
    return [*packages, *cluster], f"{extras},cluster" if cluster else extras


def _require_packages(roles: Sequence[str], settings: Settings) -> None:
    packages, extras = needed(roles, settings)
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        raise CommandFailed(f'not installed: {", ".join(missing)}; pip install "tallymark[{extras}]"')


COMMANDS = {
    "up": Command(
        "up",
        "Run everything on this machine in the foreground: collector, pipeline (Spark), keeper and query service.\n"
        "A process that dies is restarted. Ctrl-C stops cleanly and loses nothing. With --roles only some run here.",
        "tallymark up --demo\ntallymark up --data /var/lib/tallymark --port 9000 --meters meters.yaml\n"
        "tallymark up --roles collector,query --profile cluster.toml",
        _arguments,
        _run,
    )
}
