"""Dead letters over HTTP: what could not be counted, why, and the events themselves."""

from collections.abc import Collection
from typing import Any

from tallymark.events.frame import FrameError
from tallymark.events.moments import rfc3339_ms
from tallymark.events.tenants import MAIN
from tallymark.http import Problem
from tallymark.query.frame_rows import rows, rows_in_a_child
from tallymark.query.parameters import Given, Pairs, sort_out
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant
from tallymark.store.model import MAYBE_DUPLICATE, DeadLetter, LetterSummary
from tallymark.suggest import suggest

HOPS = ("collector", "pipeline")
KILLER = "kills_its_task"
REASONS = {
    "bad_json": "Not JSON. Look at what the sender writes, quotes and commas first.",
    "too_deep": "Nested too deeply. Props are flat: name and value.",
    "not_an_object": "JSON, but no object. An event is written in braces.",
    "unknown_field": "Events have no such field. What is your own belongs into props.",
    "bad_event": "The event's name is missing or malformed.",
    "bad_id": "The id is empty, too long or not text.",
    "bad_time": "Not a time. Send RFC 3339 with a zone, or epoch milliseconds.",
    "too_old": "Older than events.accept_past_s. Was the sender offline, or its clock behind?",
    "too_new": "Ahead by more than events.accept_future_s. Check the sender's clock.",
    "bad_value": "value is not a finite number.",
    "bad_values": "values is no object of named finite numbers, or has too many.",
    "bad_props": "props is no flat object, has too many entries, or a bad key.",
    "bad_number": "A number that is too large to read.",
    "bad_text": "A text is too long, contains U+0000, or is not UTF-8.",
    "too_many_names": "Over collector.max_event_names. Put what varies into props, not into the name.",
    "too_large": "Larger than an event in the log may be.",
    "not_durable": "The log could not take it. The sender was told, and sends it again.",
    "letter_unreadable": "The note about a refused event is damaged itself.",
    "undecodable": "A record of the log that cannot be read as events.",
    "unknown_frame_version": "Written by a newer Tallymark than the one that counts. Upgrade the pipeline.",
    KILLER: "Reading it ended the process that counts, several times, so it was put aside.",
    "damaged": "Bytes changed on the way or on the disk: the checksum does not fit.",
    "lost_by_retention": "The log deleted it before it was counted. Nobody knows how many events it held.",
    MAYBE_DUPLICATE: "Sent again so late that nobody can tell whether it was counted. Kept whole.",
}
"""every reason there is, also one that has not occurred yet, and what it means for whoever sent the event"""
FILTERS = {"hop": "`collector` (refused) or `pipeline` (accepted, not counted)", "reason": "why; repeat for `or`"}
DEFAULT_LETTERS, MOST_LETTERS = 100, 1_000
DEFAULT_EVENTS, MOST_EVENTS = 100, 1_000
MOST_TEXT_BYTES = 64_000
MOST_HEX_BYTES = 4_096


def list_letters(sources: Sources, tenant: str, pairs: Pairs) -> dict[str, Any]:
    """The letters of the tenant that are kept, newest first, and how many events each reason has ever had."""
    given = sort_out(pairs, allowed=("limit",), question="/v1/dlq", keys=tuple(FILTERS))
    store = sources.store
    counts, last_ms = store.dead_letters.counts(tenant=tenant), store.dead_letters.last_ms(tenant=tenant)
    if not counts:
        # A tenant whose every event was refused has letters, but nothing else yet.
        require_tenant(store.registry, tenant)
    _check(given, "hop", HOPS)
    _check(given, "reason", (*REASONS, *(reason for _, reason in counts)))
    limit = given.whole("limit", default=DEFAULT_LETTERS, most=MOST_LETTERS)
    hops, reasons = (given.where.get(name, ()) for name in FILTERS)
    found = store.dead_letters.search(tenant=tenant, hops=hops, reasons=reasons, limit=limit)
    return {
        "letters": [_summary(each) for each in found],
        "counts": [
            {
                "hop": hop,
                "reason": reason,
                "events": events,
                "last": _moment(last_ms.get((hop, reason))),
                **({"means": REASONS[reason]} if reason in REASONS else {}),
            }
            for (hop, reason), events in counts.items()
            if (not hops or hop in hops) and (not reasons or reason in reasons)
        ],
        **(_others(sources, hops, reasons) if tenant == MAIN else {}),
    }


