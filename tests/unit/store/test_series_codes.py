"""Series as numbers: which have which labels, and how they are grouped."""

from tallymark.store import series_codes
from tallymark.store.model import label_column
from tallymark.store.series_codes import SeriesCodes, is_among


def codes() -> SeriesCodes:
    found = SeriesCodes(("video", "country"))
    assert found.of(["B\0KR", "A\0US", "B\0KR", "A\0KR"]).tolist() == [0, 1, 0, 2]
    return found


def test_a_series_keeps_its_number_when_others_come():
    found = codes()
    assert found.table()["series"].to_list() == ["B\0KR", "A\0US", "A\0KR"]
    assert found.of(["C\0", "A\0US"]).tolist() == [3, 1]
    assert found.table()[label_column("country")].to_list() == ["KR", "US", "KR", ""]


def test_series_are_chosen_by_their_labels(monkeypatch):
    for most_named in (series_codes.MOST_NAMED, 0):
        monkeypatch.setattr(series_codes, "MOST_NAMED", most_named)
        assert codes().chosen({"country": ["KR", "nowhere"]}).tolist() == [0, 2]
        assert codes().chosen({"country": ["KR"], "video": ["A", "B", "C"]}).tolist() == [0, 2]
        assert codes().chosen({"country": [], "video": ["A"]}).tolist() == []


def test_groups_are_in_the_order_of_their_labels():
    found = codes()
    groups = found.groups(["video"])
    assert groups.labels.rows() == [("A",), ("B",)]
    assert groups.of_code.tolist() == [1, 0, 0]
    assert found.groups(["video"]) is groups
    found.of(["0\0KR"])
    assert found.groups(["video"]).of_code.tolist() == [2, 1, 1, 0]
    assert found.groups(["country", "video"]).labels.rows() == [("KR", "0"), ("KR", "A"), ("KR", "B"), ("US", "A")]
    assert found.groups([]).of_code.tolist() == [0, 0, 0, 0]


def test_few_groupings_are_kept(monkeypatch):
    monkeypatch.setattr(series_codes, "MOST_GROUPINGS", 2)
    found = codes()
    oldest, *others = [found.groups(by) for by in (["video"], ["country"], ["country", "video"])]
    assert [found.groups(by) for by in (["country"], ["country", "video"])] == others
    assert found.groups(["video"]) is not oldest


def test_those_beyond_a_fold_come_later_as_text():
    assert codes().beyond("A\0US").tolist() == [True, False, False]


def test_is_among():
    found = codes()
    assert is_among(found.of(["A\0KR", "B\0KR"]), found.chosen({"video": ["A"]})).tolist() == [True, False]
    assert is_among(found.of(["A\0KR"]), found.chosen({"video": ["nobody"]})).tolist() == [False]
