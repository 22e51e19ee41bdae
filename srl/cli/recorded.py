"""`srl replay FOLDER`: what a recording holds, and the same as a data set of Minari."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from srl.cli.parsing import Parser
from srl.core.errors import UserError
from srl.core.text import aligned, count, figure, size
from srl.core.tree import Array


def replay(argv: list[str]) -> int:
    """Rows and episodes of the files that `record` wrote; `replay.data=FOLDER` trains on them."""
    about = "show what a recording holds: the folder that `record` of a run named. replay.data=FOLDER plays it back"
    parser = Parser(prog="srl replay", description=about)
    parser.add_argument("folder", help="the folder of `record`")
    parser.add_argument(
        "--to", metavar="minari:NAME", help="write its episodes as a new data set of Minari, such as minari:cartpole/ppo-v0"
    )
    given = parser.parse_args(argv)
    folder = Path(given.folder)
    from srl.replay.recording import columns_of, files_of, slabs_of

    files = files_of(folder)
    if given.to is not None:
        return _written(folder, given.to)
    rows, slabs, joined = 0, 0, True
    returns: list[float] = []
    shapes: dict[str, str] = {}
    for arrays in slabs_of(folder):
        slabs, joined = slabs + len(arrays["valid"]), joined and "origin" in arrays
        for column in columns_of(arrays):
            shapes |= {
                name: f"{leaf.dtype} {leaf.shape[1:]}" for name, leaf in column.items() if name.partition("/")[0] in _SHOWN
            }
            rows += len(column["reward"])
            returns += _returns(column)
    lines = [
        ("files", f"{len(files)}, {size(sum(file.stat().st_size for file in files))}, {files[0].name} to {files[-1].name}"),
        ("rows", f"{rows:,} in {count(slabs, 'slab')}"),
        *shapes.items(),
        ("episodes", f"{len(returns):,} whole ones{', mean return ' + figure(float(np.mean(returns))) if returns else ''}"),
        *([] if joined else [("", "of an on-policy run: those that lie within one slab")]),
    ]
    print(aligned(lines))
    return 0


def _written(folder: Path, target: str) -> int:
    """The recording as a data set of Minari."""
    from srl.replay import minari
    from srl.replay.dataset import minari_name
    from srl.replay.recording import About, columns_of, slabs_of

    if (name := minari_name(target)) is None:
        raise UserError(f"'--to' must name a data set of Minari, not '{target}'", ("try", f"--to minari:{target}"))
    columns = (column for arrays in slabs_of(folder) for column in columns_of(arrays))
    episodes, rows = minari.write(name, About.read(folder), columns)
    print(aligned([("written", target), ("episodes", f"{episodes:,}"), ("rows", f"{rows:,}")]))
    return 0


def _returns(column: Mapping[str, Array]) -> list[float]:
    """Of the episodes that are there from their first row to their last."""
    ends = np.flatnonzero(column["terminated"] | column["truncated"])
    if not len(ends):
        return []
    starts = np.append(0, ends[:-1] + 1)
    whole = column["begins"][starts] & column["ended"][ends]
    return [float(column["reward"][low : high + 1].sum()) for low, high in zip(starts[whole], ends[whole], strict=True)]


_SHOWN = ("obs", "action", "mask", "state")
