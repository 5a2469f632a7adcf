"""What an event is when it is sent: its fields and their limits."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
NAME_RULE = "[A-Za-z_][A-Za-z0-9_.:-]{0,127}"
MAX_ID_CHARS = 256
MAX_PROPS = 64
MAX_KEY_CHARS = 128
MAX_TEXT_BYTES = 1024
MAX_VALUES = 4096
# The names of one event's `values` together, so that one event always fits into a frame whatever its script.
MAX_VALUE_NAMES_BYTES = MAX_VALUES * MAX_KEY_CHARS
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
WIDEST_INT = 2**64

Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
# Characters here, bytes in `validation`: characters cost nothing to check while decoding.
Text = Annotated[str, Meta(max_length=MAX_TEXT_BYTES)]
Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
# Keys are plain here and checked in `validation`: msgspec keeps one object a key only for plain ones, and that makes
# decoding 0.1 us an event cheaper and every later look-up as well.
# Times stay text here: Arrow reads a column of them at half the cost of a datetime each.
Time = str | Int64 | float | None
Props = Annotated[dict[str, Text | Int64 | float | bool | None], Meta(max_length=MAX_PROPS)]
WideProps = Annotated[dict[str, Text | int | float | bool | None], Meta(max_length=MAX_PROPS)]
Values = Annotated[dict[str, float | None], Meta(max_length=MAX_VALUES)]


class Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One event as sent. Everywhere in it null means the same as absent."""

    event: str
    id: Id | None = None
    time: Time = None
    value: float | None = None
    values: Values | None = None
    props: Props | None = None
    sent_at: Time = None
    resent: Time = None
    """when the client first tried, if this is a resend of unknown outcome"""


class WideEvent(Event, gc=False, forbid_unknown_fields=True):
    """An event with whole numbers beyond 64 bits: rarer and slower, they travel as text."""

    props: WideProps | None = None


class Envelope(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Events with the moment at which this attempt was sent."""

    events: list[Event]
    sent_at: Time = None


FIELDS = tuple(Event.__struct_fields__)
