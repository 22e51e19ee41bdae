"""Composition: files that inherit, overrides on top, and where every value came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.config.compose import Composed, compose
from srl.config.find import list_experiments
from srl.config.merge import Merged
from srl.config.render import render
from srl.config.yaml import parse
from srl.core.where import COMMAND_LINE, RESUME, Provenance
from tests.errors import raises

BASE = """\
# PPO as most use it.
algorithm: {use: ppo, lr: 3e-4, epochs: 4}
policy:
  use: actor_critic
  hidden: [64, 64]
"""
CART = """\
# CartPole in a minute.
inherit: [base/ppo]
env: CartPole-v1
policy:
  hidden: [32]
stop: {env_steps: 300_000}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    experiments = tmp_path / "experiments"
    (experiments / "base").mkdir(parents=True)
    (experiments / "base" / "ppo.yaml").write_text(BASE)
    (experiments / "cart.yaml").write_text(CART)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def composed(folder: Path, *overrides: str, name: str | None = "cart", **more: Any) -> Composed:
    return compose(name, overrides, search=[folder / "experiments"], **more)


def test_dicts_merge_and_lists_replace(folder: Path) -> None:
    assert composed(folder).data == {
        "algorithm": {"use": "ppo", "lr": 3e-4, "epochs": 4},
        "policy": {"use": "actor_critic", "hidden": [32]},
        "env": "CartPole-v1",
        "stop": {"env_steps": 300_000},
    }


def test_every_value_knows_its_file_or_the_command_line(folder: Path) -> None:
    provenance = composed(folder, "algorithm.epochs=8").provenance
    assert str(provenance.at(("algorithm", "lr"))) == "experiments/base/ppo.yaml:2:23"
    assert str(provenance.at(("policy", "hidden"))) == "experiments/cart.yaml:5:3"
    assert provenance.at(("algorithm", "epochs")) == COMMAND_LINE
    assert str(provenance.at(("policy", "hidden", 0))) == "experiments/cart.yaml:5:12"


def test_null_in_a_file_removes_what_is_inherited_and_else_stays(folder: Path) -> None:
    (folder / "experiments" / "less.yaml").write_text("inherit: cart\nstop: null\nalgorithm: {lr: null, clip: null}\n")
    found = composed(folder, name="less").data
    assert "stop" not in found
    assert found["algorithm"] == {"use": "ppo", "epochs": 4, "clip": None}


def test_null_on_the_command_line_is_a_value(folder: Path) -> None:
    assert composed(folder, "algorithm.lr=null").data["algorithm"]["lr"] is None


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (["algorithm.lr=1e-3"], ("algorithm", "lr"), 1e-3),
        (["policy.hidden=[1,2]"], ("policy", "hidden"), [1, 2]),
        (["policy.hidden.0=5"], ("policy", "hidden"), [5]),
        (["+algorithm.clip=0.1"], ("algorithm", "clip"), 0.1),
        (["algorithm.clip=0.1"], ("algorithm", "clip"), 0.1),
        (["sampling.envs=8"], ("sampling",), {"envs": 8}),
        (["~policy.hidden"], ("policy",), {"use": "actor_critic"}),
        (["~stop", "stop.updates=1"], ("stop",), {"updates": 1}),
        (["stop={updates: 1}"], ("stop",), {"env_steps": 300_000, "updates": 1}),
        (["env.args.gravity=1.5"], ("env",), {"use": "CartPole-v1", "args": {"gravity": 1.5}}),
        (["env=Acrobot-v1"], ("env",), "Acrobot-v1"),
        (['agents."a.b"=main'], ("agents",), {"a.b": "main"}),
        (["import=my_pkg,other"], ("plugins",), ["my_pkg", "other"]),
        (["plugins=[one]", "import=two"], ("plugins",), ["one", "two"]),
        (["seed=1", "seed=2"], ("seed",), 2),
    ],
)
def test_overrides(folder: Path, overrides: list[str], path: tuple[str, ...], value: Any) -> None:
    found: Any = composed(folder, *overrides).data
    for key in path:
        found = found[key]
    assert found == value


def test_an_override_leaves_the_list_of_the_file_alone(folder: Path) -> None:
    composed(folder, "policy.hidden.0=5")
    assert composed(folder).data["policy"]["hidden"] == [32]


def test_another_use_drops_the_settings_of_the_old_one_and_says_so(folder: Path) -> None:
    found = composed(folder, "algorithm=impala")
    assert found.data["algorithm"] == {"use": "impala"}
    assert found.notes == ("algorithm: ppo -> impala (command line); dropped the settings of ppo: lr, epochs",)


@pytest.mark.parametrize("overrides", [["algorithm.use=impala", "algorithm.lr=1"], ["algorithm.lr=1", "algorithm.use=impala"]])
def test_what_the_command_line_sets_survives_another_use_in_any_order(folder: Path, overrides: list[str]) -> None:
    assert composed(folder, *overrides).data["algorithm"] == {"use": "impala", "lr": 1}


