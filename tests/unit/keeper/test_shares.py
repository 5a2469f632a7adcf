"""Shares: the keepers that are alive divide the saved queries, and nobody's part stays behind."""

from typing import Any

from tallymark.keeper.shares import ALIVE_MS, Shares
from tallymark.store.windows import SHARES


class Cluster:
    """Leases and heartbeats of several keepers; `kill` silences one until its leases run out."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.holders: dict[str, str] = {}
        self.beating: dict[str, tuple[int, dict[str, Any]]] = {}
        self.dead: set[str] = set()

    def keeper(self, name: str) -> Shares:
        self.beating[name] = (self.now_ms, {})
        return Shares(self, lambda: self.beating, name=name, lease_s=10.0, clock_ms=lambda: self.now_ms)

    def lease(self, role: str, holder: str, *, lease_s: float) -> "OneShare":
        return OneShare(self, role, holder)

    def kill(self, name: str) -> None:
        self.dead.add(name)
        self.now_ms += ALIVE_MS
        for role, (_, facts) in self.beating.items():
            if role not in self.dead:
                self.beating[role] = (self.now_ms, facts)


class OneShare:
    def __init__(self, cluster: Cluster, role: str, holder: str) -> None:
        self._cluster, self._role, self._holder, self._is_over = cluster, role, holder, False

    def take(self) -> bool:
        held = self._cluster.holders.get(self._role, "")
        is_free = not held or held.split(" ")[0] in self._cluster.dead
        if self._is_over or not (is_free or held == self._holder):
            return False
        self._cluster.holders[self._role] = self._holder
        return True

    def watch(self) -> None:
        pass

    def release(self) -> None:
        assert self._cluster.holders.pop(self._role) == self._holder
        self._is_over = True


def settle(*keepers: Shares) -> None:
    for _ in range(3):
        for each in keepers:
            each.balance()


def parts(*keepers: Shares) -> list[int]:
    """How many each has; together they have each share once."""
    held = [share for each in keepers for share in each.held]
    assert sorted(held) == list(range(SHARES))
    return [len(each.held) for each in keepers]


def test_one_keeper_has_all() -> None:
    keeper = Cluster().keeper("keeper")
    settle(keeper)
    assert parts(keeper) == [SHARES]


def test_keepers_that_come_get_their_part_and_those_of_a_killed_one_are_taken_over() -> None:
    cluster = Cluster()
    keepers = [cluster.keeper("keeper/a")]
    settle(*keepers)
    for name in ("keeper/b", "keeper/c", "keeper/d"):
        keepers.append(cluster.keeper(name))
    settle(*keepers)
    assert parts(*keepers) == [4, 4, 4, 4]
    cluster.kill("keeper/b")
    left = [keepers[0], *keepers[2:]]
    settle(*left)
    assert sorted(parts(*left)) == [5, 5, 6]


def test_no_keeper_is_left_without_a_part() -> None:
    cluster = Cluster()
    keepers = [cluster.keeper(f"keeper/{name}") for name in "abcde"]
    settle(*keepers)
    assert parts(*keepers) == [4, 3, 3, 3, 3]


def test_other_roles_and_those_that_said_goodbye_do_not_count() -> None:
    cluster = Cluster()
    cluster.beating |= {"query/a": (cluster.now_ms, {}), "keeper/b": (cluster.now_ms, {"stopped": True})}
    keeper = cluster.keeper("keeper/a")
    settle(keeper)
    assert parts(keeper) == [SHARES]


def test_a_share_that_is_taken_again_is_told_from_the_one_it_was() -> None:
    cluster = Cluster()
    keeper = cluster.keeper("keeper/a")
    keeper.balance()
    before = keeper.held
    cluster.holders["share/3"] = "keeper/b pid 1"
    keeper.balance()
    assert set(before) - set(keeper.held) == {3}
    del cluster.holders["share/3"]
    keeper.balance()
    assert keeper.held[3] != before[3]
    assert {share: number for share, number in keeper.held.items() if share != 3} == {
        share: number for share, number in before.items() if share != 3
    }


def test_what_is_held_is_given_back_at_the_end() -> None:
    cluster = Cluster()
    keeper = cluster.keeper("keeper/a")
    keeper.run(lambda _: True)
    assert cluster.holders == {}
    assert keeper.held == {}
