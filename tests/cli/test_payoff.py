"""Saved versions of one side against those of the other, from the run folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import srl
from srl.__main__ import main
from srl.cli.play import evaluate, play
from srl.core.errors import UserError
from srl.payoff import play_all, saved

ROOT = Path(__file__).parents[2]
AGES = ROOT / "tests" / "runs" / "ages.py"


def launched(runs: Path, **settings: Any) -> Path:
    run = srl.launch(**settings, mode="inline", runs=runs, quiet=True, seed=7)
    assert run.result is not None and run.result.exit_code == 0
    return Path(run.folder)


@pytest.fixture(scope="module")
def pennies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`even` always shows 0; `odd` shows 1 for ten updates and then 0, so that it wins every round first and none later."""
    return launched(
        tmp_path_factory.mktemp("pennies"),
        env=f"{ROOT / 'docs' / 'examples' / 'pennies.py'}:Pennies",
        policies={
            "even": {"policy": f"{AGES}:Ages", "algorithm": f"{AGES}:Aging"},
            "odd": {"policy": {"use": f"{AGES}:Ages", "guards": 10}, "algorithm": f"{AGES}:Aging"},
        },
        agents={"even": "even", "odd": "odd"},
        sampling={"envs": 2, "steps": 17},
        checkpoint={"every": 2, "keep": 1, "archive": 2},
        stop={"updates": 14},
    )


