"""`tallymark load`: reproducible load, then a check of the served counts to the unit."""

import argparse
import re
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallymark.client.transport import HttpTransport
from tallymark.commands.command import Command, CommandFailed, WrongUsage
from tallymark.commands.meters import put
from tallymark.commands.output import print_json, print_table
from tallymark.commands.progress import Progress
from tallymark.commands.service import add_tenant, add_url, chosen_tenant, connect
from tallymark.events.tenants import MAIN

if TYPE_CHECKING:
    from tallymark.load.journal import Outcomes
    from tallymark.load.plan import Plan
    from tallymark.load.sender import Report

SHOWN_DIFFERENCES = 20
REQUEST_BYTES = 1_000_000
BATCHES_PER_SECOND = 10


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=1000.0, metavar="N", help="events a second (1000)")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long (10)")
    parser.add_argument("--events", type=int, metavar="N", help="how many events, instead of --seconds")
    parser.add_argument(
        "--keys",
        type=int,
        default=1000,
        metavar="K",
        help="number of keys; the k-th is 1/k as popular as the first (1000)",
    )
    parser.add_argument(
        "--duplicates",
        type=float,
        default=0.0,
        metavar="P",
        help="share of events sent again with the same id: 0.05, 5%%",
    )
    parser.add_argument(
        "--late", type=float, default=0.0, metavar="P", help="share of events that are a minute to six days old"
    )
    parser.add_argument(
        "--servers",
        type=int,
        default=0,
        metavar="N",
        help="servers that each send one snapshot a second; sets the rate",
    )
    parser.add_argument("--metrics", type=int, default=100, metavar="M", help="named numbers in each snapshot (100)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed sends the same events (1)")
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="call its events and its meter load_NAME, so that meters of yours can count them too (seed and time)",
    )
    parser.add_argument("--batch", type=int, default=1000, metavar="N", help="most events in one request (1000)")
    parser.add_argument("--connections", type=int, default=4, metavar="N", help="requests in flight at once (4)")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S", help="how long to retry and to wait for the counts (60)"
    )
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="where to record what was acknowledged (load-<run>.journal)"
    )
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="send nothing; check the counts of the load in this journal"
    )
    parser.add_argument("--no-check", action="store_true", help="do not compare the counts")
    add_tenant(parser)
    add_url(parser)


def _run(arguments: argparse.Namespace) -> int:
    from tallymark.load import journal

    if arguments.check:
        try:
            outcomes = journal.read(arguments.check)
        except journal.JournalError as error:
            raise CommandFailed(str(error)) from error
        return _verify(arguments, _connect_again(arguments, outcomes), outcomes, {}, since_ms=_now_ms())
    plan = _plan(arguments)
    transport = connect(arguments)
    put(transport, plan.definition())
    path = arguments.journal or Path(f"load-{plan.run}.journal")
    try:
        opened = journal.Journal(path, plan, tenant=chosen_tenant({"--tenant": arguments.tenant}))
    except OSError as error:
        raise CommandFailed(
            f"cannot write the journal {path}: {error.strerror}; choose another with --journal"
        ) from error
    with opened:
        report = _send(arguments, plan, opened)
    facts = _facts(plan, report, path)
    if arguments.output == "table":
        _print_facts(facts, report)
    if arguments.no_check:
        if arguments.output == "json":
            print_json(facts)
        return 1 if report.unknown or report.refused else 0
    code = _verify(arguments, transport, journal.read(path), facts, since_ms=report.last_acknowledged_ms)
    return 1 if report.unknown or report.refused else code


def _connect_again(arguments: argparse.Namespace, outcomes: "Outcomes") -> HttpTransport:
    """For the tenant that the load was sent for; only journals that do not say whose it was leave that open."""
    sent_for = outcomes.tenant if outcomes.tenant is None else outcomes.tenant or MAIN
    if arguments.tenant is not None and sent_for not in (None, arguments.tenant):
        raise WrongUsage(
            f"--tenant {arguments.tenant}: the load in {arguments.check} was sent for the tenant {sent_for}"
        )
    return connect(arguments, tenant=outcomes.tenant)


def _plan(arguments: argparse.Namespace) -> "Plan":
    from tallymark.load.plan import Plan

    for name in ("rate", "keys", "batch", "connections"):
        if getattr(arguments, name) <= 0:
            raise WrongUsage(f"--{name} {getattr(arguments, name):g} must be more than 0")
    for name in ("duplicates", "late"):
        if not 0 <= getattr(arguments, name) <= 0.9:
            raise WrongUsage(f"--{name} {getattr(arguments, name):g} must be a share from 0 to 0.9, for example 0.05")
    if arguments.seconds is not None and arguments.events is not None:
        raise WrongUsage("--seconds and --events cannot be combined; give one")
    rate = float(arguments.servers or arguments.rate)
    sends = arguments.events if arguments.events is not None else int(rate * (arguments.seconds or 10.0))
    if sends < 1:
        raise WrongUsage(f"{sends} events to send; give more --seconds or --events")
    start_ms = _now_ms()
    run = arguments.run or f"{arguments.seed}_{start_ms:x}"
    if not re.fullmatch(r"[a-z0-9_]{1,50}", run):
        raise WrongUsage(f"--run {run}: a name has up to 50 of a-z, 0-9 and _, because a meter is called by it")
    return Plan(
        run=run,
        seed=arguments.seed,
        start_ms=start_ms,
        rate=rate,
        sends=sends,
        keys=arguments.keys,
        duplicates=arguments.duplicates,
        late=arguments.late,
        servers=arguments.servers,
        metrics=arguments.metrics if arguments.servers else 0,
    )


