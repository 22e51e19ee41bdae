"""Records have one layout; nothing that does not fit gets in or out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from srl.core.errors import HostileFrame
from srl.core.spec import Leaf, spec_of, zeros
from srl.core.tree import leaves
from srl.streams.codec import ALIGN, Arena, Layout, Packer, aligned
from tests.errors import raises

SPEC = {"a": Leaf((3, 5), "uint8"), "b": {"c": Leaf((2,), "float64"), "none": Leaf((0, 4), "int32")}, "d": Leaf((), "bool")}

ARRAYS = hn.arrays(
    dtype=st.sampled_from(["uint8", "int64", "float32", "bool", "float16"]),
    shape=hn.array_shapes(min_dims=0, max_dims=3, max_side=5, min_side=0),
    elements={"min_value": 0, "max_value": 1},
)
TREES = st.recursive(
    ARRAYS, lambda inner: st.dictionaries(st.text("abcd", min_size=1, max_size=3), inner, min_size=1, max_size=3)
)


def same(one: Any, other: Any) -> bool:
    ones, others = dict(leaves(one)), dict(leaves(other))
    return ones.keys() == others.keys() and all(
        ones[path].dtype == others[path].dtype and np.array_equal(ones[path], others[path]) for path in ones
    )


@settings(max_examples=100, deadline=None)
@given(TREES, st.sampled_from([None, "lz4"]), st.sampled_from([0, 64]))
def test_any_tree_comes_back_as_it_was(tree: Any, compress: str | None, room: int) -> None:
    packer = Packer(Layout(spec_of(tree)), compress)
    packed = packer.pack(tree, room)
    assert len(packed) - room <= packer.largest
    found = packer.unpack(memoryview(bytes(packed))[room:])
    assert same(found, tree)
    assert not any(leaf.flags.writeable for _, leaf in leaves(found) if leaf.size)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([None, "lz4"]))
def test_no_bytes_whatever_do_more_than_be_refused(data: bytes, compress: str | None) -> None:
    packer = Packer(Layout({"frames": Leaf((300,), "uint8"), "n": Leaf((2,), "float32")}), compress)
    try:
        tree = packer.unpack(data)
    except HostileFrame:
        return
    assert tree["frames"].shape == (300,)
    assert tree["n"].shape == (2,)


@pytest.mark.parametrize("change", [-1, 1, 1000])
def test_a_truncated_or_longer_record_is_refused(change: int) -> None:
    layout = Layout(SPEC)
    data = bytes(layout.pack(zeros(SPEC)))
    with pytest.raises(HostileFrame):
        layout.unpack(data[:change] if change < 0 else data + bytes(change))


def test_every_leaf_is_contiguous_and_aligned() -> None:
    layout = Layout(SPEC)
    assert all(offset % ALIGN == 0 for offset in layout.offsets)
    assert layout.size % ALIGN == 0
    assert aligned(1) == aligned(64) == 64


def test_records_of_an_arena_do_not_overlap_with_each_other_or_the_words() -> None:
    layout = Layout(SPEC)
    arena = Arena(5, [layout, layout])
    buffer = bytearray(arena.size)
    records = [arena.record(buffer, index) for index in range(2)]
    words = arena.words(buffer)
    for number, record in enumerate(records, start=1):
        for _, leaf in leaves(record):
            leaf[...] = number
    words[4] = 1 << 63
    assert [float(record["b"]["c"][1]) for record in records] == [1.0, 2.0]
    assert [int(record["a"].sum()) for record in records] == [15, 30]
    assert list(words) == [0, 0, 0, 0, 1 << 63]


def test_objects_do_not_cross_a_stream() -> None:
    with raises("W01", match="Python objects"):
        Layout({"a": Leaf((1,), "object")})


def test_rows_are_checked_for_everything_but_their_number() -> None:
    layout = Layout({"a": Leaf((1, 3), "float32")})
    layout.checked({"a": np.zeros((7, 3), np.float32)}, 7)
    for wrong in (np.zeros((6, 3), np.float32), np.zeros((7, 4), np.float32), np.zeros((7, 3))):
        with raises("W01", match="leaf a"):
            layout.checked({"a": wrong}, 7)
