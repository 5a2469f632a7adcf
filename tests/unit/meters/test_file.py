"""Files of meters: every flaw with its line and column, and what applying a file would do."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.meters import Change, Flaw, Meter, MeterError, Plan, plan
from tallymark.meters.file import MAX_BYTES, load, loads
from tallymark.meters.model import BUILT_IN, EVENTS, METRICS, Late

GOOD = """\
meters:
  - {name: views,    event: view, by: [video, country], compute: [count]}
  - {name: latency,  event: rpc,  by: [server], value: ms, where: "status = 'ok'", compute: [count, min, max, avg]}
  - {name: revenue,  event: [sale, refund], by: [country], value: amount, decimals: 2, compute: [count, sum]}
  - {name: metrics,  event: metrics, by: [server], each: values, compute: [min, max, avg]}     # adds `metric`
"""


def test_the_file_of_the_contract(tmp_path):
    path = tmp_path / "meters.yaml"
    path.write_text(GOOD)
    assert load(path) == [
        Meter("views", ("view",), ("video", "country")),
        Meter("latency", ("rpc",), ("server",), ("count", "min", "max", "avg"), value="ms", where="status = 'ok'"),
        Meter("revenue", ("refund", "sale"), ("country",), ("count", "sum"), value="amount", decimals=2),
        Meter("metrics", ("metrics",), ("server",), ("min", "max", "avg"), each="values"),
    ]


def test_all_flaws_of_a_file_are_told_in_its_order(tmp_path):
    text = """\
meters:
  - {name: latency, event: rpc, where: "status = ok", compute: [count, p00, maxx]}
  - {name: views, event: view, computes: [count]}
  - name: visitors
    event: view
    distinct: [user]
    where: >-
      user is
      nothing
  - {name: views, event: x y, event: z, by: [a, a]}
  - {event: x, decimals: 12, where: }
  - views
  - {name: Big, event: [x, 5]}
meter: []
"""
    assert _errors(text) == [
        "meters.yaml:2:50: expected a 'text', a number, true or false, found 'ok'; text needs quotes: 'ok'",
        "  status = ok",
        "           ^",
        "meters.yaml:2:72: unknown aggregate 'p00' in meter 'latency'; the least value is min",
        "meters.yaml:2:77: unknown aggregate 'maxx' in meter 'latency'; did you mean max?",
        "meters.yaml:3:32: unknown key 'computes' in meter 'views'; did you mean compute?",
        "meters.yaml:6:15: distinct is the name of the property whose values are counted, not a list",
        "meters.yaml:7:12: expected null, found 'nothing'",
        "  user is nothing",
        "          ^",
        "meters.yaml:10:12: another meter named 'views'; the first is at meters.yaml:3:12",
        "meters.yaml:10:26: 'x y' is not an event name: a letter or _, then up to 127 letters, digits and _ . : -",
        "meters.yaml:10:31: the key 'event' is repeated; the first is in line 10",
        "meters.yaml:10:49: 'a' is listed twice in by in meter 'views'",
        "meters.yaml:11:5: no 'name'; every meter needs a name",
        "meters.yaml:11:26: decimals is a whole number from 0 to 9, not 12",
        "meters.yaml:11:36: where is empty; give it a value or leave it out",
        "meters.yaml:12:5: a meter is a mapping with keys like name and event, not 'views'",
        "meters.yaml:13:12: 'Big' is not a meter name: a lower-case letter, then up to 63 of a-z, 0-9 and _",
        "meters.yaml:13:28: 5 is not the name of an event; a text is needed (quote it)",
        "meters.yaml:14:1: unknown key 'meter'; did you mean meters?",
    ]


def test_flaws_of_nested_keys_have_their_own_place():
    text = """\
meters:
  - name: trending
    weights: {view: 1, like: .inf, li ke: 2}
    late:
      after: 1h
      then: dorp
  - {name: views, event: view, late: {after: 1 hour, whn: x, then: drop}, grain: 5m}
