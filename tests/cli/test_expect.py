"""`srl expect`, and the line at the end of a run: what was expected, what was reached."""

import json

import pytest

from srl.__main__ import main as verbs
from srl.cli.launch import main

FILE = """\
env: CartPole-v1
policy: {use: actor_critic, hidden: [16]}
algorithm: {use: ppo, epochs: 1}
sampling: {envs: 16, steps: 32}
mode: inline
stop: {env_steps: 6_000}
expect: {return: 15, env_steps: 6_000}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(FILE)
    return tmp_path


def rows(text: str) -> list[dict[str, str]]:
    """The table, by its headings."""
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("seed  expected"))
    starts = [lines[at].index(word) for word in ("seed", "expected", "reached", "env steps", "seconds", "holds", "folder")]
    ends = [*starts[1:], None]
    cells = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in lines[at + 1 :] if line[:1].isdigit()]
    heads = ("seed", "expected", "reached", "env steps", "seconds", "holds", "folder")
    return [dict(zip(heads, row, strict=True)) for row in cells]


def status(folder, seed: int) -> dict:
    (file,) = folder.glob(f"runs/my_expect/*/seed={seed}/my/*/status.json")
    return json.loads(file.read_text())


def test_an_expectation_that_every_seed_meets_holds(folder, capsys):
    assert verbs(["expect", "my", "--seeds", "1,2", "--jobs", "2"]) == 0
    text = capsys.readouterr().out
    first, second = rows(text)
    assert (first["seed"], second["seed"]) == ("1", "2")
    assert {first["holds"], second["holds"]} == {"yes"}
    assert first["expected"] == "return 15 within 6,000 env steps"
    assert float(first["reached"]) == pytest.approx(status(folder, 1)["reached"]["return"], rel=1e-4)
    assert int(first["env steps"].replace(",", "")) >= 6000
    assert text.splitlines()[-1] == "expect  return 15 within 6,000 env steps: 2 of 2 seeds hold"


def test_an_expectation_that_one_seed_misses_does_not_hold(folder, capsys):
    assert verbs(["expect", "my", "expect.return=400", "--seeds", "1"]) == 1
    text = capsys.readouterr().out
    (row,) = rows(text)
    assert row["holds"] == "no"
    assert 15 < float(row["reached"]) < 400
    assert text.splitlines()[-1].endswith("0 of 1 seeds hold")


def test_a_seed_whose_run_fails_does_not_hold_and_says_why(folder, capsys):
    (folder / "mine.py").write_text(
        "from srl.algorithms.ppo import PPO\n"
        "class Breaks(PPO):\n"
        "    def update(self, batch):\n"
        "        raise RuntimeError('the loss is not a number')\n"
    )
    assert verbs(["expect", "my", "algorithm.use=mine.py:Breaks", "expect.return=-1", "--seeds", "1"]) == 1
    text = capsys.readouterr().out
    (row,) = rows(text)
    assert row["holds"] == "no (exit 3)"
    assert "RuntimeError: the loss is not a number" in text


def test_a_run_says_at_its_end_whether_it_has_reached_what_was_expected(folder, capsys):
    assert main(["my", "--quiet"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("expect "))
    assert line.split("  ", 1)[1].strip().startswith("return 15: reached (")
    assert main(["my", "expect.return=400", "--quiet"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("expect "))
    assert line.split("  ", 1)[1].strip().startswith("return 400: not reached (")


def test_a_run_that_its_return_stops_has_reached_that_return(folder, capsys):
    assert main(["my", "stop={return: 12}", "expect={return: 12}", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("solved") and "return 12: reached (" in said
    (file,) = folder.glob("runs/my/*/metrics.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert max(row.get("episode/return", 0) for row in rows) >= 12


def test_returns_beyond_the_env_steps_that_are_allowed_do_not_count(folder, capsys):
    assert verbs(["expect", "my", "expect={return: 15, env_steps: 500}", "--seeds", "1"]) == 1
    (row,) = rows(capsys.readouterr().out)
    assert (row["reached"], row["holds"]) == ("", "no")


def test_an_experiment_that_expects_nothing_is_refused(capsys):
    assert verbs(["expect", "my", "~expect", "--seeds", "1"]) == 2
    assert "error[E00]: experiment 'my' has no `expect:` section" in capsys.readouterr().err


def test_the_return_of_a_team_that_is_not_there_is_refused_before_any_run(folder, capsys):
    assert verbs(["expect", "my", "expect={return/hider: 3}"]) == 2
    text = capsys.readouterr().err
    assert "error[E02]: 'expect' names 'return/hider', which no run of this env has\n  from: command line" in text
    assert "  returns: return" in text
    assert not (folder / "runs").exists()


def test_what_an_inherited_experiment_reaches_is_not_expected(folder, capsys):
    (folder / "other.yaml").write_text("inherit: my\nenv: Acrobot-v1\n")
    assert main(["other", "--print-config"]) == 0
    assert "expect: {}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["returns", "return/", "eval/return"])
def test_what_cannot_be_expected_is_refused(name, capsys):
    assert main(["my", f"expect={{{name}: 3}}", "--dry-run"]) == 2
    assert capsys.readouterr().err == (
        f"error[E02]: 'expect' has no setting '{name}'\n  from: command line\n  settings: return, return/TEAM, env_steps\n"
    )
