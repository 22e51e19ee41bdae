"""The docs are true: links resolve, files and commands exist, snippets run, examples run by name in processes of their own."""

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import srl
from srl.__main__ import VERBS
from srl.cli.help import section_help
from srl.cli.launch import _parser, main
from srl.cli.parsing import words_of
from srl.cli.search import drawn
from srl.cli.sweep import values
from srl.config.yaml import parse
from srl.observe.sinks.wandb import WandB
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:srl|tests|docs|experiments|benchmarks)/[\w/.-]*)(?:`|:)")
NO_RUN = ("runs/", "RUN")
FINISHED = 0


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(kind: str) -> Iterator[tuple[str, str]]:
    """(page and line, text) of every fence of this kind."""
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            if found[1].strip() == kind:
                yield f"{name(page)}:{text.count(chr(10), 0, found.start()) + 2}", found[2]


def commands() -> Iterator[tuple[str, list[str]]]:
    """(place, words) of every command of ours: in a shell fence, or in backticks and beginning as one, also in a container."""
    lines = [(place, line) for kind in ("bash", "sh", "sh by hand") for place, text in fences(kind) for line in text.splitlines()]
    for page in PAGES:
        prose = FENCE.sub("", page.read_text())
        lines += [(name(page), code) for code in re.findall(r"`((?:python -m srl|srl |kubectl exec )[^`]*)`", prose)]
    for place, line in lines:
        for part in line.split("&&"):
            words = shlex.split(part, comments=True)
            if words[:2] in (["python", "-m"], [".venv/bin/python", "-m"]) and words[2:3] in (["srl"], ["srl.launch"]):
                yield place, words[2:]
            elif words[:1] == ["srl"]:
                yield place, words
            elif "--" in words and words[words.index("--") + 1] == "srl":  # in a container or on another host
                yield place, words[words.index("--") + 1 :]


LAUNCHES = [(place, words[1:]) for place, words in commands() if words[0] == "srl.launch"]
OTHERS = [(place, words[1:]) for place, words in commands() if words[0] == "srl"]


def labels(pairs: list[tuple[str, list[str]]]) -> list[str]:
    return [f"{place} {' '.join(words)[:60]}" for place, words in pairs]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, f"{link} has no heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in SOURCE.findall(FENCE.sub("", page.read_text())):
        assert (ROOT / path).exists(), f"`{path}` is not there"


def test_every_decision_is_in_the_index_and_fits_one_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = page.read_text()
        assert page.name in index
        assert re.match(r"# \d+\. ", text) and len(text.split()) < 500, page.name
        assert all(f"**{part}" in text for part in ("Problem", "Options", "Choice", "Cost")), page.name


@pytest.mark.parametrize(("place", "words"), LAUNCHES, ids=labels(LAUNCHES))
def test_launch_commands_are_right(place: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are known, names and settings are right, the graph is whole. Nothing starts."""
    monkeypatch.setattr(WandB, "check", lambda: None)  # the package need not be installed
    if "--help" in words or not words:
        for topic in (word for word in words if word != "--help"):
            assert section_help(topic)
        return
    given = _parser().parse_intermixed_args(words)
    experiment, overrides = words_of([word for word in given.words if "NAME" not in word])
    if given.resume is not None or "NAME" in "".join(given.words) or any("my_pkg" in word or "my_alg" in word for word in words):
        return
    changes = drawn(given.sweep, [values(axis) for axis in given.sweep], 1)[0]
    prepare(experiment, [*overrides, *changes], inspect=False)


@pytest.mark.parametrize(("place", "words"), OTHERS, ids=labels(OTHERS))
def test_other_commands_exist(place: str, words: list[str]) -> None:
    verb, *rest = words
    if verb == "VERB":
        return
    assert verb in VERBS, f"{place}: srl {verb}"
    for option in (word for word in rest if word.startswith("--") and not verb.startswith("-")):
        assert option.partition("=")[0] in helped(verb), f"{place}: srl {verb} {option}"


@pytest.mark.parametrize("verb", sorted({words[0] for _, words in OTHERS if words[0] in VERBS}))
def test_commands_of_the_docs_have_a_help(verb: str) -> None:
    assert verb in helped(verb)


@functools.cache
def helped(verb: str) -> str:
    """The help of a command, printed by a process of its own."""
    return run("srl", verb, "--help")


def test_experiments_that_are_quoted_are_those_of_the_files() -> None:
    quoted = [(place, text) for kind in ("yaml", "yaml experiment") for place, text in fences(kind)]
    found = 0
    for place, text in quoted:
        file = ROOT / text.partition("\n")[0].removeprefix("# ").strip()
        if file.is_file():
            assert parse(text).data == parse(file.read_text()).data, f"{place} is not what {file.name} says"
            found += 1
    assert found


def test_lines_of_examples_are_counted_right() -> None:
    text = (ROOT / "docs" / "extending.md").read_text()
    counted = re.findall(r"\]\((examples/\w+\.py)\), (\d+) lines", text)
    assert len(counted) == 3
    for path, lines in counted:
        assert len((ROOT / "docs" / path).read_text().splitlines()) == int(lines), path


@pytest.mark.parametrize(("place", "text"), list(fences("yaml experiment")), ids=lambda value: value[:40])
def test_experiments_in_the_docs_are_right(place: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(text)
    prepare(file, inspect=False)


@pytest.mark.parametrize(("place", "text"), list(fences("python run")), ids=lambda value: value[:40])
def test_python_snippets_run(place: str, text: str, tmp_path: Path) -> None:
    """As a script without a guard, in an empty folder: the experiments of the package are found all the same."""
    script = tmp_path / "snippet.py"
    script.write_text(text)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    ended = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == FINISHED, ended.stderr[-3000:]
    assert ended.stdout.strip()


@pytest.mark.parametrize("file", ["clip_rewards.py", "averaged.py", "drift.py", "mixed.py"])
def test_examples_of_workers_learners_and_layouts_have_fewer_than_forty_lines(file: str) -> None:
    assert len((ROOT / "docs/examples" / file).read_text().splitlines()) < 40


def test_the_env_and_the_algorithm_run_by_name_and_learn(tmp_path: Path) -> None:
    """Both in every process of a local run: walking at random earns about -0.4 a walk."""
    corridor = ["env=docs/examples/my_env.py:Corridor", "algorithm=docs/examples/a2c.py:A2C", "algorithm.lr=3e-3"]
    last = launched(tmp_path, *corridor, "sampling.envs=64", "sampling.steps=16", "stop.env_steps=40_000")
    assert last["episode/return"] > 0.5
    assert last["episode/reached"] > 0.9


def test_the_off_policy_algorithm_runs_by_name_and_learns(tmp_path: Path) -> None:
    """Random actions earn about -1,500 an episode; the mean of all episodes says that it has begun to learn."""
    words = [
        "env=Pendulum-v1",
        "algorithm=docs/examples/soft_actor.py:SoftActor",
        "policy=squashed_gaussian",
        "policy.hidden=[64,64]",
    ]
    last = launched(
        tmp_path, *words, "sampling.envs=8", "replay.updates_per_step=0.2", "stop.env_steps=20_000", "evaluation=null"
    )
    assert last["episode/return"] > -1150


def test_the_network_runs_by_name_and_learns(tmp_path: Path) -> None:
    corridor = ["env=docs/examples/my_env.py:Corridor", "policy=docs/examples/my_net.py:Normed", "algorithm=ppo"]
    last = launched(tmp_path, *corridor, "algorithm.lr=1e-3", "sampling.steps=32", "stop.env_steps=20_000")
    assert last["episode/return"] > 0.5


def test_the_learner_runs_by_name_resumes_and_is_refused_settings_that_it_does_not_have(tmp_path: Path) -> None:
    words = ["env=docs/examples/my_env.py:Corridor", "algorithm=ppo", "algorithm.lr=1e-3", "sampling.steps=32", "evaluation=null"]
    words += ["workers.trainer.learner=docs/examples/averaged.py:Averaged", "workers.trainer.learner.decay=0.8"]
    last = launched(tmp_path, *words, "stop.env_steps=20_000")
    assert last["episode/return"] > 0.5
    last = launched(tmp_path, "--resume", str(next(tmp_path.glob("*/*"))), "mode=inline", "stop.env_steps=24_000")
    assert last["env_steps"] >= 24_000
    with pytest.raises(srl.core.errors.UserError) as caught:
        prepare(None, [*words, "mode=inline", "workers.trainer.learner.dekay=1"])
    assert caught.value.code == "E02" and "dekay" in caught.value.headline


def test_the_scripted_player_runs_by_name_and_is_beaten(tmp_path: Path) -> None:
    """It repeats nine times of ten: 16 rounds bring at most 12.8, drawing sides at random brings 0."""
    last = launched(tmp_path, "docs/examples/pennies.yaml", "stop.env_steps=40_000")
    assert last["episode/return/even"] > 8


def test_the_worker_runs_by_name_between_actors_and_trainer(tmp_path: Path) -> None:
    last = launched(tmp_path, "docs/examples/clipped.yaml", "stop.env_steps=12_000")
    assert last["env_steps"] >= 12_000
    assert max(value for name, value in last.items() if name.endswith("staleness_max")) <= 1
    ledger = (next(tmp_path.glob("*/*")) / "config.yaml").read_text()
    assert "clip_rewards.py:ClipRewards" in ledger


def test_the_sink_writes_returns_and_evaluations_at_their_env_steps(tmp_path: Path) -> None:
    words = ["experiment=cartpole", "sinks=[docs/examples/csv_sink.py:Csv]", "mode=inline", "stop.env_steps=6_000"]
    launched(tmp_path, *words, "evaluation.every=2_000", "evaluation.episodes=2")
    (file,) = tmp_path.glob("*/*/returns.csv")
    rows = [line.split(",") for line in file.read_text().splitlines()]
    folder = RunFolder(file.parent)
    assert [steps for steps, kind, _ in rows if kind == "evaluation"] == [row["env_steps"] for row in folder.read_eval()]
    assert float(next(value for _, kind, value in reversed(rows) if kind == "return")) > 5
    with pytest.raises(srl.core.errors.UserError):
        prepare("cartpole", ["sinks=[docs/examples/csv_sink.py:Css]"], inspect=False)


def test_the_worker_clips_what_the_trainer_sees() -> None:
    with srl.build("docs/examples/clipped.yaml") as session:
        session.step()
        rewards = session.batch.reward[session.batch.valid]
        assert rewards.max() == rewards.min() == 0.5


def test_a_worker_of_another_kind_runs_by_name_beside_any_layout(tmp_path: Path) -> None:
    words = ["experiment=cartpole", "workers.drift=docs/examples/drift.py:Drift", "stop.env_steps=16_000", "evaluation=null"]
    for layout in ("impala", "inline"):
        assert launched(tmp_path / layout, *words, f"layout={layout}", "workers.drift.order=1")["drift"] > 0
    lines = dict(prepare(None, [*words, "workers.drift.order=1"], inspect=False).lines())
    assert "drift: distance from the first weights, L1" in lines["workers"]


def test_a_layout_made_with_the_builder_runs_by_name(tmp_path: Path) -> None:
    words = ["experiment=cartpole", "layout=docs/examples/mixed.py:mixed", "stop.env_steps=16_000", "evaluation=null"]
    last = launched(tmp_path, *words, "workers.trainer.publish_every=2")
    assert last["env_steps"] >= 16_000
    graph = prepare(None, words, inspect=False).graph
    assert [(node.name, node.inside) for node in graph.nodes if node.worker != "trainer"] == [
        ("alone", None), ("inside", "alone"), ("asking", None), ("beside", None),
    ]  # fmt: skip


def test_no_file_of_the_package_lists_an_example() -> None:
    sources = "".join(file.read_text() for file in (ROOT / "srl").rglob("*.py"))
    assert not [name for name in ("drift.py", "mixed.py", "ClipRewards", "Averaged") if name in sources]


@pytest.mark.parametrize("env", ["my_env.py:Corridor", "pennies.py:Pennies"])
def test_the_envs_keep_the_contract(env: str) -> None:
    assert "equal seeds give equal episodes" in run("srl", "check", "env", f"docs/examples/{env}")


def launched(runs: Path, *words: str) -> dict[str, float]:
    """The newest value of every figure of a run, which must end well; in local mode its workers have processes of their own."""
    assert main([*words, "--quiet", "--runs", str(runs)]) == FINISHED
    merged: dict[str, float] = {}
    for row in srl.load_run(runs).metrics():
        merged |= {key: value for key, value in row.items() if value is not None}
    return merged


def run(module: str, *words: str) -> str:
    ended = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == FINISHED, ended.stderr[-3000:]
    return ended.stdout


def test_the_path_of_one_observation_is_short_enough_to_be_read():
    """The files that docs/architecture.md tells a newcomer to read in order."""
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## The path of one observation")[2].partition("\n## ")[0]
    path = re.findall(r"^\| \d+ \| `(srl/[\w/]+\.py)` \|", table, re.M)
    lines = {file: len((ROOT / file).read_text().splitlines()) for file in path}
    assert 10 <= len(path) <= 15
    assert sum(lines.values()) <= 2500, lines
