"""The version of what the store writes: tables, journal entries and cells share one number.

A store of an older version is migrated when it is opened, one of a newer version is refused. No Polars here: the
collector opens stores too.

| version | since then |
|---|---|
| 2 | (1 on Cassandra) the first that was released |
| 3 | sketches; marks by grain; points by second and by ten seconds |
| 4 | the aggregate `last` |
| 5 | tenants; versions of a meter that share their points |
| 6 | meters by the second; what came late in a set of its own; a limit to the series of a meter |
| 7 | documents: saved queries, boards, tables; stored windows; meters that keep what is queried |
"""

VERSION = 7


def newer(what: str, found: object) -> str:
    """Why something is refused that a newer version wrote."""
    return (
        f"{what} has format {found}, but this version of Tallymark reads formats up to {VERSION};"
        " use the version that wrote it, or a newer one"
    )
