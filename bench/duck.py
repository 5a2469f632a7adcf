"""The same rows in DuckDB, in this process: what a good analytical engine does with them."""

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl

_P99 = """
WITH slots AS (
    SELECT slot, SUM(number) AS number FROM latency JOIN chosen USING (server)
    WHERE bucket_s >= ? AND bucket_s < ? GROUP BY slot
), running AS (
    SELECT slot, SUM(number) OVER (ORDER BY slot) AS through, SUM(number) OVER () AS total FROM slots
)
SELECT MIN(slot) FROM running WHERE through >= CEIL(0.99 * total)
"""


class Duck:
    """A table of minutes and a table of histogram slots, filled as they come and indexed by nothing, as usual."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "same-rows.duckdb"
        self._connection = duckdb.connect(str(self._path))
        self._connection.execute(
            "CREATE TABLE videos (video VARCHAR, bucket_s BIGINT, n BIGINT, sum DOUBLE, min DOUBLE, max DOUBLE)"
        )
        self._connection.execute("CREATE TABLE latency (server VARCHAR, bucket_s BIGINT, slot INTEGER, number BIGINT)")
        self._connection.execute("CREATE TABLE chosen (server VARCHAR)")

    def add_videos(self, found: pl.DataFrame) -> None:
        part = found.select("series", "bucket_s", "n", "sum", "min", "max").to_arrow()
        self._connection.register("part", part)
        self._connection.execute("INSERT INTO videos SELECT * FROM part")

    def add_slots(self, found: pl.DataFrame) -> None:
        self._connection.register("part", found.to_arrow())
        self._connection.execute("INSERT INTO latency SELECT 'web-' || server, bucket_s, slot, number FROM part")

    def choose(self, servers: list[str]) -> None:
        self._connection.register("part", pl.DataFrame({"server": servers}).to_arrow())
        self._connection.execute("DELETE FROM chosen")
        self._connection.execute("INSERT INTO chosen SELECT * FROM part")

    def settle(self) -> int:
        """Bytes of the file."""
        self._connection.execute("CHECKPOINT")
        return self._path.stat().st_size

    def questions(self) -> dict[str, Callable[[int], object]]:
        """Each takes the number of the question, so that no two ask for the same video."""
        ask = self._ask
        select = "SUM(n), SUM(sum), MIN(min), MAX(max) FROM videos"
        within = "bucket_s >= ? AND bucket_s < ?"

        return {
            "total of a video": lambda number: ask(f"SELECT {select} WHERE video = ?", _video(number)),
            "total of all": lambda _: ask(f"SELECT {select}"),
            "24 h series of a video": lambda number: ask(
                f"SELECT bucket_s, {select} WHERE video = ? AND {within} GROUP BY 1 ORDER BY 1",
                _video(number),
                *_last(86_400),
            ),
            "24 h series of all": lambda _: ask(
                f"SELECT bucket_s, {select} WHERE {within} GROUP BY 1 ORDER BY 1", *_last(86_400)
            ),
            "top 10 of the last hour": lambda _: ask(
                f"SELECT video, {select} WHERE {within} GROUP BY 1 ORDER BY 2 DESC LIMIT 10", *_last(3_600)
            ),
            "p99 of 1,000 servers, last minute": lambda _: ask(_P99, *_last(60)),
            "p99 of 1,000 servers, last hour": lambda _: ask(_P99, *_last(3_600)),
        }

    def close(self) -> None:
        self._connection.close()

    def _ask(self, sql: str, *parameters: object) -> object:
        return self._connection.execute(sql, list(parameters)).fetchall()


def _video(number: int) -> str:
    return f"video-{number}"


def _last(seconds: int) -> tuple[int, int]:
    """From when until when, in whole minutes, as the query service widens a range."""
    now_s = time.time_ns() // 1_000_000_000
    return (now_s - seconds) // 60 * 60, now_s // 60 * 60 + 60
