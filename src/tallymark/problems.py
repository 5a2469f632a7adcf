"""Every code that a refusal can carry, and what it means: one table for the page `/docs/errors` and for the documents.

The `type` of a problem document (RFC 9457) is a reference to its code on that page. It is relative, so whoever got the
refusal finds the page where the refusal came from, with the words of that version and without a network beyond it.
"""

import html
import re
from dataclasses import dataclass
from functools import cache

PATH = "/docs/errors"
HEADERS = [
    ("content-type", "text/html; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("content-security-policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
]


IN_ERRORS = "in `errors` of an answer"
"""of single events"""
IN_A_FILE = "in a file of meters"
"""told by the command line, never over HTTP"""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code says, and under which status a whole request is refused with it; none if only `elsewhere`."""

    statuses: tuple[int, ...]
    text: str
    elsewhere: str = IN_ERRORS

    @property
    def place(self) -> str:
        return ", ".join(map(str, self.statuses)) or self.elsewhere


MEANINGS = {
    "bad_body": Meaning((400,), "The body is neither an event, an array of events, an envelope nor lines of events."),
    "bad_choice": Meaning((400,), "The parameter takes only certain words; the nearest is named."),
    "bad_decimals": Meaning((400,), "A meter's `decimals` is not a whole number within its bounds."),
    "bad_each": Meaning((400,), "A meter's `each` can only be `values`."),
    "bad_encoding": Meaning((400,), "The body is not what `Content-Encoding` says, or is cut short."),
    "bad_event": Meaning((400,), "The event's name is missing or not of the form that names have."),
    "bad_function": Meaning((400,), "`top` ranks by one function."),
    "bad_header": Meaning((400,), "A header contains a line break."),
    "bad_id": Meaning((), "`id` is empty, too long or not text."),
    "bad_idempotency_key": Meaning((400,), "`Idempotency-Key` is empty, too long, or not printable ASCII."),
    "bad_json": Meaning((400,), "The text is not JSON."),
    "bad_key": Meaning((), "A key in a file of meters is not a word.", IN_A_FILE),
    "bad_name": Meaning((400,), "Not of the form that names of meters have."),
    "bad_number": Meaning((400,), "Not a number that can be used here, or too large to be read."),
    "bad_parameter": Meaning((400,), "A parameter of `POST /v1/events` has a value that it cannot have."),
    "bad_property": Meaning((400,), "Not a name that a property can have."),
    "bad_props": Meaning((), "`props` is not a flat object, has too many entries, or a bad key."),
    "bad_step": Meaning((400,), "Not a step: write `1m`, `5m`, `1h`, `1d`, `1mo` or any whole number of minutes."),
    "bad_tag": Meaning((), "A YAML tag in a file of meters; only plain values are read.", IN_A_FILE),
    "bad_target": Meaning((400,), "The path or query string contains a character that must be encoded."),
    "bad_text": Meaning((400,), "A text is too long, contains U+0000, or is not UTF-8."),
    "bad_time": Meaning((400,), "Not a time: write RFC 3339 with a zone, epoch milliseconds, or in questions `-1h`."),
    "bad_value": Meaning((), "`value` is not a finite number."),
    "bad_values": Meaning((), "`values` is not an object of named finite numbers, or has too many."),
    "bad_where": Meaning((400,), "A meter's expression cannot be read; the detail shows where."),
    "bad_yaml": Meaning((), "A file of meters is not YAML.", IN_A_FILE),
    "bad_zone": Meaning((400,), "Not a time zone; the nearest is named."),
    "built_in": Meaning((409,), "The meters `events` and `metrics` cannot be changed or deleted."),
    "busy": Meaning((503,), "The store moved on while it was read, several times in a row. Ask again, or for less."),
    "conflict": Meaning((400,), "Two keys of a definition exclude each other."),
    "empty": Meaning((400,), "A part of a definition holds nothing."),
    "empty_range": Meaning((400,), "`from` is not before `to`; ranges are [from, to)."),
    "foreign_origin": Meaning(
        (403,), "The request comes from a page of another origin; list it in `collector.cors_origins`."
    ),
    "internal": Meaning((500,), "A bug in Tallymark; the role's log file has the details. Nothing was acknowledged."),
    "log_unreachable": Meaning((503,), "The collector has just started; its log does not answer yet. Send it again."),
    "missing_key": Meaning((400,), "A definition lacks a key that it needs."),
    "missing_parameter": Meaning((400,), "The question needs a parameter that was not given."),
    "no_events": Meaning((400,), "The body holds no events."),
    "no_file": Meaning((), "A file of meters cannot be read.", IN_A_FILE),
    "not_an_object": Meaning((), "An event is JSON, but not an object."),
    "not_durable": Meaning((503,), "The log cannot take it now. Nothing was acknowledged; send it again, same ids."),
    "not_ready": Meaning((503,), "The store does not answer the query service."),
    "not_yet": Meaning((400,), "A later version will have it."),
    "over_limit": Meaning((400,), "More than a question may ask for; the detail names the setting and the way out."),
    "over_the_rate": Meaning((429,), "Over `collector.max_events_per_second`. Wait for `Retry-After`."),
    "overloaded": Meaning((503,), "Too much is waiting to be answered. Wait for `Retry-After`."),
    "query_away": Meaning((503,), "The query service is not up. Events are still taken."),
    "query_failed": Meaning((502,), "The query service broke off its answer."),
    "query_slow": Meaning((504,), "The query service did not answer in time."),
    "refused": Meaning((400,), "The store refused it; the detail says why."),
    "repeated": Meaning((400,), "A definition says something twice."),
    "repeated_parameter": Meaning((400,), "A parameter that can be given once is given several times."),
    "reserved": Meaning((400,), "A name that is taken."),
    "slow_body": Meaning((408,), "The body did not come within `collector.body_timeout_s`."),
    "stopping": Meaning((503,), "The service is stopping; ask another one, or in a moment."),
    "store_away": Meaning((503,), "The store's file does not answer."),
    "store_unreachable": Meaning((503,), "Too few nodes of the store answer."),
    "too_deep": Meaning((400,), "JSON that is nested too deeply."),
    "too_large": Meaning(
        (413,),
        "Larger than a body, a definition, or (in `errors`) an event in the log may be; the detail has the limit.",
    ),
    "too_many": Meaning((400,), "A list of a definition is too long."),
    "too_many_events": Meaning((413,), "Over `collector.max_request_events` in one request; send smaller batches."),
    "too_many_listeners": Meaning((503,), "The query service has as many followers of `live` as it can take."),
    "too_many_parameters": Meaning((400,), "More parameters than a question may have."),
    "too_many_names": Meaning(
        (),
        "More event names than `collector.max_event_names`, or more new ones than a tenth of that (at least 100) in "
        "one request. Put what varies into `props`, not into `event`.",
    ),
    "too_new": Meaning((), "The event lies further ahead than `events.accept_future_s`, after clock correction."),
    "too_old": Meaning((), "The event is older than `events.accept_past_s`, after clock correction."),
    "unknown_aggregate": Meaning((400,), "Not something that a meter can compute; the nearest is named."),
    "unknown_encoding": Meaning((415,), "`Content-Encoding` may be gzip, zstd or deflate."),
    "unknown_field": Meaning((), "Events have no such field; the nearest is named."),
    "unknown_function": Meaning((400,), "The meter does not compute it; the nearest is named."),
    "unknown_key": Meaning((400,), "The meter, or a definition, has no such key; the nearest is named."),
    "unknown_letter": Meaning((404,), "There is no such dead letter, or no longer; `tallymark dlq list` shows them."),
    "unknown_meter": Meaning((404,), "There is no such meter; the nearest is named."),
    "unknown_parameter": Meaning((400,), "There is no such parameter; the nearest is named."),
    "unknown_path": Meaning((404,), "There is no such path; the nearest is named."),
    "unknown_type": Meaning((415,), "Send `application/json` or `application/x-ndjson`, in UTF-8."),
    "wrong_host": Meaning((421,), "Called by a name that is not ours; list it in `collector.hosts`."),
    "wrong_method": Meaning((405,), "The path answers other methods; `Allow` has them."),
    "wrong_type": Meaning((400,), "A value of a definition is of the wrong kind."),
}


def reference(code: str) -> str:
    """The `type` of a problem: where on this instance its meaning stands."""
    return f"{PATH}#{code}"


@cache
def page() -> bytes:
    """The table as a page; each code is an anchor."""
    rows = "\n".join(
        f'<dt id="{code}"><code>{code}</code> ({_marked(meaning.place)})</dt><dd>{_marked(meaning.text)}</dd>'
        for code, meaning in sorted(MEANINGS.items())
    )
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Tallymark: errors</title>\n'
        "<h1>Errors</h1>\n<p>The <code>code</code> of a refusal, the status of a request that is refused with it,"
        f" and what it means.</p>\n<dl>\n{rows}\n</dl>\n</html>\n"
    ).encode()


def _marked(text: str) -> str:
    """Words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
