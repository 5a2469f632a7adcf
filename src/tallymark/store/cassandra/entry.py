"""Entries of the journal: what one batch applied, in the book of events under its sequence."""

import msgspec

KIND = "entry"


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One stretch of a batch, with its deltas or where they lie."""

    partition: int
    start: int
    end: int
    deposit: str
    inline: bytes


class Entry(msgspec.Struct, frozen=True, array_like=True):
    applied_ms: int
    parts: tuple[Part, ...]

    @property
    def deposits(self) -> list[str]:
        return [part.deposit for part in self.parts if part.deposit]


_decoder = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    return msgspec.msgpack.encode(entry)


def decode(value: bytes) -> Entry:
    return _decoder.decode(value)
