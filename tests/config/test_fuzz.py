"""Whatever a file or a command line says, it is an experiment or a UserError; never a traceback, never a long wait."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srl.config.compose import compose
from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.load import describe
from srl.core.load import settings as fields_of
from srl.plan.prepare import prepare
from tests.errors import raises

FILES = sorted(Path("experiments").glob("*.yaml"))
WORDS = [
    "null",
    "~",
    "true",
    "[]",
    "{}",
    "[[]]",
    "{a: {b: 1}}",
    "-1",
    "0",
    "1e400",
    ".nan",
    "-.inf",
    "9" * 30,
    "9" * 5000,
    "0x" + "f" * 40,
]
WORDS += [
    "''",
    "'\\0'",
    '"\\x00\\uffff"',
    "a.b:c",
    "x.py:Y",
    ":",
    "use",
    "{use: }",
    "{use: [1]}",
    "{use: ppo, lr: {from: a}}",
    "*x",
    "&x 1",
    "!!x 1",
    "=",
    "é\u2028",
]
WORDS += [
    "{'*': nobody}",
    "auto",
    "1099511627776",
    "[1000000000]",
    "[0]",
    "[[1]]",
    "{from: 1}",
    "{1: 2}",
    "{a.b: 1}",
    "latest-9",
    "../..",
    "/dev/zero",
    "cuda:99",
]
WORDS += ["a" * 5000, "x/" * 3000, "~nobody_here/x", "~nobody_here/x.py:B", "a" * 300 + ".py:B", "a" * 300 + ".yaml"]


def names(cls: type, prefix: str = "") -> list[str]:
    found = []
    for row in describe(cls):
        found.append(prefix + row.name)
    return found


def paths() -> list[str]:
    found = names(Experiment)
    for name in list(found):
        kind = next((one for one in fields_of(Experiment) if one.name == name), None)
        default = getattr(Experiment(env=None), name, None) if kind is not None else None  # type: ignore[arg-type]
        if hasattr(default, "__dataclass_fields__"):
            found += names(type(default), f"{name}.")
    deeper = [
        "algorithm.lr",
        "policy.hidden",
        "policy.use",
        "env.id",
        "env.use",
        "env.args.x",
        "graph.nodes",
        "graph.nodes.trainer.ports",
    ]
    deeper += [
        "graph.streams.a.kind",
        "streams.all.via",
        "streams.params.main.via",
        "policies.main.policy",
        "policies.a.b.c",
        "agents.x",
    ]
    return (
        found
        + deeper
        + ["evaluation.every", "opponents.choose", "opponents.groups", "expect.return", "plugins", "load", "inherit"]
    )


PATHS = paths()


def attempt(experiment: str | Path | None, overrides: list[str]) -> None:
    before = time.monotonic()
    try:
        prepare(experiment, overrides, inspect=False)
    except UserError as error:
        assert error.headline and len(str(error)) < 6000
    assert time.monotonic() - before < 20


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["", "+", "~"]), st.sampled_from(PATHS), st.sampled_from(WORDS)), min_size=1, max_size=4)
)
def test_overrides(changes: list[tuple[str, str, str]]) -> None:
    attempt("cartpole", [f"~{path}" if how == "~" else f"{how}{path}={value}" for how, path, value in changes])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(max_size=40), min_size=1, max_size=3))
def test_words_of_any_kind(words: list[str]) -> None:
    attempt("cartpole", words)


def mutated(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        line = lines[at]
        how = chance.randrange(8)
        if how == 0:
            lines[at] = line.partition(":")[0] + ": " + chance.choice(WORDS)
        elif how == 1:
            lines[at] = "  " + line
        elif how == 2:
            lines[at] = line.lstrip()
        elif how == 3:
            lines.insert(at, lines[chance.randrange(len(lines))])
        elif how == 4:
            del lines[at]
            lines = lines or [""]
        elif how == 5:
            cut = chance.randrange(len(line) + 1)
            lines[at] = line[:cut] + chance.choice("[]{}:,#&*!|>'\"%@`-?\t \x00\x07é") + line[cut + chance.randrange(2) :]
        elif how == 6:
            lines[at] = line.replace(
                chance.choice(["env", "use", "policy", "steps", "ppo"]), chance.choice(["x", "algorithm", "graph"])
            )
        else:
            a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_experiments_with_mistakes(file: Path, tmp_path: Path) -> None:
    for seed in range(40):
        mine = tmp_path / "mine.yaml"
        mine.write_text(mutated(file.read_text(), random.Random(seed)), encoding="utf-8")
        attempt(mine, [])


@pytest.mark.parametrize(
    ("word", "setting"),
    [
        ("sampling.steps=1099511627776", "sampling.steps"),
        ("sampling.envs=1000000000000", "sampling.envs"),
        ("sampling.workers=10000000", "sampling.workers"),
        ("evaluation.envs=1e12", "evaluation.envs"),
        ("workers.policy.count=10000000", "workers.policy.count"),
        ("policy.hidden=[1000000000]", "policy.hidden"),
        ("policy.hidden=[60000, 60000]", "policy.hidden"),
    ],
)
def test_sizes_are_checked_before_anything_is_built(word: str, setting: str) -> None:
    with raises("E03") as caught:
        prepare("cartpole", ["mode=inline", word])
    assert setting in caught.value.headline and ("from", "command line") in caught.value.facts


def test_files_that_inherit_each_other_without_end_are_refused(tmp_path: Path) -> None:
    for number in range(120):
        (tmp_path / f"f{number}.yaml").write_text(f"inherit: [f{number + 1}.yaml]\n")
    (tmp_path / "g12.yaml").write_text("seed: 1\n")
    for number in range(12):
        (tmp_path / f"g{number}.yaml").write_text(f"inherit: [{', '.join([f'g{number + 1}.yaml'] * 10)}]\n")
    for first in ("f0", "g0"):
        with raises("E11", match="more than 100 files"):
            compose(tmp_path / f"{first}.yaml")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"a" * (17 << 20))
    with raises("E11", match="at most 16,777,216 bytes"):
        compose(tmp_path / "large.yaml")


@pytest.mark.parametrize(
    "word",
    [
        "experiment=" + "a" * 5000,
        "load=~nobody_here/x",
        'load="\\x00"',
        "graph.nodes=3",
        "workers.x={use: [1]}",
    ],
)
def test_what_the_fuzzing_found(word: str) -> None:
    with pytest.raises(UserError):
        prepare(None if word.startswith("experiment") else "cartpole", [word], inspect=False)
