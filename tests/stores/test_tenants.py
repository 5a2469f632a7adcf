"""What is one tenant's is not another's: meters, numbers, ledgers, dead letters."""

import pytest

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError, UnknownMeter
from tallymark.store.read_plan import Question

VIEWS = Meter("views", ("view",))


def letter(tenant: str, reason: str, at_ms: int = 5) -> DeadLetter:
    return DeadLetter("collector", reason, tenant, 2, b"{}", at_ms, tenant=tenant)


def test_main_is_always_there_and_another_one_begins_with_its_built_in_meters(store):
    assert store.registry.tenants() == ["main"]
    before = store.registry.live_meters()
    for _ in range(2):
        store.registry.add_tenant("acme")
    assert store.registry.tenants() == ["acme", "main"]
    assert [(each.meter.name, each.built_in, each.tenant) for each in store.registry.meters("acme")] == [
        ("events", True, "acme"),
        ("metrics", True, "acme"),
    ]
    after = store.registry.live_meters()
    assert after.revision > before.revision
    assert len({each.meter_id for each in after.meters}) == 4


def test_meters_of_one_name_are_different_meters(store):
    own = store.registry.put_meter("main", VIEWS, now_ms=0)
    other = store.registry.put_meter("acme", Meter("views", ("look",), ("page",)), now_ms=0)
    assert own.meter_id != other.meter_id
    assert (own.version, other.version) == (1, 1)
    frame = deltas.from_rows([(own.set_id, "", 60, 3, 0), (other.set_id, "home", 60, 5, 0)])
    result = StretchResult(Stretch(0, 0, 8), "log", 1, (), deltas.encode(frame), Ledger(accepted=8, counted=8))
    store.sink.apply([result], now_ms=0)
    for _ in range(2):
        with store.snapshots.take() as snapshot:
            found = [snapshot.read(Question(each))["n"].item() for each in (own, other)]
        assert found == [3, 5]
        store.upkeep.fold(most_points=100)
    store.registry.delete_meter("acme", "views", now_ms=1)
    assert store.registry.meter("main", "views") == own
    with pytest.raises(UnknownMeter):
        store.registry.meter("acme", "views")


def test_a_meter_that_is_refused_makes_no_tenant(store):
    for name in ("events", "metrics"):
        with pytest.raises(StoreError, match="built in"):
            store.registry.put_meter("acme", Meter(name, ("view",)), now_ms=0)
    assert store.registry.tenants() == ["main"]


def test_an_unknown_meter_is_answered_with_no_name_of_another_tenant(store):
    store.registry.put_meter("acme", Meter("secret_sales", ("sale",)), now_ms=0)
    with pytest.raises(UnknownMeter) as raised:
        store.registry.meter("main", "secret_sale")
    assert "secret_sales" not in str(raised.value)
    assert store.registry.meters("nobody") == []


def test_the_ledger_of_each_tenant_adds_up_to_that_of_the_partitions(store):
    def result(partition: int, start: int, **tenants: Ledger) -> StretchResult:
        total = sum(tenants.values(), Ledger())
        stretch = Stretch(partition, start, start + 1)
        split = {} if tenants.keys() == {"main"} else tenants
        return StretchResult(stretch, "log", 1, (), b"", total, tenants=split)

    one, two, three = (Ledger(*range(first, first + 7)) for first in (1, 20, 300))
    store.sink.apply([result(0, 0, main=one), result(1, 0, acme=two)], now_ms=0)
    store.sink.apply([result(0, 1, main=two, acme=three)], now_ms=0)
    store.sink.apply([result(0, 2, main=one)], now_ms=0)
    with store.snapshots.take() as snapshot:
        assert snapshot.tenant_ledgers() == {"acme": two + three, "main": one + two + one}
        assert snapshot.ledger() == {0: one + two + three + one, 1: two}


def test_dead_letters_are_listed_and_counted_for_their_tenant(store):
    found = [letter("main", "bad_time"), letter("acme", "bad_time", 9), letter("acme", "too_old")]
    store.dead_letters.take_in("dead-log", Stretch(0, 0, 1), found)
    dead = DeadLetter("pipeline", "maybe_duplicate", "acme", 1, b"x", 7, 0, 0, tenant="acme")
    result = StretchResult(Stretch(0, 0, 1), "log", 1, (), b"", Ledger(accepted=1, aside=1), dead=(dead,))
    store.sink.apply([result], now_ms=7)
    acme, bad_time = "acme", ("collector", "bad_time")
    assert store.dead_letters.counts(tenant="main") == {bad_time: 2}
    assert store.dead_letters.counts(tenant=acme) == {
        bad_time: 2,
        ("collector", "too_old"): 2,
        ("pipeline", "maybe_duplicate"): 1,
    }
    assert store.dead_letters.counts(tenant=None)[bad_time] == 4
    assert store.dead_letters.last_ms(tenant="main") == {bad_time: 5}
    assert store.dead_letters.last_ms(tenant=None)[bad_time] == 9
    assert store.dead_letters.counts(tenant="nobody") == {}
    by_tenant = store.dead_letters.counts_by_tenant()
    assert by_tenant == {each: store.dead_letters.counts(tenant=each) for each in ("acme", "main")}
    assert acme not in store.registry.tenants(), "it has nothing but letters"
    for tenant, listed in (("main", ["main"]), (acme, [acme] * 3), (None, [acme] * 3 + ["main"]), ("nobody", [])):
        summaries = store.dead_letters.search(tenant=tenant)
        assert sorted(each.detail for each in summaries) == listed
        assert all(each.tenant == each.detail for each in summaries)
        kept = [store.dead_letters.get(each.letter_id) for each in summaries]
        assert [each.tenant for each in kept] == [each.tenant for each in summaries]
    assert [each.reason for each in store.dead_letters.search(tenant=acme, reasons=["too_old"])] == ["too_old"]
    assert store.dead_letters.search(tenant="main", hops=["pipeline"]) == []
