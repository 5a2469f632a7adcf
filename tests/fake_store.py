"""A store in memory: every delta in one frame, grouped anew for each question. Slow, short, and hard to get wrong."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import polars as pl

from tallymark.aggregates import columns, exact
from tallymark.meters.model import EVENTS, METRICS, Meter
from tallymark.store import deltas
from tallymark.store.model import (
    DeadLetter,
    Gap,
    Lag,
    Ledger,
    LetterSummary,
    LiveMeters,
    RegisteredMeter,
    StretchResult,
    label_column,
)
from tallymark.store.protocol import TooManyRows, UnknownMeter


class FakeStore:
    def __init__(self) -> None:
        self.registered = {
            meter.name: RegisteredMeter(number, 1, meter, created_ms=0)
            for number, meter in enumerate((EVENTS, METRICS), start=1)
        }
        self.versions = 2
        self.journal: list[tuple[int, pl.DataFrame]] = []
        self.ledgers: dict[int, Ledger] = {}
        self.positions: dict[int, int] = {}
        self.lags: list[Lag] = []
        self.letters: dict[tuple[str, str], int] = {}
        self.kept: list[DeadLetter] = []
        self.last_dead_ms: dict[tuple[str, str], int] = {}
        self.heard: dict[str, tuple[int, dict[str, Any]]] = {}
        self.journal_reads = 0
        self.failure: Exception | None = None

    # Registry

    def live_meters(self) -> LiveMeters:
        return LiveMeters(self.versions, tuple(self.meters()))

    def meters(self) -> list[RegisteredMeter]:
        return list(self.registered.values())

    def meter(self, name: str) -> RegisteredMeter:
        if name not in self.registered:
            raise UnknownMeter(name)
        return self.registered[name]

    def put_meter(self, meter: Meter, *, now_ms: int) -> RegisteredMeter:
        before = self.registered.get(meter.name)
        if before is None or before.meter != meter:
            self.versions += 1
            version = 1 if before is None else before.version + 1
            self.registered[meter.name] = RegisteredMeter(self.versions, version, meter, now_ms)
        return self.registered[meter.name]

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        del self.registered[name]

    def break_meter(self, name: str, why: str, *, missed: int = 0) -> None:
        self.registered[name] = replace(self.registered[name], broken=why, missed=missed)

    def resume_meter(self, name: str) -> RegisteredMeter:
        self.registered[name] = replace(self.registered[name], broken=None)
        return self.registered[name]

    def gaps(self, meter_id: int) -> list[Gap]:
        return [Gap(0, 10, 20, each.missed) for each in self.meters() if each.meter_id == meter_id and each.missed]

    # Sink

    def applied(self, log_identity: str) -> dict[int, int]:
        return dict(self.positions)

    def apply(self, results: Sequence[StretchResult], *, now_ms: int) -> list[StretchResult]:
        raise NotImplementedError("use count()")

    def count(self, meter: str, *rows: tuple[tuple[str, ...], int, Sequence[float | None]]) -> None:
        """One batch: (labels, bucket_s, values of its events; None is an event without a value)."""
        registered = self.registered[meter]
        self.journal.append((len(self.journal) + 1, deltas.from_rows([_row(registered, *row) for row in rows])))

    # Reading

    @contextmanager
    def snapshot(self) -> Iterator["FakeSnapshot"]:
        if self.failure:
            raise self.failure
        yield FakeSnapshot(self)

    def journal_since(self, sequence: int) -> list[tuple[int, pl.DataFrame]]:
        self.journal_reads += 1
        return [entry for entry in self.journal if entry[0] > sequence]

    def journal_end(self) -> int:
        return self.journal[-1][0] if self.journal else 0

    def dead_letters(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]:
        return [*enumerate(self.kept, start=1)][::-1][:limit]

    def list_dead_letters(
        self, *, hops: Collection[str] = (), reasons: Collection[str] = (), limit: int = 100
    ) -> list[LetterSummary]:
        return [
            LetterSummary.of(number, letter)
            for number, letter in self.dead_letters(limit=1_000_000)
            if (not hops or letter.hop in hops) and (not reasons or letter.reason in reasons)
        ][:limit]

    def dead_letter(self, letter_id: int) -> DeadLetter | None:
        return self.kept[letter_id - 1] if 0 < letter_id <= len(self.kept) else None

    def bury(self, letter: DeadLetter) -> None:
        self.kept.append(letter)
        kind = letter.hop, letter.reason
        self.letters[kind] = self.letters.get(kind, 0) + letter.events
        self.last_dead_ms[kind] = letter.at_ms

    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        return self.letters

    def last_dead_letters_ms(self) -> dict[tuple[str, str], int]:
        return self.last_dead_ms

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self.heard[role] = (now_ms, dict(facts))

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        return self.heard

    def close(self) -> None:
        pass


class FakeSnapshot:
    def __init__(self, store: FakeStore) -> None:
        self._store = store

    def read(
        self,
        meter: RegisteredMeter,
        *,
        where: Mapping[str, Sequence[str]],
        by: Sequence[str],
        start_s: int | None,
        end_s: int | None,
        step_s: int | None,
        most_rows: int | None = None,
    ) -> pl.DataFrame:
        assert not any((each or 0) % 60 for each in (start_s, end_s, step_s)), "whole minutes only"
        frame = pl.concat([deltas.empty(), *(frame for _, frame in self._store.journal)])
        frame = frame.filter(pl.col("meter") == meter.meter_id)
        parts = pl.col("series").str.split("\0")
        frame = frame.with_columns(
            parts.list.get(place).alias(label_column(label)) for place, label in enumerate(meter.labels)
        )
        for label, wanted in where.items():
            frame = frame.filter(pl.col(label_column(label)).is_in(list(wanted)))
        frame = frame.filter(pl.col("bucket_s") >= (start_s or 0), pl.col("bucket_s") < (end_s or 1 << 60))
        keys = [label_column(label) for label in by]
        if step_s is not None:
            frame = frame.with_columns(pl.col("bucket_s") // step_s * step_s)
            keys.append("bucket_s")
        answer = columns.merge(frame, keys)
        if most_rows is not None and answer.height > most_rows:
            raise TooManyRows(most_rows)
        return answer

    @property
    def journal_end(self) -> int:
        return len(self._store.journal)

    def ledger(self) -> dict[int, Ledger]:
        return self._store.ledgers

    def applied(self) -> dict[int, int]:
        return dict(self._store.positions)

    def lag(self, *, since_ms: int) -> Lag | None:
        recent = [lag for lag in self._store.lags if lag.at_ms >= since_ms]
        return recent[-1] if recent else None


def _row(
    registered: RegisteredMeter, labels: tuple[str, ...], bucket_s: int, events: Sequence[float | None]
) -> tuple[Any, ...]:
    numbers = [event for event in events if event is not None]
    decimals = registered.meter.decimals
    total = sum(numbers) if numbers and decimals is None else None
    parts: tuple[int | None, int | None] = (None, None)
    if numbers and decimals is not None:
        parts = exact.split(sum(round(number * 10**decimals) for number in numbers))
    least, most = (min(numbers), max(numbers)) if numbers else (None, None)
    return registered.meter_id, "\0".join(labels), bucket_s, len(events), len(numbers), total, *parts, least, most
