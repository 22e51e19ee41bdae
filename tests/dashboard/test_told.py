"""What the page is told of runs: curves of long files, settings with their origins, films, logs, and what has changed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from srl.dashboard.curves import read_curves, read_rows
from srl.dashboard.news import News
from srl.dashboard.page import frozen_page
from srl.dashboard.runs import Runs, differing
from srl.store.run_folder import RunFolder


def made(root: Path, name: str = "a", *, lines: int = 10, lr: float = 0.1) -> RunFolder:
    run = RunFolder.create(root, "game", 1, run_id=name)
    row = {"rate/env": 1.0, "episode/return": 2.0, "loss": None}
    with run.metrics.open("w") as file:
        for number in range(lines):
            file.write(json.dumps({"time": 5.0, "wall": number, "env_steps": 10 * number, "update": number, **row}) + "\n")
    run.write_text("settings.json", json.dumps({"algorithm.lr": [lr, "command line"], "seed": [1, "default"]}))
    run.append_eval({"env_steps": 20, "eval/return": 7.5})
    return run


def test_curves_of_a_short_file_have_every_row(tmp_path: Path) -> None:
    run = made(tmp_path)
    with run.metrics.open("a") as file:  # an evaluation, a torn line, and one that is being written
        file.write('{"wall":3,"env_steps":20,"update":2,"eval/return":7.5}\n{"wall":\n{"wall":11,"rate')
    found = read_curves(run)
    assert found["columns"]["env_steps"] == [10 * number for number in range(10)]
    assert found["columns"]["loss"] == [None] * 10
    assert found["evaluations"] == {"env_steps": [20], "eval/return": [7.5]}
    assert found["thinned"] == 1
    assert run.metrics.read_bytes()[found["end"] :] == b'{"wall":11,"rate'


def test_of_a_long_file_lines_at_even_distances_and_the_newest_are_read(tmp_path: Path) -> None:
    run = made(tmp_path, lines=20_000)
    rows, end, thinned = read_rows(run.metrics, points=100)
    steps = [row["env_steps"] for row in rows]
    assert 95 <= len(steps) <= 101 and steps == sorted(set(steps))
    assert steps[0] == 0 and steps[-1] == 199_990 and end == run.metrics.stat().st_size
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert max(gaps) < 2 * 200_000 / 100
    assert 150 < thinned < 250


def test_news_are_new_rows_and_a_changed_state_only(tmp_path: Path) -> None:
    run = made(tmp_path)
    news = News("a", run, read_curves(run)["end"])
    first: list[dict[str, Any]] = [json.loads(text) for text in news.latest()]
    assert [sorted(one) for one in first] == [["events", "films", "id", "live", "logs", "summary"]]
    assert not list(news.latest())
    run.hold()  # a process writes to the folder now: that is a change, though no file has changed
    assert len(list(news.latest())) == 1
    run.close()
    assert len(list(news.latest())) == 1
    with run.metrics.open("a") as file:
        file.write('{"wall":11,"env_steps":100,"update":10,"rate/env":3.0}\n{"wall":12,"env_st')
    (told,) = (json.loads(text) for text in news.latest())
    assert [row["env_steps"] for row in told["rows"]] == [100] and "evaluations" not in told
    with run.metrics.open("a") as file:
        file.write('eps":100,"update":10,"eval/return":9}\n')
    (told,) = (json.loads(text) for text in news.latest())
    assert told["rows"] == [] and told["evaluations"]["eval/return"] == [7.5]


def test_runs_have_ids_and_the_settings_in_which_they_differ(tmp_path: Path) -> None:
    made(tmp_path, "a", lr=0.1), made(tmp_path, "b", lr=0.2)
    runs = Runs([tmp_path])
    found = runs.summaries()
    assert {one["id"]: one["settings"] for one in found["runs"]} == {
        "game/a": {"algorithm.lr": 0.1},
        "game/b": {"algorithm.lr": 0.2},
    }
    assert found["varying"] == ["algorithm.lr"] and found["shown"] == ["game/b"]
    run = runs.get("game/a")
    assert run is not None and runs.detail("game/a", run)["settings"][0] == ["algorithm.lr", 0.1, "command line"]
    assert runs.get("../game/a") is None


def swept(root: Path, **scores: float) -> Path:
    """The folder of a halving over `algorithm.lr` with a run for each score; all but the best one were stopped early."""
    place = root / "game_sweep" / "20260101-120000"
    rows: list[dict[str, Any]] = []
    for name, score in scores.items():
        folder = str(made(place / name, name).path.relative_to(place))
        best = score == max(scores.values())
        row = {"settings": {"algorithm.lr": len(name), "seed": 1}, "folder": folder, "round": int(best)}
        rows.append({**row, "end": "ok" if best else "stopped early", "figures": {"eval/return": score, "episode/return": 2.0}})
    rows.append({"settings": {"algorithm.lr": 9}, "folder": None, "round": 0, "end": "exit 2", "figures": {}})
    sweep = {"kind": "halving", "metric": "eval/return", "axes": ["algorithm.lr=int(1,9)", "seed=1"], "runs": rows}
    (place / "sweep.json").write_text(json.dumps(sweep))
    return place


def test_runs_of_a_sweep_are_told_with_what_its_table_says_the_best_first(tmp_path: Path) -> None:
    place = swept(tmp_path, a=3.0, bbb=7.0, cc=5.0)
    found = Runs([tmp_path]).summaries()
    assert [Path(one).name for one in found["shown"]] == ["bbb", "cc", "a"]
    told = {one["folder"]: (one["score"], one["round"], one["state"], one["settings"]["algorithm.lr"]) for one in found["runs"]}
    assert told == {"a": (3.0, 1, "stopped early", 1), "bbb": (7.0, 2, "created", 3), "cc": (5.0, 1, "stopped early", 2)}
    assert found["sweep"] == {"metric": "eval/return", "axes": ["algorithm.lr", "seed"], "refused": 1}
    assert Runs([one.path for one in RunFolder.below(place)]).summaries()["sweep"] == found["sweep"]
    made(tmp_path, "alone")
    assert Runs([tmp_path]).summaries()["sweep"] is None, "not all of them are of one sweep"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"metric": "x", "axes": [], "runs": [{}]}'])
def test_a_damaged_table_of_a_sweep_hides_no_run(tmp_path: Path, text: str) -> None:
    (swept(tmp_path, a=3.0, b=7.0) / "sweep.json").write_text(text)
    found = Runs([tmp_path]).summaries()
    assert len(found["runs"]) == 2 and found["sweep"] is None and "score" not in found["runs"][0]


@pytest.mark.parametrize(
    ("many", "names"),
    [([{"a": 1}, {"a": 1}], []), ([{"a": 1}, {"a": 2}], ["a"]), ([{"a": 1}, {}], ["a"]), ([{"a": [1]}, {"a": [1]}], [])],
)
def test_settings_differ_if_their_values_do_or_one_run_lacks_them(many: list[dict[str, Any]], names: list[str]) -> None:
    assert differing(many) == names


def test_a_frozen_page_holds_its_data_and_nothing_ends_its_script(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.append_event("note", text="</script><script>alert(1)</script>")
    (run.videos / "step_000000020.mp4").write_bytes(b"film")
    html = frozen_page(Runs([run.path]))
    assert html.count("</script>") == 2 and "alert(1)" in html
    assert "data:video/mp4;base64,ZmlsbQ==" in html
    assert "NONCE" not in html and 'src="http' not in html
