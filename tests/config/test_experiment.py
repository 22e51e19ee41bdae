"""The short form: strict, with the place of what is wrong, and equal after a round trip."""

from pathlib import Path

import pytest

from srl.config.compose import compose
from srl.config.experiment import read_experiment, write_experiment
from srl.config.yaml import dump, parse
from srl.core.types import Component
from srl.graph.build import graph_to_yaml
from srl.graph.decide import decide
from srl.plan.prepare import prepare
from tests.errors import raises

FILE = """\
env: CartPole-v1
policy: {use: actor_critic, hidden: [64, 64]}
algorithm: {use: ppo, lr: {from: 1e-3, to: 0}}
sampling: {envs: 64, steps: 32}
evaluation: {every: 50_000, episodes: 20}
stop: {env_steps: 300_000, return: 475}
expect: {return: 475}
streams: {sample: {via: zmq}}
"""


def read(tmp_path: Path, text: str, *overrides: str):
    file = tmp_path / "my.yaml"
    file.write_text(text)
    composed = compose(file, overrides)
    return read_experiment(composed.data, composed.provenance)


def test_an_experiment_is_equal_after_a_round_trip_through_yaml(tmp_path):
    experiment = read(tmp_path, FILE)
    assert read_experiment(parse(dump(write_experiment(experiment))).data) == experiment


def test_several_policies_are_equal_after_a_round_trip(tmp_path):
    text = "env: fake\nagents: {'a_*': one, '*': two}\n"
    text += "policies:\n  one: {policy: x:Y, algorithm: ppo}\n  two: {policy: scripted:Z}\n"
    experiment = read(tmp_path, text)
    assert experiment.learning == ("one",)
    assert read_experiment(parse(dump(write_experiment(experiment))).data) == experiment


def test_a_name_is_short_for_use():
    assert Component.from_plain("ppo") == Component.from_plain({"use": "ppo"}) == Component("ppo")
    assert Component.from_plain({"use": "ppo", "lr": 1.0}).args == {"lr": 1.0}


def test_return_is_the_word_in_files(tmp_path):
    experiment = read(tmp_path, FILE)
    assert experiment.stop.episode_return == 475
    assert write_experiment(experiment)["stop"]["return"] == 475


def test_a_wrong_return_is_named_as_the_file_has_it(tmp_path):
    with raises("E03") as caught:
        read(tmp_path, FILE, "stop.return=high")
    assert str(caught.value) == (
        "error[E03]: 'stop.return' expects float | null, found text 'high'\n"
        "  from: command line\n"
        "  all: python -m srl.launch --help stop"
    )


def test_an_unknown_key_names_its_place_and_the_nearest(tmp_path):
    with raises("E02") as caught:
        read(tmp_path, FILE + "checkpoint:\n  evry: 2\n")
    lines = str(caught.value).splitlines()
    assert lines[0] == "error[E02]: 'checkpoint' has no setting 'evry'"
    assert lines[1].endswith("my.yaml:10:3")
    assert lines[2] == "  did you mean: every (int | auto, default auto)?"


def test_an_unknown_section_is_refused(tmp_path):
    with raises("E02", match="has no setting 'smapling'"):
        read(tmp_path, FILE + "smapling: {envs: 3}\n")


def test_without_an_algorithm_nothing_learns(tmp_path):
    with raises("E14", match="nothing learns"):
        read(tmp_path, "env: CartPole-v1\n")


def test_policy_and_policies_together_are_refused(tmp_path):
    with raises("E11", match="both `policy` and `policies`"):
        read(tmp_path, FILE + "policies: {main: {policy: actor_critic, algorithm: ppo}}\n")


@pytest.mark.parametrize("text", ["sampling.envs=0", "sampling.workers=many", "evaluation.episodes=0.5", "seed=-1"])
def test_values_out_of_range_are_refused(tmp_path, text):
    with raises("E03") as caught:
        read(tmp_path, FILE, text)
    assert text.partition("=")[0] in caught.value.headline
    assert ("from", "command line") in caught.value.facts


@pytest.mark.parametrize("name", ["cartpole", "pendulum_ppo", "half_cheetah_ppo"])
def test_the_experiments_here_are_readable(name):
    composed = compose(name)
    assert read_experiment(composed.data, composed.provenance).expect


def test_settings_without_a_use_are_those_of_the_default_policy(tmp_path):
    experiment = read(tmp_path, "env: Pendulum-v1\nalgorithm: ppo\n", "policy.normalize_obs=true")
    assert experiment.policy == Component("actor_critic", {"normalize_obs": True})
    text = "env: fake\npolicies:\n  main: {policy: {hidden: [8]}, algorithm: ppo}\n"
    assert read(tmp_path, text).policies["main"].policy == Component("actor_critic", {"hidden": [8]})


def test_settings_on_the_command_line_go_to_the_policy_of_the_file(tmp_path):
    text = FILE.replace("actor_critic", "recurrent")
    assert read(tmp_path, text, "policy.normalize_obs=true").policy.use == "recurrent"


@pytest.mark.parametrize("streams", ["", "streams: {params.main: {compress: lz4}}\n"])
def test_a_stream_with_a_dot_in_its_name_is_set_without_quotes(tmp_path, streams):
    text = "env: CartPole-v1\nalgorithm: ppo\n" + streams
    found = read(tmp_path, text, "streams.params.main.via=zmq", "streams.sample.via=zmq").streams
    assert list(found) == ["params.main", "sample"] and found["params.main"].via == "zmq"
    assert found["params.main"].compress == ("lz4" if streams else None)


def test_a_misspelt_setting_of_a_dotted_stream_has_its_place(tmp_path):
    with raises("E02") as caught:
        read(tmp_path, FILE, "streams.params.main.vai=zmq")
    assert "has no setting 'vai'\n  from: command line\n  did you mean: via" in str(caught.value)


def test_the_weights_to_start_from_belong_to_one_policy(tmp_path):
    assert read(tmp_path, FILE, "load=runs/x").entries()["main"].load == "runs/x"
    with raises("E11", match="both `load` and `policies`"):
        read(tmp_path, "env: fake\nload: runs/x\npolicies: {main: {policy: actor_critic, algorithm: ppo}}\n")


def test_a_graph_in_place_of_an_experiment_is_known_as_one(tmp_path):
    """graph.yaml of a run folder, or what `srl graph --yaml` prints."""
    file = tmp_path / "graph.yaml"
    file.write_text(graph_to_yaml(decide(read_experiment({"env": "CartPole-v1", "algorithm": "ppo"})).graph))
    composed = compose(file)
    with raises("E11") as caught:
        read_experiment(composed.data, composed.provenance)
    assert caught.value.headline == "this is a graph, not an experiment: it has nodes and streams"
    lines = dict(caught.value.facts)
    assert lines["from"].startswith(f"{file}:")
    assert lines["try"] == "of a run: its folder, or the config.yaml there"
    assert lines["or"] == "its nodes and streams under `graph:` of a file that has env, policy and algorithm"


@pytest.mark.parametrize(
    ("env", "called"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ({"use": "gym_vector", "id": "CartPole-v1"}, "CartPole-v1"),
        ({"use": "pettingzoo", "id": "mpe2.simple_tag_v3"}, "mpe2.simple_tag_v3"),
        ({"use": "docs/examples/my_env.py:Corridor", "length": 9}, "Corridor"),
    ],
)
def test_a_run_without_a_file_is_called_like_its_env(env, called):
    assert prepare(settings={"env": env, "algorithm": "ppo"}, inspect=False).graph.name == called