def test_what_the_command_line_sets_deep_inside_survives_another_use(folder: Path) -> None:
    found = composed(folder, "algorithm.schedule.end=1", "algorithm=impala")
    assert found.data["algorithm"] == {"use": "impala", "schedule": {"end": 1}}


def test_a_file_changes_use_too(folder: Path) -> None:
    (folder / "experiments" / "imp.yaml").write_text("inherit: cart\nalgorithm:\n  use: impala\n  lr: 1e-3\n")
    found = composed(folder, name="imp")
    assert found.data["algorithm"] == {"use": "impala", "lr": 1e-3}
    assert found.notes == ("algorithm: ppo -> impala (experiments/imp.yaml:3:3); dropped the settings of ppo: lr, epochs",)


def test_the_same_use_keeps_the_settings(folder: Path) -> None:
    found = composed(folder, "algorithm=ppo")
    assert found.data["algorithm"] == {"use": "ppo", "lr": 3e-4, "epochs": 4}
    assert found.notes == ()


def test_a_name_in_a_parent_and_settings_in_the_child_come_together(folder: Path) -> None:
    (folder / "experiments" / "more.yaml").write_text("inherit: cart\nenv: {stats: [is_success]}\n")
    found = composed(folder, name="more")
    assert found.data["env"] == {"use": "CartPole-v1", "stats": ["is_success"]}
    assert str(found.provenance.at(("env", "use"))) == "experiments/cart.yaml:3:1"


def test_no_file_at_all() -> None:
    found = compose(None, ["env=CartPole-v1", "algorithm=ppo"])
    assert found.data == {"env": "CartPole-v1", "algorithm": "ppo"}
    assert found.name == ""


def test_experiment_may_stand_among_the_overrides(folder: Path) -> None:
    found = composed(folder, "experiment=cart", "seed=3", name=None)
    assert (found.name, found.data["seed"]) == ("cart", 3)
    assert "experiment" not in found.data


def test_a_file_on_the_command_line_is_merged_with_what_it_inherits(folder: Path) -> None:
    (folder / "fast.yaml").write_text("algorithm: {epochs: 1}\nstop: null\n")
    found = composed(folder, "@fast.yaml").data
    assert found["algorithm"] == {"use": "ppo", "lr": 3e-4, "epochs": 1}
    assert "stop" not in found


def test_settings_of_a_python_call_lie_between_file_and_command_line(folder: Path) -> None:
    found = composed(folder, "algorithm.epochs=2", settings={"algorithm": {"lr": 1e-3, "epochs": 9}, "seed": 1})
    assert found.data["algorithm"] == {"use": "ppo", "lr": 1e-3, "epochs": 2}
    assert str(found.provenance.at(("algorithm", "lr"))) == "python call"


def test_a_resume_names_itself_as_the_origin(folder: Path) -> None:
    found = composed(folder, "seed=1", origin=RESUME)
    assert found.provenance.at(("algorithm", "lr")) == RESUME
    assert found.provenance.at(("seed",)) == COMMAND_LINE


def test_a_run_folder_is_an_experiment(folder: Path) -> None:
    (folder / "runs" / "x").mkdir(parents=True)
    (folder / "runs" / "x" / "config.yaml").write_text("seed: 4\n")
    assert compose("runs/x").data == {"seed": 4}


def test_a_file_finds_its_neighbours_first(folder: Path) -> None:
    (folder / "mine" / "base").mkdir(parents=True)
    (folder / "mine" / "base" / "ppo.yaml").write_text("seed: 9\n")
    (folder / "mine" / "cart.yaml").write_text("inherit: base/ppo\n")
    assert composed(folder, name="mine/cart.yaml").data == {"seed": 9}


def test_an_unknown_experiment_names_the_nearest_and_all(folder: Path) -> None:
    with raises("E01") as caught:
        composed(folder, name="kart")
    assert caught.value.format() == (
        "error[E01]: no experiment is called 'kart'\n"
        "  did you mean: cart?\n"
        "  known: cart    with a line on each: python -m srl list\n"
        "  searched: experiments"
    )