@pytest.fixture(scope="module")
def hide_and_seek(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One policy for both teams."""
    return launched(
        tmp_path_factory.mktemp("hide"),
        env={"use": "hide_and_seek", "preset": "mini", "physics": "fast", "horizon": 12},
        policy={"use": "entity", "size": "small"},
        algorithm={"use": "ppo", "lr": 0.01, "epochs": 1, "minibatch": 80, "window": 10},
        sampling={"envs": 4, "steps": 10},
        checkpoint={"every": 1, "keep": 1, "archive": 2},
        evaluation={"every": 1_000_000, "episodes": 2, "greedy": False},
        stop={"updates": 5},
    )


def test_the_matrix_is_right_where_it_is_known(pennies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(pennies), "--cross-play", "--episodes", "3", "--versions", "all"]) == 0
    written = json.loads((pennies / "cross_play.json").read_text())
    assert (written["rows"]["team"], written["columns"]["team"], written["statistic"]) == ("even", "odd", "return/even")
    # initial, archived after updates 4, 8 and 12, latest after 14
    assert [one["name"][:5] for one in written["rows"]["versions"]] == ["initi", "step_", "step_", "step_", "lates"]
    assert written["matrix"] == [[-16.0, -16.0, -16.0, 16.0, 16.0]] * 5
    assert written["cells"][0][0]["return/odd"] == 16.0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "return/even: rows even, columns odd; 3 episodes each, most likely actions"
    assert lines[2].split() == ["initial", "-16", "-16", "-16", "16", "16", "-3.2"]
    assert lines[7].split() == ["mean", "-16", "-16", "-16", "16", "16", "-3.2"]
    assert lines[8] == str(pennies / "cross_play.json")


def test_fewer_versions_are_spread_evenly_and_keep_the_first_and_the_last(pennies: Path) -> None:
    run = srl.load_run(pennies)
    everything = saved(run, "odd")
    assert [one.step for one in everything] == sorted({one.step for one in everything})
    payoff = play_all(run, episodes=1, versions=3)
    assert payoff.columns.versions == (everything[0], everything[2], everything[4])
    assert payoff.matrix == [[-16.0, -16.0, 16.0]] * 3


def test_a_policy_that_does_not_learn_is_one_version(tmp_path: Path) -> None:
    folder = launched(
        tmp_path,
        env=f"{ROOT / 'docs' / 'examples' / 'pennies.py'}:Pennies",
        policies={
            "even": {"policy": f"{AGES}:Ages", "algorithm": f"{AGES}:Aging"},
            "odd": {"policy": {"use": f"{ROOT / 'docs' / 'examples' / 'pennies.py'}:Repeat", "mistakes": 0.0}},
        },
        agents={"even": "even", "odd": "odd"},
        sampling={"envs": 2, "steps": 17},
        stop={"updates": 2},
    )
    payoff = play_all(srl.load_run(folder), episodes=1)
    assert [one.label for one in payoff.columns.versions] == ["fixed"]
    assert payoff.matrix == [[16.0], [16.0]], "it repeats the 0 that `even` always shows"


def test_hide_and_seek_shows_how_much_hiders_are_seen(hide_and_seek: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(hide_and_seek), "--cross-play", "--episodes", "4", "--versions", "3"]) == 0
    written = json.loads((hide_and_seek / "cross_play.json").read_text())
    assert (written["rows"]["team"], written["columns"]["team"]) == ("hider", "seeker")
    assert (written["statistic"], written["greedy"], written["episodes"]) == ("seen", False, 4)
    matrix = written["matrix"]
    assert [len(row) for row in matrix] == [3, 3, 3] and all(0 <= cell <= 1 for row in matrix for cell in row)
    assert len({cell for row in matrix for cell in row}) > 1, "who plays makes a difference"
    for cell in (cell for row in written["cells"] for cell in row):
        assert cell["return/hider"] == pytest.approx(-cell["return/seeker"])
    assert capsys.readouterr().out.startswith("seen: rows hider, columns seeker; 4 episodes each, sampled actions")


def test_a_cell_does_not_depend_on_what_was_played_before_it(hide_and_seek: Path) -> None:
    run = srl.load_run(hide_and_seek)
    few, more = (play_all(run, episodes=2, versions=versions).cells for versions in (2, None))
    assert [few[0][0], few[0][1], few[1][0], few[1][1]] == [more[0][0], more[0][-1], more[-1][0], more[-1][-1]]


def test_two_teams_of_a_pettingzoo_env(tmp_path: Path) -> None:
    pytest.importorskip("mpe2")
    small = {"policy": {"hidden": [8]}, "algorithm": {"use": "ppo", "lr": 0.05}}
    folder = launched(
        tmp_path,
        env={"use": "pettingzoo", "id": "mpe2.simple_tag_v3"},
        policies={"hunter": small, "prey": small},
        agents={"adversary_*": "hunter", "agent_*": "prey"},
        sampling={"envs": 2, "steps": 26},
        checkpoint={"every": 2, "archive": 1},
        stop={"updates": 5},
    )
    payoff = play_all(srl.load_run(folder), episodes=2, envs=2)
    assert (payoff.rows.team, payoff.columns.team, payoff.statistic) == ("adversary", "agent", "return/adversary")
    assert [one.name.partition("_")[0] for one in payoff.rows.versions] == ["initial", "step", "step", "latest"]
    assert [len(row) for row in payoff.matrix] == [4] * 4


def test_cross_play_needs_two_teams(tmp_path: Path) -> None:
    folder = launched(
        tmp_path, env="CartPole-v1", algorithm="ppo", sampling={"envs": 2, "steps": 8}, evaluation=None, stop={"updates": 1}
    )
    with pytest.raises(UserError, match="exactly two teams"):
        evaluate([str(folder), "--cross-play"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--show", "sen"], "no match has the statistic 'sen'(.|\n)*return/even"),
        (["--versions", "1"], "neither `all` nor a number of at least 2"),
        (["--versions", "some"], "neither `all` nor a number of at least 2"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], said: str, pennies: Path) -> None:
    with pytest.raises(UserError, match=said):
        evaluate([str(pennies), "--cross-play", "--episodes", "1", *words])


def test_eval_plays_as_the_run_was_evaluated(hide_and_seek: Path, pennies: Path) -> None:
    run = srl.load_run(hide_and_seek)
    as_it_was, drawn, greedy = (run.evaluate(episodes=4, greedy=how) for how in (None, False, True))
    assert as_it_was == drawn != greedy
    assert srl.load_run(pennies).greedy


def test_the_seed_of_an_episode_is_no_figure_of_a_run(hide_and_seek: Path) -> None:
    run = srl.load_run(hide_and_seek)
    assert "seed" in run.derived.env.stats and "seed" not in run.evaluate(episodes=2)
    assert not any(key.endswith("/seed") for row in run.metrics() for key in row)


def test_a_film_is_as_fast_as_the_real_thing(hide_and_seek: Path, tmp_path: Path) -> None:
    assert srl.load_run(hide_and_seek).derived.env.fps == pytest.approx(1 / 0.075)
    assert main(["play", str(hide_and_seek), "--record", str(tmp_path / "film.gif")]) == 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.info["duration"] == pytest.approx(75, abs=5)
    with pytest.raises(UserError, match="positive frame rate"):
        play([str(hide_and_seek), "--fps", "0", "--record", str(tmp_path / "none.gif")])
    with srl.build(env="CartPole-v1", algorithm="ppo", sampling={"envs": 2, "steps": 4}) as session:
        actor: Any = session.workers["actor/0"]
        assert actor.groups[0].spec.fps == 50
