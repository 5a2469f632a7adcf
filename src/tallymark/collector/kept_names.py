"""The event names in use, tenant by tenant, in a file: a restart must not hand their room to whoever comes first."""

import asyncio
import contextlib
import logging
from pathlib import Path

import msgspec

from tallymark.events.tenant_names import KnownTenants, TenantNames
from tallymark.role import write_atomically

# What a killed collector forgets: the names that were new within this.
SAVE_INTERVAL_S = 10.0

logger = logging.getLogger(__name__)


def load(path: Path) -> KnownTenants | None:
    """The names of the last run; None if there are none, or they cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownTenants)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        logger.warning("cannot read %s; event names are learned again: %s", path, error)
        return None


def save(path: Path, names: TenantNames) -> None:
    try:
        write_atomically(path, msgspec.json.encode(names.known()))
    except OSError as error:  # a full disk: the next change is another try
        logger.warning("cannot write %s; event names are learned again after a restart: %s", path, error)


async def keep_saved(path: Path, names: TenantNames, *, until: asyncio.Event) -> None:
    """Save what has changed now and then, and all of it, with its age, in the end."""
    last = False
    while not last:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(until.wait(), SAVE_INTERVAL_S)
        last = until.is_set()
        if names.changed or last:
            await asyncio.to_thread(save, path, names)
