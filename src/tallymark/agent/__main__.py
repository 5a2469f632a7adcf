"""The measuring process, started by the supervisor with its settings as one JSON argument."""

import json
import sys
from pathlib import Path

from tallymark import Client
from tallymark.agent.service import measure
from tallymark.agent.supervising import NAME, heartbeat_file
from tallymark.role import Role
from tallymark.settings import AgentSettings, Settings

HELD_EVENTS = 32
"""in memory; the rest of an outage goes to disk. This much is lost if the agent is killed while no server answers"""
CONNECT_TIMEOUT_S = 1.0
"""a server may be far away, and nobody waits for the agent's calls"""


def main(facts: str) -> None:
    given = json.loads(facts)
    folder, settings = Path(given["folder"]), AgentSettings(**given["agent"])
    with Role(Settings(data=str(folder)), NAME) as role:
        client = Client(
            urls=settings.urls,
            tenant=settings.tenant or None,
            when_full="spill",
            spill_folder=folder / "spill",
            max_spill_bytes=settings.max_spill_bytes,
            max_events=HELD_EVENTS,
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )
        with client:
            measure(settings, client, stopping=role.stopping, heartbeat=heartbeat_file(folder), ready=role.announce)


if __name__ == "__main__":
    main(sys.argv[1])
