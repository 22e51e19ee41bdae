"""Overrides: what is typed is what is set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.config.overrides import Override, parse_override
from srl.config.yaml import dump
from srl.core.where import dotted
from tests.errors import raises

_KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4).map(tuple)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.=", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(_KEYS, _VALUES)
def test_any_path_and_value_can_be_written(path: tuple[str, ...], value: Any) -> None:
    name = dotted(path)
    if not name.startswith(("+", "~", "@")):
        assert parse_override(f"{name}={dump(value, flow=True)}") == Override(
            "set", path, value, f"{name}={dump(value, flow=True)}"
        )
    added = parse_override(f"+{name}={dump(value, flow=True)}")
    assert (added.action, added.path, added.value) == ("add", path, value)
    removed = parse_override(f"~{name}")
    assert (removed.action, removed.path) == ("remove", path)


@pytest.mark.parametrize(
    ("text", "action", "path", "value"),
    [
        ("a=3", "set", ("a",), 3),
        ("a.b=1e-4", "set", ("a", "b"), 1e-4),
        ("a.b=yes", "set", ("a", "b"), "yes"),
        ("a.list=[1,2]", "set", ("a", "list"), [1, 2]),
        ("a={b: 1}", "set", ("a",), {"b": 1}),
        ("a=", "set", ("a",), None),
        ("a=b=c", "set", ("a",), "b=c"),
        ("env=CartPole-v1", "set", ("env",), "CartPole-v1"),
        ("env=my_pkg.envs:Make", "set", ("env",), "my_pkg.envs:Make"),
        ('agents."hider.*"=hider', "set", ("agents", "hider.*"), "hider"),
        ("agents.*=main", "set", ("agents", "*"), "main"),
        ("nodes.0.count=2", "set", ("nodes", "0", "count"), 2),
        ("+a.new=1", "add", ("a", "new"), 1),
        ("~a.b", "remove", ("a", "b"), None),
        ("@more.yaml", "merge", (), "more.yaml"),
    ],
)
def test_forms(text: str, action: str, path: tuple[str, ...], value: Any) -> None:
    assert parse_override(text) == Override(action, path, value, text)  # type: ignore[arg-type]


_FORMS = "\n  forms: a.b=3  a.list=[1,2]  +a.new=1  ~a.b  @file.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", "override 'a.b' has no value\n  try: a.b=..." + _FORMS),
        ("=3", "override '=3' has an empty part in its name\n  try: section.name=value" + _FORMS),
        ("a..b=3", "override 'a..b=3' has an empty part in its name\n  try: section.name=value" + _FORMS),
        ("~a=3", "override '~a=3' removes a setting and has no value\n  try: ~a" + _FORMS),
        ("@", "override '@' names no file\n  try: @file.yaml" + _FORMS),
        ('a."b=3', 'override \'a."b=3\' has a quote that does not close\n  try: a."b.c"=1' + _FORMS),
        ('a."b"c=3', 'override \'a."b"c=3\' has text after a quoted part\n  try: a."b.c"=1' + _FORMS),
        (
            "a=[1,",
            "the value of 'a' cannot be read: [1,\n"
            "  cause: not readable as YAML: while parsing a flow node did not find expected node content\n"
            "  try: quotes, once for the shell and once for YAML: 'a=\"[1,\"'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text: str, message: str) -> None:
    with raises("E12") as caught:
        parse_override(text)
    assert caught.value.format() == "error[E12]: " + message