def _others(sources: Sources, hops: Collection[str], reasons: Collection[str]) -> dict[str, Any]:
    """Whose letters the operator, who sees all of them in the status, does not find in `main`."""
    found = {
        tenant: sum(
            events
            for (hop, reason), events in counts.items()
            if (not hops or hop in hops) and (not reasons or reason in reasons)
        )
        for tenant, counts in sources.store.dead_letters.counts_by_tenant().items()
        if tenant != MAIN
    }
    others = {tenant: events for tenant, events in sorted(found.items()) if events}
    return {"others": others} if others else {}


def show_letter(sources: Sources, tenant: str, name: str, pairs: Pairs) -> dict[str, Any]:
    """One letter with what is kept of its events: `text` as it was sent, `rows` of a frame, or `hex` if neither."""
    given = sort_out(pairs, allowed=("limit",), question=f"/v1/dlq/{name[:20]}")
    limit = given.whole("limit", default=DEFAULT_EVENTS, most=MOST_EVENTS)
    is_id = name.isascii() and name.isdigit() and len(name) <= 18
    letter = sources.store.dead_letters.get(int(name)) if is_id else None
    if letter is None or letter.tenant != tenant:
        raise Problem(404, "unknown_letter", _unknown(sources, tenant, name, is_id=is_id), letter=name[:20])
    return {**_summary(LetterSummary.of(int(name), letter)), **_content(letter, limit)}


def _content(letter: DeadLetter, limit: int) -> dict[str, Any]:
    if not letter.raw:
        return {"note": "its content was not kept, only the number of its events"}
    if letter.hop == "collector" and letter.reason != "letter_unreadable":
        text = letter.raw[:MOST_TEXT_BYTES].decode(errors="replace")
        return {"text": text, **_left_out(len(letter.raw) - MOST_TEXT_BYTES, "left_out_bytes")}
    if letter.hop == "pipeline":
        try:
            # A frame that killed its task must not kill this service too.
            read = rows_in_a_child if letter.reason == KILLER else rows
            found = read(letter.raw, limit=limit, tenant=letter.tenant)
        except FrameError as error:
            return _bytes(letter, f"its events cannot be read: {error}")
        return {"rows": found, **_left_out(letter.events - len(found), "left_out")}
    return _bytes(letter, "it cannot be read")


def _bytes(letter: DeadLetter, note: str) -> dict[str, Any]:
    more = _left_out(len(letter.raw) - MOST_HEX_BYTES, "left_out_bytes")
    return {"note": note, "hex": letter.raw[:MOST_HEX_BYTES].hex(), **more}


def _left_out(more: int, name: str) -> dict[str, int]:
    return {name: more} if more > 0 else {}


def _summary(letter: LetterSummary) -> dict[str, Any]:
    place = {} if letter.offset < 0 else {"partition": letter.partition, "offset": letter.offset}
    return {
        "id": letter.letter_id,
        "time": rfc3339_ms(letter.at_ms),
        "hop": letter.hop,
        "reason": letter.reason,
        "events": letter.events,
        "bytes": letter.raw_bytes,
        **place,
        "detail": letter.detail,
    }


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339_ms(at_ms)


def _check(given: Given, name: str, known: tuple[str, ...]) -> None:
    for text in given.where.get(name, ()):
        if text not in known:
            near = suggest(text, dict.fromkeys(known))
            raise Problem(400, "bad_choice", f"{name} = {text[:60]!r} is not known{near}", parameter=name)


def _unknown(sources: Sources, tenant: str, name: str, *, is_id: bool) -> str:
    if not is_id:
        return f"{name[:40]!r} is not the number of a dead letter; `tallymark dlq list` shows them"
    kept = sources.store.dead_letters.search(tenant=tenant, limit=1)
    whose = "" if tenant == MAIN else f" in the tenant {tenant}"
    if not kept:
        require_tenant(sources.store.registry, tenant)
        return f"there is no dead letter {name}{whose}; none are kept"
    return (
        f"there is no dead letter {name}{whose}, or not any more: the oldest are deleted to stay within log.dead_bytes;"
        f" the newest is {kept[0].letter_id}"
    )
