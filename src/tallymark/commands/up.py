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
from tallymark.http import family, free_port, is_loopback
from tallymark.settings import Settings
from tallymark.supervisor.child import ChildSpec
from tallymark.supervisor.console import Console
from tallymark.supervisor.lock import FolderTaken
from tallymark.supervisor.supervisor import Plan, Supervisor

ROLES = ("collector", "query", "keeper", "pipeline")
# The collector first, so that nothing new comes in; the query service last, because it knows when all is counted.
STOP_ORDER = ("collector", "pipeline", "keeper", "query")
SPOKEN = {"pipeline": "Spark"}
STOP_S = {"pipeline": 20.0}
NEEDED = (
    "granian",
    "uvloop",
    "pyarrow",
    "numpy",
    "xxhash",
    "prometheus_client",
    "polars",
    "pyspark",
    "yaml",
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, address=True)
    parser.add_argument(
        "--meters", metavar="FILE", type=Path, help="apply this YAML file of meters once all is running"
    )
    parser.add_argument(
        "--demo", action="store_true", help="with gentle traffic: people watching videos, 50 events a second"
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments)
    _require_packages()
    _require_loopback(settings.collector.host)
    meters = read_file(arguments.meters) if arguments.meters else []
    console = Console()
    up = _Up(arguments, settings, meters, console)
    _make_folder(settings.folder)
    try:
        return Supervisor(up.plan(), settings.folder, console).run()
    except FolderTaken as error:
        raise CommandFailed(str(error)) from error


class _Up:
    """What the supervisor must know about Tallymark."""

    def __init__(
        self, arguments: argparse.Namespace, settings: Settings, meters: Sequence[object], console: Console
    ) -> None:
        self._arguments, self._settings, self._meters, self._console = arguments, settings, meters, console
        self._host, self._port = settings.collector.host, settings.collector.port or free_port(settings.collector.host)
        self._address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        self._url = f"http://{self._address}"

    def plan(self) -> Plan:
        flags = as_flags(self._arguments, self._settings)
        demo = ChildSpec(
            "demo", (sys.executable, "-m", "tallymark.load.demo", "--url", self._url), announces=False, stop_s=2
        )
        return Plan(
            children=[self._role(role, flags) for role in ROLES],
            stop_order=STOP_ORDER,
            before_start=self._require_port,
            why_not_ready=self._why_not_ready,
            on_ready=self._on_ready,
            companions=[demo] if self._arguments.demo else [],
            is_drained=self._is_drained,
            address=self._address,
        )

    def _role(self, role: str, flags: list[str]) -> ChildSpec:
        own = ["--host", self._host, "--port", str(self._port)] if role == "collector" else []
        return ChildSpec(
            role,
            (sys.executable, "-m", "tallymark", role, *flags, *own),
            spoken=SPOKEN.get(role, ""),
            stop_s=STOP_S.get(role, 10.0),
        )

    def _require_port(self) -> None:
        """After the folder's lock is taken: the same folder is the better explanation for a port in use."""
        require_port(self._host, self._port)

    def _why_not_ready(self) -> str:
        transport = HttpTransport(self._url, timeout_s=2.0)
        try:
            answer = transport.exchange(Request("GET", "/readyz"))
        except NoAnswer as error:
            return str(error)
        finally:
            transport.close()
        return "" if answer.status == 200 else f"waiting for {', '.join(troubled(answer.json())) or self._url}"

    def _on_ready(self) -> None:
        if self._meters:
            self._apply_meters()
        self._console.say(
            f"Tallymark is ready at {self._url}  (Ctrl-C stops it; data and logs in {self._settings.folder})"
        )
        event = '{"event": "view", "props": {"video": "A"}}'
        self._console.say(
            f"try: curl '{self._url}/v1/events?wait=applied' -H 'content-type: application/json' -d '{event}'"
        )
        self._console.say(f"     curl '{self._url}/v1/meters/events/total?event=view'")

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
        try:
            address = json.loads((self._settings.run_folder / "query.json").read_bytes())["address"]
            transport = HttpTransport(f"http://{address}", timeout_s=2.0)
            status = transport.exchange(Request("GET", "/v1/status")).json()
            transport.close()
        except (OSError, ValueError, KeyError, NoAnswer):
            return True  # nobody can tell; whatever is in the log is counted at the next start
        return isinstance(status, dict) and not status.get("in_flight")


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
                f"port {port} on {host} is in use by another program; stop that, or choose another with --port"
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
            f"--host {host} would be open to others, and there are no API keys yet; "
            "use 127.0.0.1, behind a proxy with its own access control"
        )


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _require_packages() -> None:
    missing = [name for name in NEEDED if not is_installed(name)]
    if missing:
        raise CommandFailed(f'not installed: {", ".join(missing)}; pip install "tallymark[all]"')


COMMANDS = {
    "up": Command(
        "up",
        "Run everything on this machine in the foreground: collector, pipeline (Spark), keeper and query service.\n"
        "Ctrl-C stops it cleanly and loses nothing.",
        "tallymark up --demo\ntallymark up --data /var/lib/tallymark --port 9000 --meters meters.yaml",
        _arguments,
        _run,
    )
}