def _send(arguments: argparse.Namespace, plan: "Plan", journal: Any) -> "Report":
    from tallymark.load.encoding import event_bytes
    from tallymark.load.sender import Sender

    # A request a tenth of a second at most, so that low rates do not wait for a full batch.
    paced = max(1, int(plan.rate / BATCHES_PER_SECOND))
    batch = max(1, min(arguments.batch, paced, REQUEST_BYTES // event_bytes(plan)))
    sender = Sender(
        plan,
        journal,
        lambda: connect(arguments),
        batch=batch,
        connections=arguments.connections,
        patience_s=arguments.patience,
    )
    with Progress("sending", total=plan.sends) as progress:
        return sender.run(
            tick=lambda so_far: progress.report(
                f"{so_far.acknowledged:,} of {plan.sends:,} acknowledged", so_far.acknowledged
            )
        )


def _facts(plan: "Plan", report: "Report", path: Path) -> dict[str, Any]:
    cuts = statistics.quantiles(report.latencies_s, n=100) if len(report.latencies_s) > 1 else report.latencies_s * 99
    latency = {f"p{cut}": round(cuts[cut - 1] * 1000, 1) for cut in (50, 95, 99)} if cuts else {}
    rate_held = report.acknowledged / report.seconds if report.seconds else 0.0
    return {
        "run": plan.run,
        "seed": plan.seed,
        "sent": report.sent,
        "acknowledged": report.acknowledged,
        "refused": report.refused,
        "unknown": report.unknown,
        "retried": report.retried,
        "reasons": report.reasons,
        "latency_ms": latency,
        "seconds": round(report.seconds, 2),
        "rate_asked": plan.rate,
        "rate_held": round(rate_held, 1),
        "cpu_s": round(report.cpu_s, 2),
        "journal": str(path),
    }


def _print_facts(facts: dict[str, Any], report: "Report") -> None:
    latency = ", ".join(f"{name} {value:,.1f}" for name, value in facts["latency_ms"].items())
    rows = [
        ["sent", f"{facts['sent']:,} events in {facts['seconds']:,.1f} s ({facts['cpu_s']:,.1f} s of CPU here)"],
        ["acknowledged", f"{facts['acknowledged']:,}"],
        ["refused", f"{facts['refused']:,}"],
        ["unknown", f"{facts['unknown']:,}"],
        ["retried", f"{facts['retried']:,}"],
        ["latency ms", latency or "-"],
        [
            "rate held",
            f"{facts['rate_held']:,.0f} of {facts['rate_asked']:,.0f} events/s, at most {report.behind_s:.1f} s behind",
        ],
    ]
    rows += [["", f"{count:,} x {reason}"] for reason, count in facts["reasons"].items()]
    print_table(["load", facts["run"]], rows)


def _verify(
    arguments: argparse.Namespace,
    transport: HttpTransport,
    outcomes: "Outcomes",
    facts: dict[str, Any],
    *,
    since_ms: int,
) -> int:
    from tallymark.load.check import CannotCheck, await_applied, check

    with Progress("waiting for the counts …") as progress:
        begun = time.monotonic()
        applied = await_applied(transport, outcomes.plan, since_ms=since_ms, deadline_s=arguments.patience)
        waited_s = time.monotonic() - begun
        progress.report("comparing …")
        try:
            differences, compared = check(transport, outcomes)
        except CannotCheck as error:
            raise CommandFailed(f"cannot check the counts: {error}") from error
    exact = applied and not differences
    if arguments.output == "json":
        listed = [{"where": d.where, "what": d.what, "expected": d.expected, "served": d.served} for d in differences]
        print_json(
            {**facts, "applied": applied, "waited_s": round(waited_s, 2), "compared": compared, "differences": listed}
        )
        return 0 if exact else 1
    if not applied:
        print(
            f"not everything was counted within {arguments.patience:g} s; `tallymark status` says what is late",
            file=sys.stderr,
        )
    for difference in differences[:SHOWN_DIFFERENCES]:
        print(
            f"{difference.where}: {difference.what} is {difference.served}, must be {difference.expected}",
            file=sys.stderr,
        )
    if len(differences) > SHOWN_DIFFERENCES:
        print(f"and {len(differences) - SHOWN_DIFFERENCES:,} more differences", file=sys.stderr)
    unsure = sum(end - start for start, end in outcomes.unknown)
    but = f" ({unsure:,} sends have an unknown outcome; counts may or may not include them)" if unsure else ""
    verdict = "all exact" if not differences else f"{len(differences):,} wrong"
    print(f"{compared:,} counts compared {waited_s:.1f} s after the last answer: {verdict}{but}")
    return 0 if exact else 1


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


COMMANDS = {
    "load": Command(
        "load",
        "Send reproducible load (event i is a function of the seed and i), then compare the served counts with the\n"
        "right ones to the unit: total, minutes, hours, days, keys. Exit code 1 on any difference.",
        "tallymark load --rate 10000 --seconds 60 --keys 10000 --duplicates 0.05 --late 0.02\n"
        "tallymark load --servers 1000 --metrics 100 --seconds 60\n"
        "tallymark load --check load-1_19a8.journal",
        _arguments,
        _run,
    )
}