"""
    assert _errors(text) == [
        "meters.yaml:3:30: the weight of 'like' in meter 'trending' is a finite number under 1e280, not '.inf'",
        "meters.yaml:3:43: 'li ke' is not an event name: a letter or _, then up to 127 letters, digits and _ . : -",
        "meters.yaml:6:13: then is count, aside or drop, not 'dorp'; did you mean drop?",
        "meters.yaml:7:46: after is a whole number and s, m, h, d or w, like 90s, 5m, 1h or 7d, not '1 hour'",
        "meters.yaml:7:54: unknown key 'whn' in late in meter 'views'; did you mean then?",
        "meters.yaml:7:82: grain is the finest step that is kept: 1s, 10s or 1m, not '5m';"
        " coarser steps are made from it",
    ]


def test_paths_name_the_meter_too():
    with pytest.raises(MeterError) as caught:
        loads("meters: [{name: a, event: x}, {name: b, event: x, compute: [count, summ]}]", name="f.yaml")
    (flaw,) = caught.value.flaws
    assert (flaw.path, flaw.place) == ("meters[1].compute[1]", "f.yaml:1:68")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "meters.yaml:1:1: no list `meters:`; a file starts with it"),
        ("[]", "meters.yaml:1:1: no list `meters:`; a file starts with it"),
        ("meters: {name: a}", "meters.yaml:1:9: meters is a list of meters, not a mapping"),
        ("meters:", "meters.yaml:1:8: meters is a list of meters, not nothing"),
        ("meters: [\n  {name: a", "meters.yaml:2:11: expected ',' or '}', but got '<stream end>'"),
        (
            "meters: []\n---\nmeters: []",
            "meters.yaml:2:1: expected a single document in the stream but found another document",
        ),
        ("meters: [*a]", "meters.yaml:1:10: found undefined alias 'a'"),
        ("meters: []\nmeters: []", "meters.yaml:2:1: the key 'meters' is repeated; the first is in line 1"),
        ("meters: []\n? [a]\n: b", "meters.yaml:2:3: a key must be a word"),
        ("meters: []\na\tb: \x01", "meters.yaml:2:6: character U+0001 is not allowed"),
        (
            "meters: [{name: a, event: !!python/name:os.system x}]",
            "meters.yaml:1:27: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed; plain values only",
        ),
        (
            "meters: !!python/object/apply:exit []",
            "meters.yaml:1:9: the tag 'tag:yaml.org,2002:python/object/apply:exit' is not allowed; plain values only",
        ),
    ],
)
def test_what_is_no_file_of_meters(text, error):
    assert _errors(text) == [error]


def test_words_that_old_yaml_takes_for_booleans_are_words():
    (meter,) = loads("meters: [{name: a, event: on, by: [no, yes, y, 2024-01-01], where: 'no = 1'}]")
    assert (meter.events, meter.by, meter.where) == (("on",), ("no", "yes", "y", "2024-01-01"), "no = 1")


def test_aliases_are_followed():
    text = "meters:\n - {name: a, event: x, by: &by [p, q]}\n - {name: b, event: x, by: *by}\n"
    assert [meter.by for meter in loads(text)] == [("p", "q"), ("p", "q")]


# Nine lines, 9^9 nodes once every alias is followed.
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    "text",
    [
        "meters: &a [*a]",
        "meters: &a {b: *a}",
        "[" * 100_000,
        "meters: " + "{a: " * 50_000,
        "- " * 100_000,
        BOMB,
        'meters: "\\UFFFFFFFF"',
        "%YAML " + "9" * 5_000 + ".1\n---\nmeters: []",
        "meters: [" + "9" * 10_000 + "]",
    ],
    ids=range(9),
)
def test_hostile_files_are_errors(text):
    with pytest.raises(MeterError) as caught:
        loads(text)
    assert len(str(caught.value)) < 10_000


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(MeterError, match=r"none\.yaml: cannot read it: No such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(MeterError, match="cannot read it: Is a directory"):
        load(tmp_path)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(MeterError, match="more than 1,000,000 bytes"):
        load(large)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("meters:\n  - {name: caf\xe9}".encode("latin-1"))
    with pytest.raises(MeterError, match=r"latin\.yaml:2:15: not UTF-8"):
        load(latin)
    marked = tmp_path / "marked.yaml"
    marked.write_bytes(b"\xef\xbb\xbfmeters: []")
    assert load(marked) == []


PIECES = [
    "meters:",
    "\n",
    "  ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "name: a",
    "event: x",
    ", ",
    "&a ",
    "*a",
    "!!int ",
    '"',
    "'",
    "\\",
    ": ",
    "? ",
    "|",
    ">",
    "#",
    "%",
    "---",
    "<<: ",
]


@given(st.text(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_text_is_a_file_or_an_error(text):
    try:
        outcome = loads(text)
    except MeterError as error:
        outcome = error.flaws
    assert all(isinstance(each, Meter | Flaw) for each in outcome)


def test_a_plan_says_what_would_be_added_changed_and_left():
    views = Meter("views", ("view",), ("video",))
    wider = Meter("views", ("view",), ("video", "country"), where="country is not null")
    sales, clicks, old = Meter("sales", ("sale",)), Meter("clicks", ("click",)), Meter("old", ("x",))
    planned = plan([EVENTS, METRICS, views, sales, old], [clicks, wider, sales, EVENTS, METRICS], built_in=BUILT_IN)
    assert (planned.added, planned.unchanged, planned.missing) == ((clicks,), (sales,), (old,))
    (change,) = planned.changed
    assert (change.before, change.after) == (views, wider)
    assert [str(difference) for difference in change.differences] == [
        "by: [video] -> [video, country]",
        "where: none -> country is not null",
    ]


def test_a_change_of_what_is_kept_begins_anew_and_is_shown():
    before = Meter("a", ("x",), weights=(("x", 1.0),), late=Late(3600, "count"))
    after = Meter("a", ("x",), grain_s=1, weights=(("x", 2.5),), late=Late(90, "drop"), max_series=1000)
    (change,) = plan([before], [after]).changed
    assert [str(difference) for difference in change.differences] == [
        "grain: 1m -> 1s",
        "weights: {x: 1} -> {x: 2.5}",
        "late: {after: 1h, then: count} -> {after: 90s, then: drop}",
        "max_series: none -> 1000",
    ]
    assert not change.keeps_numbers


@pytest.mark.parametrize(
    "other",
    [{"grain_s": 10}, {"distinct": "u"}, {"late": Late(60, "aside")}, {"max_series": 5}, {"weights": (("x", 1.0),)}],
)
def test_only_another_compute_or_keep_keeps_the_numbers(other):
    meter = Meter("a", ("x",))
    assert Change(meter, replace(meter, compute=("count", "max"))).keeps_numbers
    assert not Change(meter, replace(meter, **other)).keeps_numbers


def test_another_keep_is_shown_and_keeps_the_numbers():
    meter = Meter("a", ("x",), each="values")
    change = Change(meter, replace(meter, keep="queried"))
    assert [str(difference) for difference in change.differences] == ["keep: all -> queried"]
    assert change.keeps_numbers


def test_a_plan_may_change_keep_of_a_built_in_meter():
    queried = replace(METRICS, keep="queried")
    assert plan([EVENTS, METRICS], [queried], built_in=BUILT_IN).changed == (Change(METRICS, queried),)
    assert plan([EVENTS, queried], [METRICS], built_in=BUILT_IN).changed == (Change(queried, METRICS),)
    assert plan([EVENTS, queried], [], built_in=BUILT_IN) == Plan((), (), (), ())
    assert plan([], [queried], built_in=BUILT_IN).added == (queried,)


def test_any_percentile_of_a_meter_with_one_is_not_newly_computed():
    plain, median = Meter("a", ("x",), compute=("avg",)), Meter("a", ("x",), compute=("avg", "p50"))
    assert Change(plain, median).newly_computed == ("p50",)
    assert Change(median, replace(median, compute=("count", "sum", "rate", "p99", "p99.9"))).newly_computed == ()


def test_a_plan_leaves_built_in_meters_alone_and_refuses_another_definition():
    own = Meter("metrics", ("metrics",), ("host",))
    for wanted in ([], [METRICS]):
        assert plan([EVENTS, METRICS], wanted, built_in=BUILT_IN) == Plan((), (), (), ())
    with pytest.raises(MeterError, match="'metrics' is built in and cannot be redefined"):
        plan([EVENTS, METRICS], [Meter("views", ("view",)), own], built_in=BUILT_IN)
    assert plan([own], [own]).unchanged == (own,)
    assert plan([own], []).missing == (own,)


@given(st.dictionaries(st.sampled_from("abcd"), st.booleans()), st.dictionaries(st.sampled_from("abcd"), st.booleans()))
def test_every_meter_is_in_exactly_one_part_of_a_plan(current, wanted):
    def meters(described):
        return [Meter(name, ("x",), ("p",) if wide else ()) for name, wide in described.items()]

    planned = plan(meters(current), meters(wanted))
    names = [m.name for m in (*planned.added, *planned.unchanged, *planned.missing)]
    names += [change.after.name for change in planned.changed]
    assert sorted(names) == sorted(current.keys() | wanted.keys())
    assert {m.name for m in planned.added} == wanted.keys() - current.keys()
    assert {m.name for m in planned.missing} == current.keys() - wanted.keys()
    assert {m.name for m in planned.unchanged} == {name for name in current if current[name] == wanted.get(name)}
    assert all(change.differences for change in planned.changed)


def test_a_message_names_a_hundred_flaws_and_counts_the_rest():
    with pytest.raises(MeterError) as caught:
        loads("meters:\n" + "  - {name: A, event: x}\n" * 103)
    assert len(caught.value.flaws) == 103 + 102  # each name is bad, and all but the first are repeated
    assert str(caught.value).split("\n")[-1] == "… and 105 more"


def _errors(text):
    with pytest.raises(MeterError) as caught:
        loads(text)
    return str(caught.value).split("\n")