@pytest.mark.parametrize(
    ("override", "name", "message"),
    [
        (
            "@nope.yaml",
            "cart",
            "error[E01]: no file is called 'nope.yaml'\n  from: '@nope.yaml' on the command line\n  searched: experiments",
        ),
        (
            "@kart.yaml",
            "cart",
            "error[E01]: no file is called 'kart.yaml'\n  from: '@kart.yaml' on the command line\n"
            "  did you mean: cart?\n  searched: experiments",
        ),
        (
            "seed=1",
            "heir",
            "error[E01]: no experiment is called 'bass/ppo'\n  from: experiments/heir.yaml:3:5\n"
            "  known: cart, heir    with a line on each: python -m srl list\n  searched: experiments",
        ),
    ],
)
def test_who_named_a_file_that_is_not_there_is_named(folder: Path, override: str, name: str, message: str) -> None:
    if name == "heir":
        (folder / "experiments" / "heir.yaml").write_text("inherit:\n  - cart\n  - bass/ppo\n")
    with raises("E01") as caught:
        composed(folder, override, name=name)
    assert caught.value.format() == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "+algorithm.lr=1",
            "error[E12]: '+algorithm.lr=1' adds a setting that exists already\n"
            "  from: experiments/base/ppo.yaml:2:23\n"
            "  try: algorithm.lr=1",
        ),
        (
            "~algorithm.lrr",
            "error[E12]: '~algorithm.lrr' cannot be applied: there is no 'algorithm.lrr'\n  did you mean: ~algorithm.lr?",
        ),
        (
            "~zzz.a",
            "error[E12]: '~zzz.a' cannot be applied: there is no 'zzz'\n  there are: algorithm, policy, env, stop",
        ),
        (
            "~policy.hidden.0",
            "error[E12]: 'policy.hidden.0' cannot be removed: a list is only replaced as a whole\n"
            "  from: experiments/cart.yaml:5:3\n  try: policy.hidden=[...]",
        ),
        (
            "policy.hidden.3=1",
            "error[E12]: 'policy.hidden.3': the list 'policy.hidden' has 1 entries, 0 to 0\n  from: experiments/cart.yaml:5:3",
        ),
        (
            "stop.env_steps.x=1",
            "error[E12]: 'stop.env_steps.x' cannot be set: 'stop.env_steps' is 300000, not a mapping\n"
            "  from: experiments/cart.yaml:6:8",
        ),
    ],
)
def test_overrides_that_do_not_fit(folder: Path, override: str, message: str) -> None:
    with raises("E12") as caught:
        composed(folder, override)
    assert caught.value.format() == message


def test_a_circle_of_inheritance_is_named(folder: Path) -> None:
    (folder / "experiments" / "a.yaml").write_text("inherit: b\n")
    (folder / "experiments" / "b.yaml").write_text("inherit: a\n")
    with raises("E11") as caught:
        composed(folder, name="a")
    assert caught.value.facts == [("chain", "experiments/a.yaml -> experiments/b.yaml -> experiments/a.yaml")]


def test_a_diamond_of_inheritance_is_fine(folder: Path) -> None:
    (folder / "experiments" / "d.yaml").write_text("inherit: [base/ppo, cart]\nseed: 1\n")
    assert composed(folder, name="d").data["policy"]["hidden"] == [32]


@pytest.mark.parametrize(("text", "message"), [("[1, 2]", "contains no mapping"), ("inherit: {a: 1}", "inherit expects names")])
def test_files_of_another_form_are_refused(folder: Path, text: str, message: str) -> None:
    (folder / "experiments" / "bad.yaml").write_text(text)
    with raises("E11", match=message):
        composed(folder, name="bad")


def test_an_empty_file_is_an_empty_experiment(folder: Path) -> None:
    (folder / "experiments" / "empty.yaml").write_text("# nothing\n")
    assert composed(folder, name="empty").data == {}


def test_experiments_are_listed_with_their_first_comment(folder: Path) -> None:
    found = list_experiments([folder / "experiments"])
    assert list(found.items()) == [("cart", "CartPole in a minute.")]


def test_the_printed_configuration_says_where_each_value_came_from(folder: Path) -> None:
    found = composed(folder, "algorithm.epochs=8")
    resolved = {"algorithm": {**found.data["algorithm"], "clip": 0.2}, "nodes": [{"name": "a", "args": {"x": 1}}, {}], "seed": 0}
    assert render(resolved, found.provenance) == (
        "algorithm:\n"
        "  use: ppo    # experiments/base/ppo.yaml:2:13\n"
        "  lr: 0.0003  # experiments/base/ppo.yaml:2:23\n"
        "  epochs: 8   # command line\n"
        "  clip: 0.2   # default\n"
        "nodes:\n"
        "  - name: a   # default\n"
        "    args:\n"
        "      x: 1    # default\n"
        "  - {}        # default\n"
        "seed: 0       # default\n"
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_TEXT, _DATA, max_size=4))
def test_the_printed_configuration_reads_back_equal(data: dict[str, Any]) -> None:
    assert parse(render(data, Provenance())).data == data


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), _DATA, max_size=4), st.dictionaries(st.sampled_from("abcd"), _DATA, max_size=4))
def test_assigned_mappings_merge_as_the_definition_says(base: dict[str, Any], over: dict[str, Any]) -> None:
    def merged(old: Any, new: Any) -> Any:
        if isinstance(old, dict) and isinstance(new, dict):
            return {**old, **{key: merged(old[key], new[key]) if key in old else new[key] for key in new}}
        return new

    ours = Merged()
    for part in (base, over):
        for key, value in part.items():
            ours.assign((key,), value)
    assert ours.data == merged(base, over)
