"""A sink: returns and evaluations of a run as a CSV file in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import srl


class Csv(srl.Sink):
    def __init__(self, folder: Path) -> None:
        self.file = (folder / "returns.csv").open("a")

    def report(self, report: Any) -> None:
        for team, value in report.returns.items():
            print(report.env_steps, team or "return", value, sep=",", file=self.file)
        for one in report.evaluated:
            print(one.env_steps, "evaluation", one.values["eval/return"], sep=",", file=self.file)

    def end(self, result: Any) -> None:
        self.file.close()
