"""What all roles share: their process and its place in the run folder, heartbeats, leases, and how they wait."""

from tallymark.role.process import Role, RoleBusy
from tallymark.role.run_folder import file_stem, write_atomically

__all__ = ["Role", "RoleBusy", "file_stem", "write_atomically"]
