"""Curves of the page about experiments, from finished runs: python docs/site/curves.py RUNS [FOLDER]

RUNS is a folder of runs, such as `runs/cartpole_expect` after `srl expect experiment=cartpole --seeds 1,2,3`. For every
experiment in it this writes NAME.json (what was measured, thinned) and NAME.svg (the picture) in FOLDER, or in docs/curves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import srl
from srl.config.find import list_experiments
from srl.store.run_folder import RunFolder

HERE = Path(__file__).parents[1] / "curves"
POINTS = 150
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
WIDE, HIGH, LEFT, BOTTOM, TOP, RIGHT = 720, 300, 64, 40, 14, 14


def main() -> None:
    """Read every run below the folder."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    known = list_experiments()
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in sorted(RunFolder.below(Path(sys.argv[1])), key=lambda one: one.read_status()["seed"]):
        if (run := measured(folder)) is not None and (name := folder.read_status()["experiment"]) in known:
            found.setdefault(name, []).append(run)
    place = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE
    for name, seeds in found.items():
        record = {"experiment": name, "expect": expected(name), "seeds": seeds}
        (place / f"{name}.json").write_text(json.dumps(record) + "\n")
        (place / f"{name}.svg").write_text(picture(record))
        print(f"{name}: {len(seeds)} runs, {', '.join(format(one['return'], '.4g') for one in seeds)}")


def measured(folder: RunFolder) -> dict[str, Any] | None:
    """One run that has ended: its curve, its result, and the machine."""
    status = folder.read_status()
    rows = [row for row in srl.load_run(folder.path).metrics() if row.get("episode/return") is not None]
    if status["state"] not in ("done", "solved") or not rows:
        return None
    step = max(1, len(rows) // POINTS)
    kept = rows[::step] + ([] if (len(rows) - 1) % step == 0 else rows[-1:])
    machine = dict(line.split(": ", 1) for line in folder.env.read_text().splitlines())
    return {
        "seed": status["seed"],
        "seconds": round(status["seconds"], 1),
        "env_steps": status["env_steps"],
        "return": rows[-1]["episode/return"],
        "reached": status.get("held"),
        "machine": {key: machine.get(key, "") for key in ("cores", "memory", "torch", "git srl")},
        "curve": [[row["env_steps"], round(row["wall"], 1), round(row["episode/return"], 3)] for row in kept],
    }


def expected(name: str) -> float | None:
    """The return that the file of the experiment expects."""
    from srl.config.compose import compose
    from srl.config.experiment import read_experiment

    value = read_experiment(compose(name).data).expect.get("return")
    return None if value is None else float(value)


def picture(record: dict[str, Any]) -> str:
    """The returns of all seeds over env steps."""
    points = [(x, y) for one in record["seeds"] for x, _, y in one["curve"]]
    low, high = min(y for _, y in points), max(y for _, y in points)
    if record["expect"] is not None:
        low, high = min(low, record["expect"]), max(high, record["expect"])
    room = (high - low or 1.0) * 0.05
    low, high, last = low - room, high + room, max(x for x, _ in points)

    def at(x: float, y: float) -> tuple[float, float]:
        return (LEFT + x / last * (WIDE - LEFT - RIGHT), TOP + (high - y) / (high - low) * (HIGH - TOP - BOTTOM))

    parts = [f'<rect width="{WIDE}" height="{HIGH}" fill="white"/>']
    for y in ticks(low, high):
        _, place = at(0, y)
        parts.append(f'<path d="M{LEFT} {place:.1f}H{WIDE - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{y:,g}</text>')
    for x in ticks(0, last):
        place, _ = at(x, low)
        parts.append(f'<text x="{place:.1f}" y="{HIGH - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
    parts.append(f'<text x="{WIDE - RIGHT}" y="{HIGH - 6}" text-anchor="end">env steps</text>')
    if record["expect"] is not None:
        _, place = at(0, record["expect"])
        parts.append(f'<path d="M{LEFT} {place:.1f}H{WIDE - RIGHT}" stroke="#888" stroke-dasharray="5 4"/>')
    for colour, one in zip(COLOURS * len(record["seeds"]), record["seeds"], strict=False):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(x, y) for x, _, y in one["curve"]))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for i, (colour, one) in enumerate(zip(COLOURS * len(record["seeds"]), record["seeds"], strict=False)):
        parts.append(f'<text x="{LEFT + 90 * i}" y="{HIGH - 6}" fill="{colour}">seed {one["seed"]}</text>')
    style = 'font-family="system-ui, sans-serif" font-size="12" fill="#444"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" role="img" {style}>\n{body}\n</svg>\n'


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between both."""
    rough = (high - low) / 5
    power = 10.0 ** len(str(int(rough))) / 10 if rough >= 1 else 10.0 ** -(len(f"{1 / rough:.0f}"))
    step = next(power * one for one in (1, 2, 5, 10, 20, 50) if power * one >= rough)
    first = int(low // step) + 1
    return (
        [round(i * step, 10) for i in range(first, int(high // step) + 1)]
        if low
        else [i * step for i in range(int(high // step) + 1)]
    )


if __name__ == "__main__":
    main()
