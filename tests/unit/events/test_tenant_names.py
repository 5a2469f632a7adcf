"""Event names tenant by tenant: each has its own room, and tenants are bounded as well."""

import msgspec
import pytest

from tallymark.events.names import REMEMBERED_S
from tallymark.events.refusals import Refused
from tallymark.events.tenant_names import FORGOTTEN_AFTER_S, KnownTenants, TenantNames, TooManyTenants
from tallymark.events.tenants import MOST_TENANTS
from tallymark.testing import ManualClock


def kept(names: TenantNames) -> KnownTenants:
    """As it comes back from the file."""
    return msgspec.json.decode(msgspec.json.encode(names.known()), type=KnownTenants)


def filled(clock: ManualClock) -> TenantNames:
    names = TenantNames(10, clock=clock.now)
    for number in range(MOST_TENANTS - 1):
        names.of(f"t{number}").admit({"view"})
    return names


def test_the_room_of_one_tenant_is_not_that_of_another() -> None:
    names = TenantNames(2)
    names.of("acme").admit({"a", "b"})
    names.of("main").admit({"a", "c"})
    with pytest.raises(Refused):
        names.of("acme").admit({"c"})
    assert names.of("acme").admit({"a", "b"}) == 0
    assert (len(names), names.tenants) == (4, 2)


def test_one_tenant_too_many_is_refused_and_known_ones_go_on() -> None:
    names = filled(ManualClock())
    with pytest.raises(
        TooManyTenants, match=r"tenant 'one-more' would be one more than the 100 .* within the last day"
    ):
        names.of("one-more")
    assert names.of("t0").admit({"view"}) == 0
    assert names.of("main").admit({"view"}) == 1, "main has its place, though it came last"
    assert names.tenants == MOST_TENANTS


def test_a_tenant_that_nobody_used_for_a_day_makes_room_and_the_others_stay() -> None:
    clock = ManualClock()
    names = filled(clock)
    clock.advance(FORGOTTEN_AFTER_S / 2)
    names.of("t1").admit({"view"})
    clock.advance(FORGOTTEN_AFTER_S / 2)
    names.of("one-more")
    assert names.tenants == 3, "main, the one that was used since, and the new one"
    assert names.of("t1").admit({"view"}) == 0, "its names are still known"


def test_what_is_kept_is_known_again_with_its_age() -> None:
    clock = ManualClock()
    before = filled(clock)
    before.of("main").admit({"sale"})
    clock.advance(FORGOTTEN_AFTER_S - 10)
    before.of("t1").admit({"view"})
    names = TenantNames(10, known=kept(before), clock=clock.now)
    assert names.tenants == MOST_TENANTS
    with pytest.raises(TooManyTenants):
        names.of("one-more")
    clock.advance(10)
    names.of("one-more")
    assert names.tenants == 3
    assert names.of("t1").admit({"view"}) == 0


def test_what_a_version_without_tenants_kept_is_mains() -> None:
    known = msgspec.json.decode(b'{"recent":["sale"],"older":["view"],"age_s":3.5}', type=KnownTenants)
    names = TenantNames(10, known=known)
    assert names.of("main").admit({"sale", "view"}) == 0
    assert names.tenants == 1


def test_the_older_version_finds_the_names_of_main_where_it_looks_for_them() -> None:
    names = TenantNames(10)
    names.of("main").admit({"sale"})
    names.of("acme").admit({"view"})
    written = msgspec.json.decode(msgspec.json.encode(names.known()))
    assert (written["recent"], written["older"], written["age_s"] >= 0) == (["sale"], [], True)


def test_a_kept_tenant_whose_name_is_none_is_left_out() -> None:
    known = KnownTenants([], [], 0.0, msgspec.json.decode(b'{"A B":{"recent":[],"older":[],"age_s":0}}'))
    known = msgspec.json.decode(msgspec.json.encode(known), type=KnownTenants)
    assert TenantNames(10, known=known).tenants == 1


def test_it_says_when_something_changed() -> None:
    clock = ManualClock()
    names = TenantNames(10, clock=clock.now)
    assert not names.changed
    names.of("acme")
    assert names.changed, "a tenant without a name is one, too: its refused events are kept"
    names.known()
    assert not names.changed
    names.of("acme").admit({"view"})
    assert names.changed
    names.known()
    clock.advance(REMEMBERED_S / 2)
    names.of("acme").admit({"view"})
    assert not names.changed
