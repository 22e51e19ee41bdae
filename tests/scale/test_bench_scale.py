"""`srl bench scale` from a shell."""

from __future__ import annotations

import pytest

from srl.__main__ import main
from srl.scale.costs import measure


def test_it_says_what_a_run_on_many_hosts_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "scale", "experiment=cartpole", "--hosts", "100", "--cores", "2", "--envs", "4", "--seconds", "0.3"]
    assert main([*words, "--trainers", "2"]) == 0
    said = capsys.readouterr().out
    assert "200 on 100 hosts, 4 envs each" in said and "parameters by a tree with fan-out 8" in said
    for line in (
        "rate",
        "actors wait",
        "trainers wait",
        "staleness",
        "network of a trainer",
        "memory",
        "connections",
        "bottleneck",
    ):
        assert f"\n{line} " in said, said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["experiment=hide_and_seek", "--hosts", "2"], "the model has one policy that is trained on slabs"),
        (["experiment=half_cheetah_sac", "--hosts", "2"], "the model has one policy that is trained on slabs"),
        (["experiment=cartpole", "--hosts", "3", "--trainers", "2"], "3 actors cannot be divided among 2 trainers equally"),
        (["experiment=cartpole", "--hosts", "0"], "--hosts, --trainers, --trainer-speed and --gbit must be positive"),
    ],
)
def test_what_it_cannot_simulate_is_refused(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "scale", *words, "--seconds", "0.1"]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_time_in_which_an_env_waits_is_no_processor_time(clock: str) -> None:
    env = f"env={{use: fake, step_us: 500, clock: {clock}}}"
    costs = measure("cartpole", [env], 0.1, envs=4, encrypt=False).costs
    taken, other = (costs.idle, costs.act) if clock == "wall" else (costs.act, costs.idle)
    assert taken > 400e-6 > other


@pytest.mark.long
def test_a_real_run_on_this_machine_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "scale", "experiment=cartpole_fast", "--hosts", "2", "--envs", "64", "--seconds", "2", "--check", "25"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "all hosts on this machine" in said and "taken from the real run" in said
