"""YAML: the traps of YAML 1.1, places, and a round trip that loses nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.config.yaml import dump, parse, read
from srl.core.where import Where
from tests.errors import raises

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"]))
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_TRAPS = st.sampled_from(
    [
        "1e-4",
        "010",
        "yes",
        "no",
        "on",
        "12:30:00",
        "300_000",
        "null",
        "~",
        "",
        "true",
        ".inf",
        "-.inf",
        ".nan",
        "0x1F",
        "0o17",
        "<<",
        "=",
        "-",
        ".",
        "1.",
        "+.5",
        "2001-01-01",
        "[1",
        "{",
        "*a",
        "&a",
        "!a",
        "@a",
        "`a",
        "%a",
        "'",
        '"',
        "...",
        "---",
        "0b1",
        "1_",
        "_1",
        "190:20:30",
        "a: b",
        "# no",
        "- a",
        "? a",
        " x ",
        "x\n",
        "\n",
        "\t",
        "\x00",
        "\x7f",
        "\x85",
        "\u2028",
        "\ufeff",
        "\U0001f600",
        "é",
    ]
)
_DATA = st.recursive(
    _SCALARS | _TRAPS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT | _TRAPS, inner, max_size=4),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal, with equal types: 1 is not 1.0 is not True."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@settings(max_examples=400, deadline=None)
@given(_DATA)
def test_what_is_written_is_read_back_equal(data: Any) -> None:
    assert same(parse(dump(data)).data, data)
    assert same(parse(dump(data, flow=True)).data, data)


@settings(max_examples=200, deadline=None)
@given(_DATA)
def test_one_line_stays_one_line(data: Any) -> None:
    assert "\n" not in dump(data, flow=True)


def test_nan_survives() -> None:
    assert math.isnan(parse(dump(float("nan"))).data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("3.", 3.0),
        (".5", 0.5),
        ("+.5", 0.5),
        ("-1.5e+3", -1500.0),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("300_000", 300_000),
        ("1_000.5", 1000.5),
        ("1__0", "1__0"),
        ("_1", "_1"),
        ("0b11", "0b11"),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("True", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("12:30:00", "12:30:00"),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ("null", None),
        ("", None),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("=", "="),
        ("'1e-4'", "1e-4"),
        ('"true"', "true"),
        ("! 12", "12"),
        ("&x 12", 12),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"a: {text}").data["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("key", ["1", "true", "null", "1e-4", "on"])
def test_keys_are_text(key: str) -> None:
    assert parse(f"{key}: 1").data == {key: 1}


def test_every_value_knows_its_place() -> None:
    read_back = parse("a: 1\nb:\n  c: [10,\n      20]\n  d: {e: x}\n", "my.yaml")
    places = {path: str(where) for path, where in read_back.provenance}
    assert places == {
        (): "my.yaml:1:1",
        ("a",): "my.yaml:1:1",
        ("b",): "my.yaml:2:1",
        ("b", "c"): "my.yaml:3:3",
        ("b", "c", 0): "my.yaml:3:7",
        ("b", "c", 1): "my.yaml:4:7",
        ("b", "d"): "my.yaml:5:3",
        ("b", "d", "e"): "my.yaml:5:7",
    }


def test_a_path_without_a_record_has_the_place_of_its_parent() -> None:
    provenance = parse("a:\n  b: 1\n", "my.yaml").provenance
    assert provenance.at(("a", "b", "c", 3)) == Where("my.yaml", 2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' is given twice\n  first: my.yaml:1:1\n  again: my.yaml:3:1"),
        ("a: {b: 1, b: 2}", "'b' is given twice\n  first: my.yaml:1:5\n  again: my.yaml:1:11"),
        ("<<: {a: 1}", "merge keys (<<) are not part of YAML 1.2\n  from: my.yaml:1:1\n  try: inherit: [file]"),
        ("a: !!python/name:os.system x", "tag !!python/name:os.system is not supported\n  from: my.yaml:1:4"),
        ("a: !thing {}", "tag !thing is not supported\n  from: my.yaml:1:4"),
        ("? [1]\n: 2", "a key must be text\n  from: my.yaml:1:3"),
        ("a: !!int 3", "tag !!int is not supported\n  from: my.yaml:1:4"),
        ("a: 1\n---\nb: 2", "a second document begins here\n  from: my.yaml:2:1"),
        ("a: &x [*x]", "*x has no anchor before it\n  from: my.yaml:1:8"),
        ("a: *x", "*x has no anchor before it"),
        ("a: " + "9" * 5000, "a number of 5,000 digits\n  from: my.yaml:1:4"),
        ("a: 0x" + "9" * 5000, "a number of 5,002 digits"),
        ("[" * 1000 + "]" * 1000, "nested more than 40 levels deep\n  from: my.yaml:1:42"),
        ("{a: " * 100_000 + "}" * 100_000, "nested more than 40 levels deep"),
        ("".join(f"{' ' * i}a:\n" for i in range(3000)), "nested more than 40 levels deep"),
        ("- " * 50_000, "nested more than 40 levels deep"),
        ("a: &a " + "[" * 30 + "]" * 30 + "\nb: " + "[" * 30 + "*a" + "]" * 30, "nested more than 40 levels deep"),
        ("[" + "1," * 200_001 + "]", "more than 200,000 values, aliases included"),
        ("a: \ud800", "not readable as YAML"),
    ],
)
def test_what_is_refused_is_named_with_its_place(text: str, message: str) -> None:
    with raises("E11") as caught:
        parse(text, "my.yaml")
    assert message in caught.value.format()


@pytest.mark.parametrize(("text", "place"), [("a: [1,", "my.yaml:2:1"), ("a: 1\n\tb: 2", "my.yaml:2:1")])
def test_bad_syntax_is_named_with_its_place(text: str, place: str) -> None:
    with raises("E11", match="not readable as YAML") as caught:
        parse(text, "my.yaml")
    assert ("from", place) in caught.value.facts


def test_an_alias_is_a_copy() -> None:
    data = parse("a: &x {b: [1]}\nc: *x").data
    data["a"]["b"].append(2)
    assert data["c"] == {"b": [1]}


def test_aliases_cannot_blow_up_memory() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 9)]
    with raises("E11", match="more than 200,000 values"):
        parse("\n".join(lines))


def test_a_missing_file_is_a_user_error(tmp_path: Any) -> None:
    with raises("E11", match="No such file"):
        read(tmp_path / "none.yaml", "none.yaml")


def test_a_file_that_is_not_utf8_is_a_user_error(tmp_path: Any) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff\xfe")
    with raises("E11", match="not UTF-8"):
        read(tmp_path / "bad.yaml")


def test_only_text_keys_are_written() -> None:
    with pytest.raises(TypeError, match="only text can be a key"):
        dump({1: 2})
