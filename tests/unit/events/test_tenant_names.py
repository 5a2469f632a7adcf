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


def admit(names: TenantNames, tenant: str, *events: str) -> int:
    """As for a request whose events are accepted; how many of the names are new."""
    judged_by = names.of(tenant)
    new = judged_by.admit(set(events))
    assert names.adopt(tenant, judged_by)
    return new


def filled(clock: ManualClock) -> TenantNames:
    names = TenantNames(10, clock=clock.now)
    for number in range(MOST_TENANTS - 1):
        admit(names, f"t{number}", "view")
    return names


def test_the_room_of_one_tenant_is_not_that_of_another() -> None:
    names = TenantNames(2)
    admit(names, "acme", "a", "b")
    admit(names, "main", "a", "c")
    with pytest.raises(Refused):
        admit(names, "acme", "c")
    assert admit(names, "acme", "a", "b") == 0
    assert (len(names), names.tenants) == (4, 2)


def test_one_tenant_too_many_is_refused_and_known_ones_go_on() -> None:
    names = filled(ManualClock())
    with pytest.raises(
        TooManyTenants, match=r"tenant 'one-more' would be one more than the 100 .* within the last day"
    ):
        admit(names, "one-more", "view")
    assert admit(names, "t0", "view") == 0
    assert admit(names, "main", "view") == 1, "main has its place, though it came last"
    assert names.tenants == MOST_TENANTS


def test_a_tenant_that_nobody_used_for_a_day_makes_room_and_the_others_stay() -> None:
    clock = ManualClock()
    names = filled(clock)
    clock.advance(FORGOTTEN_AFTER_S / 2)
    admit(names, "t1", "view")
    clock.advance(FORGOTTEN_AFTER_S / 2)
    admit(names, "one-more", "view")
    assert names.tenants == 3, "main, the one that was used since, and the new one"
    assert admit(names, "t1", "view") == 0, "its names are still known"


def test_what_is_kept_is_known_again_with_its_age() -> None:
    clock = ManualClock()
    before = filled(clock)
    admit(before, "main", "sale")
    clock.advance(FORGOTTEN_AFTER_S - 10)
    admit(before, "t1", "view")
    names = TenantNames(10, known=kept(before), clock=clock.now)
    assert names.tenants == MOST_TENANTS
    with pytest.raises(TooManyTenants):
        admit(names, "one-more", "view")
    clock.advance(10)
    admit(names, "one-more", "view")
    assert names.tenants == 3
    assert admit(names, "t1", "view") == 0


def test_what_a_version_without_tenants_kept_is_mains() -> None:
    known = msgspec.json.decode(b'{"recent":["sale"],"older":["view"],"age_s":3.5}', type=KnownTenants)
    names = TenantNames(10, known=known)
    assert admit(names, "main", "sale", "view") == 0
    assert names.tenants == 1


def test_the_older_version_finds_the_names_of_main_where_it_looks_for_them() -> None:
    names = TenantNames(10)
    admit(names, "main", "sale")
    admit(names, "acme", "view")
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
    assert not names.changed, "it has no accepted event yet"
    admit(names, "acme", "view")
    assert names.changed
    names.known()
    clock.advance(REMEMBERED_S / 2)
    admit(names, "acme", "view")
    assert not names.changed


def test_a_tenant_without_an_accepted_event_takes_no_place() -> None:
    names = TenantNames(10)
    for number in range(2 * MOST_TENANTS):
        names.of(f"bad{number}")
    assert names.tenants == 1
    assert admit(names, "acme", "view") == 1


def test_a_tenant_that_is_only_refused_makes_room_after_a_day() -> None:
    clock = ManualClock()
    names = filled(clock)
    clock.advance(FORGOTTEN_AFTER_S / 2)
    names.of("t1")
    clock.advance(FORGOTTEN_AFTER_S / 2)
    admit(names, "one-more", "view")
    assert names.tenants == 2


def test_of_two_first_requests_at_once_one_is_judged_again_by_the_names_of_the_other() -> None:
    names = TenantNames(1)
    first, second = names.of("acme"), names.of("acme")
    first.admit({"a"})
    second.admit({"b"})
    assert names.adopt("acme", first)
    assert not names.adopt("acme", second)
    with pytest.raises(Refused):
        names.of("acme").admit({"b"})
    assert (len(names), names.tenants) == (1, 2)
