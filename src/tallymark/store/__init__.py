"""The store: what was applied, the journal, the points, the meters."""

from tallymark.settings import Settings
from tallymark.store.address import StoreAddress, address
from tallymark.store.protocol import Store

__all__ = ["StoreAddress", "address", "open_store"]


def open_store(settings: Settings) -> Store:
    """The store that these settings name; makes it if there is none."""
    return address(settings).open_store()
