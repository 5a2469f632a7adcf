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
IN_A_FILE = "in a meters file"
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
    "ambiguous": Meaning((400,), "The metric of a query may be one of several meters; write `SELECT meter.metric`."),
    "bad_board": Meaning((400,), "A board, or a panel of it, is malformed; `parameter` says which part."),
    "bad_body": Meaning((400,), "The body is neither an event, an array of events, an envelope nor lines of events."),
    "bad_choice": Meaning((400,), "The parameter takes only certain words; the detail names the nearest."),
    "bad_column": Meaning((400,), "Not a valid name for a column of a table."),
    "bad_compare": Meaning(
        (400,),
        "Not something to compare with: write `previous`, `1d`, `1w`, `1mo`, or any length that is a multiple of the"
        " meter's grain.",
    ),
    "bad_csv": Meaning((400,), "The body is not CSV with a line of column names."),
    "bad_decimals": Meaning((400,), "A meter's `decimals` is not a whole number in the allowed range."),
    "bad_each": Meaning((400,), "A meter's `each` can only be `values`."),
    "bad_encoding": Meaning((400,), "The body does not match `Content-Encoding`, or is cut short."),
    "bad_event": Meaning((400,), "The event's name is missing or malformed."),
    "bad_function": Meaning((400,), "`top` ranks by one function."),
    "bad_grain": Meaning((400,), "A meter's `grain` is `1s`, `10s` or `1m`."),
    "bad_header": Meaning((400,), "A header contains a line break."),
    "bad_id": Meaning((), "`id` is empty, too long or not text."),
    "bad_idempotency_key": Meaning((400,), "`Idempotency-Key` is empty, too long, or not printable ASCII."),
    "bad_json": Meaning((400,), "The text is not JSON."),
    "bad_keep": Meaning((400,), "A meter's `keep` is `all` or `queried`."),
    "bad_key": Meaning((400,), "Not a valid key for a table; in a meters file, a key that is not a word."),
    "bad_late": Meaning((400,), "A meter's `late` has a bad `after` or `then`: write `{after: 1h, then: count}`."),
    "bad_max_series": Meaning((400,), "A meter's `max_series` is not a whole number in the allowed range."),
    "bad_name": Meaning((400,), "Not a valid name for a meter, a table, a saved query or a board."),
    "bad_number": Meaning((400,), "Not a number that can be used here, or too large to read."),
    "bad_parameter": Meaning((400,), "A parameter of `POST /v1/events` has an invalid value."),
    "bad_property": Meaning((400,), "Not a valid name for a property."),
    "bad_props": Meaning((), "`props` is not a flat object, has too many entries, or has a bad key."),
    "bad_row": Meaning(
        (400,),
        "A row of a table cannot be read or has a value of another type; the detail has its line, `errors` up to 20 of"
        " them. Nothing was changed.",
    ),
    "bad_step": Meaning(
        (400,), "Not a step: write `1m`, `5m`, `1h`, `1d`, `1mo` or any multiple of the meter's grain."
    ),
    "bad_query": Meaning(
        (400,), "The query cannot be parsed or makes no sense; the detail shows where and the way out."
    ),
    "bad_tag": Meaning((), "A YAML tag in a meters file; only plain values are allowed.", IN_A_FILE),
    "bad_target": Meaning((400,), "The path or query string contains a character that must be encoded."),
    "bad_tenant": Meaning(
        (400,), "The name in `Tallymark-Tenant` or `?tenant=` is not valid, or the request names two tenants."
    ),
    "bad_text": Meaning((400,), "A text is too long, contains U+0000, or is not UTF-8."),
    "bad_time": Meaning((400,), "Not a time: write RFC 3339 with a zone, epoch milliseconds, or (in questions) `-1h`."),
    "bad_value": Meaning((), "`value` is not a finite number."),
    "bad_values": Meaning((), "`values` is not an object of named finite numbers, or has too many."),
    "bad_weight": Meaning((400,), "A weight of a meter is not a number that can be counted."),
    "bad_where": Meaning((400,), "A meter's expression cannot be parsed; the detail shows where."),
    "bad_window": Meaning(
        (400,),
        "Not a window: in a series a multiple of `step`, in a total or top of the meter's grain; the detail has the"
        " nearest.",
    ),
    "bad_yaml": Meaning((), "A meters file is not YAML.", IN_A_FILE),
    "bad_zone": Meaning((400,), "Not a time zone; the detail names the nearest."),
    "built_in": Meaning((409,), "The meters `events` and `metrics` cannot be changed or deleted."),
    "busy": Meaning(
        (503,), "The store changed while it was being read, several times in a row. Try again, or ask for less."
    ),
    "cannot_count": Meaning((400,), "A preview failed because the meter cannot count the events there are."),
    "cannot_join": Meaning(
        (400,), "The meter has no key that is called like the key of the table; group or filter by its own keys."
    ),
    "conflict": Meaning((400,), "Two keys of a definition cannot be used together."),
    "empty": Meaning((400,), "A part of a definition is empty."),
    "empty_range": Meaning((400,), "`from` is not before `to`; ranges are [from, to)."),
    "foreign_origin": Meaning(
        (403,), "The request comes from a page on another origin; list that origin in `collector.cors_origins`."
    ),
    "internal": Meaning((500,), "A bug in Tallymark; the role's log file has the details. Nothing was acknowledged."),
    "log_unreachable": Meaning(
        (503,), "The log does not answer, or not yet if the collector has just started. Try again."
    ),
    "missing_key": Meaning((400,), "A definition lacks a key that it needs, or the rows of a table lack its key."),
    "missing_parameter": Meaning((400,), "The question needs a parameter that is missing."),
    "needs_range": Meaning((400,), "A window, a comparison or a rate needs a range: give `from`."),
    "no_events": Meaning((400,), "The body has no events."),
    "no_file": Meaning((), "A meters file cannot be read.", IN_A_FILE),
    "not_acceptable": Meaning(
        (406,), "`Accept` fits no format of an answer; the detail lists them. `format=` decides regardless of it."
    ),
    "not_an_object": Meaning((), "An event is JSON, but not an object."),
    "not_durable": Meaning(
        (503,), "The log cannot take the events now. Nothing was acknowledged; retry with the same ids."
    ),
    "not_fresh": Meaning(
        (503,),
        "`consistency=fresh`, but the counts are too far behind the log, or nobody can tell. Try again, or ask with"
        " `consistency=cached`.",
    ),
    "not_ready": Meaning((503,), "The store does not answer the query service."),
    "nothing_aside": Meaning((400,), "`late` is for meters that put late events aside; this one does not."),
    "over_limit": Meaning((400,), "The question asks for too much; the detail names the setting and a way out."),
    "over_the_rate": Meaning((429,), "Over `collector.max_events_per_second`. Wait for `Retry-After`."),
    "overloaded": Meaning((503,), "Too much is waiting already. Wait for `Retry-After`."),
    "query_away": Meaning((503,), "The query service is down. Events are still accepted."),
    "query_failed": Meaning((502,), "The query service failed while answering."),
    "query_slow": Meaning((504,), "The query service did not answer in time."),
    "refused": Meaning((400,), "The store refused it; the detail says why."),
    "repeated": Meaning((400,), "A definition says something twice."),
    "repeated_parameter": Meaning((400,), "A parameter that may be given only once is given several times."),
    "reserved": Meaning((400,), "The name is reserved."),
    "short_range": Meaning((400,), "No window fits into the range."),
    "slow_body": Meaning((408,), "The body did not arrive within `collector.body_timeout_s`."),
    "stopping": Meaning((503,), "The service is stopping; try another instance, or try again in a moment."),
    "store_away": Meaning((503,), "The store's file does not answer."),
    "store_unreachable": Meaning((503,), "Too few nodes of the store answer."),
    "too_deep": Meaning((400,), "The JSON is nested too deeply."),
    "too_large": Meaning(
        (413,),
        "A body, a definition, or (in `errors`) an event in the log is too large; the detail has the limit.",
    ),
    "too_large_table": Meaning((400,), "The table takes more memory than is allowed; leave out columns or rows."),
    "too_many": Meaning((400,), "A list in a definition is too long."),
    "too_many_columns": Meaning((400,), "The table has more columns than are allowed."),
    "too_many_events": Meaning((413,), "Over `collector.max_request_events` in one request; send smaller batches."),
    "too_many_listeners": Meaning(
        (503,), "The query service has reached its limit of listeners to one kind of stream."
    ),
    "too_many_parameters": Meaning((400,), "The question has too many parameters."),
    "too_many_names": Meaning(
        (),
        "More event names in the tenant than `collector.max_event_names`, or more new ones than a tenth of that (at "
        "least 100) in one request. Put what varies into `props`, not into `event`.",
    ),
    "too_many_rows": Meaning((400,), "The table, or one body, has more rows than are allowed."),
    "too_many_tenants": Meaning(
        (400, 429),
        "Events (429): more tenants within a day than a collector remembers; wait for `Retry-After`. Meters (400): "
        "more tenants than may have meters. Put what varies into `props`, not into the tenant.",
    ),
    "too_new": Meaning((), "The event is further ahead than `events.accept_future_s`, after clock correction."),
    "too_old": Meaning((), "The event is older than `events.accept_past_s`, after clock correction."),
    "unknown_board": Meaning((404,), "No such board; the detail names the nearest."),
    "unknown_aggregate": Meaning((400,), "No such aggregate; the detail names the nearest."),
    "unknown_column": Meaning((400,), "The table has no such column; the detail names the nearest."),
    "unknown_encoding": Meaning((415,), "`Content-Encoding` may be gzip, zstd or deflate; of tables none."),
    "unknown_field": Meaning((), "Events have no such field; the detail names the nearest."),
    "unknown_function": Meaning((400,), "The meter does not compute it; the detail names the nearest."),
    "unknown_key": Meaning((400,), "The meter, or a definition, has no such key; the detail names the nearest."),
    "unknown_letter": Meaning((404,), "No such dead letter, or it is no longer kept; `tallymark dlq list` shows them."),
    "unknown_meter": Meaning((404,), "No such meter; the detail names the nearest."),
    "unknown_metric": Meaning((404,), "No such metric of the meter; the detail names the nearest."),
    "unknown_parameter": Meaning((400,), "No such parameter; the detail names the nearest."),
    "unknown_path": Meaning((404,), "No such path; the detail names the nearest."),
    "unknown_query": Meaning((404, 400), "No such saved query; the detail names the nearest."),
    "unknown_row": Meaning((404,), "The table has no row with that key."),
    "unknown_table": Meaning((404,), "No such table; the detail names the nearest."),
    "unknown_tenant": Meaning(
        (404,), "No such tenant; the detail names the nearest. A tenant begins with its first event or meter."
    ),
    "unknown_type": Meaning(
        (415,), "Send `application/json` or `application/x-ndjson`, and tables also as `text/csv`, in UTF-8."
    ),
    "wrong_host": Meaning((421,), "The `Host` is not one this service answers to; list it in `collector.hosts`."),
    "wrong_method": Meaning((405,), "The path does not support this method; `Allow` lists those it does."),
    "wrong_type": Meaning((400,), "A value in a definition has the wrong type."),
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
