"""Meters from a YAML file, with the line and column of everything that is wrong with it."""

import os
from collections.abc import Iterator
from pathlib import Path as FilePath

import yaml

from tallymark.meters.definition import read
from tallymark.meters.errors import Flaw, Flaws, MeterError, Path, dotted, shown
from tallymark.meters.model import Meter
from tallymark.suggest import suggest

MAX_BYTES = 1_000_000
MAX_DEPTH = 16
MAX_NODES = 100_000
"""after aliases are followed: nine lines of nine aliases each would be 387 million"""

_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + kind for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "merge")}


def load(path: FilePath | str) -> list[Meter]:
    """The meters of a file in its order; raises MeterError with every flaw, each as `file:line:column: …`."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MeterError([Flaw("no_file", f"cannot read it: {error.strerror}", place=name)]) from error
    if len(content) > MAX_BYTES:
        raise MeterError([Flaw("too_large", f"the file has more than {MAX_BYTES:,} bytes; split it", place=name)])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise MeterError([Flaw("bad_text", "not UTF-8", place=f"{name}:{line}:{column}")]) from error
    return loads(text, name=name)


def loads(text: str, *, name: str = "meters.yaml") -> list[Meter]:
    """The meters of a text; `name` stands in its messages."""
    tree = _Tree(name, text)
    flaws = Flaws(places=tree)
    document = tree.value(_compose(name, text), (), flaws)
    meters = list(_meters(document, flaws))
    flaws.found.sort(key=lambda flaw: _position(flaw.place))
    flaws.raise_if_any()
    return meters


def _meters(document: object, flaws: Flaws) -> Iterator[Meter]:
    if not isinstance(document, dict) or "meters" not in document:
        if not flaws.found:
            flaws.add("missing_key", "no list `meters:`; a file starts with it", ())
        document = document if isinstance(document, dict) else {}
    for key in document.keys() - {"meters"}:
        flaws.add("unknown_key", f"unknown key {shown(key)}{suggest(key, ['meters'])}", (key,), key=True)
    listed = document.get("meters", [])
    if not isinstance(listed, list):
        flaws.add("wrong_type", f"meters is a list of meters, not {shown(listed)}", ("meters",))
        return
    names: dict[object, str] = {}
    for index, mapping in enumerate(listed):
        at: Path = ("meters", index)
        meter = read(mapping, at=at, flaws=flaws)
        given = mapping.get("name") if isinstance(mapping, dict) else None
        if isinstance(given, str) and given in names:
            flaws.add("repeated", f"another meter named {shown(given)}; the first is at {names[given]}", (*at, "name"))
        elif isinstance(given, str):
            names[given] = flaws.places.place((*at, "name"), key=False, offset=None)
        if meter is not None:
            yield meter


def _position(place: str) -> tuple[int, int]:
    _, line, column = place.rsplit(":", 2)
    return int(line), int(column)


class _Loader(yaml.SafeLoader):
    """Composes nodes but constructs nothing, and gives up on deep nesting before Python's stack does."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.get_mark()
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH}", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _compose(name: str, text: str) -> yaml.Node | None:
    line, column, problem = 1, 1, ""
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "not YAML"
        if problem.startswith("but ") and error.context:
            problem = f"{error.context} {problem}"
        if mark := error.problem_mark or error.context_mark:
            line, column = mark.line + 1, mark.column + 1
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        problem = f"character U+{error.character:04X} is not allowed"
    except (ValueError, OverflowError) as error:
        # PyYAML lets these through: "\UFFFFFFFF" in double quotes, a %YAML version of ten thousand digits.
        problem = f"not YAML: {error}"
    raise MeterError([Flaw("bad_yaml", problem, place=f"{name}:{line}:{column}")])


class _Tree:
    """Plain values of the nodes, and where each came from."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._values: dict[Path, yaml.Node] = {}
        self._keys: dict[Path, yaml.Node] = {}

    def place(self, path: Path, *, key: bool, offset: int | None) -> str:
        node = (self._keys if key else self._values).get(path)
        while node is None and path:
            path, offset = path[:-1], None
            node = self._values.get(path)
        return self._mark(node, offset) if node is not None else f"{self._name}:1:1"

    def _mark(self, node: yaml.Node, offset: int | None = None) -> str:
        column = node.start_mark.column + (0 if offset is None else self._inside(node, offset))
        return f"{self._name}:{node.start_mark.line + 1}:{column + 1}"

    def _inside(self, node: yaml.Node, offset: int) -> int:
        """How far a character of the value is from the node's start, if the value stands in the file as it is."""
        source = self._text[node.start_mark.index : node.end_mark.index]
        quote = 1 if getattr(node, "style", None) in ("'", '"') else 0
        as_it_is = isinstance(node, yaml.ScalarNode) and source[quote : len(source) - quote] == node.value
        return offset + quote if as_it_is and "\n" not in source else 0

    def value(self, node: yaml.Node | None, path: Path, flaws: Flaws) -> object:
        if node is None:
            return None
        if len(self._values) >= MAX_NODES or len(path) > MAX_DEPTH:
            detail = f"with its aliases expanded the file has over {MAX_NODES:,} nodes, or never ends"
            raise MeterError([Flaw("too_large", detail, dotted(path), self._mark(node))])
        self._values[path] = node
        if node.tag not in _TAGS:
            flaws.add("bad_tag", f"the tag {shown(node.tag)} is not allowed; plain values only", path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), flaws) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, flaws)
        return _scalar(node.value, node.tag)

    def _mapping(self, node: yaml.MappingNode, path: Path, flaws: Flaws) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                flaws.found.append(Flaw("bad_key", "a key must be a word", dotted(path), self._mark(key_node)))
                continue
            key = key_node.value
            at = (*path, key)
            if key in mapping:
                first = self._keys[at].start_mark.line + 1
                detail = f"the key {shown(key)} is repeated; the first is in line {first}"
                flaws.found.append(Flaw("repeated", detail, dotted(at), self._mark(key_node)))
                continue
            self._keys[at] = key_node
            mapping[key] = self.value(value_node, at, flaws)
        return mapping


def _scalar(text: str, tag: str) -> object:
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            # YAML 1.1 takes yes, no, on and off for booleans; here they are words: `by: [no]` is the property `no`.
            return {"true": True, "false": False}.get(text.lower(), text)
        case "int" | "float":
            return _number(text)
    return text


def _number(text: str) -> object:
    """Decimal numbers; what only YAML 1.1 takes for one (0x1f, 1:30, 1_000) stays text."""
    for kind in (int, float):
        try:
            return kind(text) if len(text) <= 32 and "_" not in text else text
        except ValueError:
            continue
    return text
