"""`srl export RUN`: the policy of a run as a file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from srl.cli.parsing import Parser, number
from srl.core.errors import UserError
from srl.core.progress import Progress
from srl.core.text import aligned, count, size


def export(argv: list[str]) -> int:
    """Write the program and its contract, and say how it compares with the original."""
    parser = Parser(
        prog="srl export",
        description="write the policy of a run as a program for other software, with its normalizer, mask and memory,"
        " and check that it acts as the original",
    )
    parser.add_argument("run", help="a run folder, or a folder of runs for its newest run")
    parser.add_argument("--format", choices=("onnx", "pt2"), default="onnx", help="onnx, or pt2 for torch (default: onnx)")
    parser.add_argument("--checkpoint", default="best", help="best, latest, step_000100000 (default: best)")
    parser.add_argument("--policy", metavar="NAME", help="which policy, if there are several (default: all that learn)")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="file to write (default: in exports/ of the run), next to a JSON file about it"
    )
    parser.add_argument("--observations", type=number, default=1000, help="number of observations compared (default: 1000)")
    given = parser.parse_args(argv)
    with Progress("loading the run") as progress:
        _export(given, progress)
    return 0


def _export(given: argparse.Namespace, progress: Progress) -> None:
    from srl.export.write import export_policy
    from srl.loaded import load_run

    run = load_run(given.run)
    names = [given.policy] if given.policy else list(run.graph.learning)
    if given.policy and given.policy not in run.derived.policies:
        raise UserError(f"the run has no policy '{given.policy}'", ("policies", ", ".join(run.derived.policies)))
    if given.out is not None and len(names) > 1:
        raise UserError("--out must name the file of one policy", ("policies", ", ".join(names)), ("try", f"--policy {names[0]}"))
    for name in names:
        progress.print(f"checkpoint {run.checkpoint(given.checkpoint, name)}")
        made = export_policy(
            run,
            name=name,
            which=given.checkpoint,
            format=given.format,
            out=given.out,
            observations=given.observations,
            tell=progress,
        )
        parity = made.parity
        ties = f", {count(parity.ties, 'action')} of equal value differ" if parity.ties else ""
        lines = [
            ("program", f"{made.program} ({size(made.program.stat().st_size)})"),
            ("contract", str(made.contract)),
            ("parity", f"{count(parity.observations, 'observation')}, largest difference {parity.difference:.1e}{ties}"),
        ]
        progress.print(aligned(lines))
