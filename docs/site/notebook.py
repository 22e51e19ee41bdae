"""Run the cells of a notebook in order, in this process, and keep what they print: python docs/site/notebook.py FILE [--write]"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def run(file: Path) -> dict[str, Any]:
    """The notebook with the output of every cell."""
    book: dict[str, Any] = json.loads(file.read_text())
    names = vars(sys.modules["__main__"])  # where a notebook's classes are
    number = 0
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("".join(cell["source"]), f"{file.name}, cell {number}", "exec"), names)
            lines = printed.getvalue().splitlines(keepends=True)
            cell["execution_count"] = number
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return book


if __name__ == "__main__":
    path = Path(sys.argv[1])
    done = run(path)
    if "--write" in sys.argv:
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n")
    for cell in done["cells"]:
        for out in cell.get("outputs", ()):
            print("".join(out["text"]), end="")
