"""Help texts made from the schema: `--help`, `--help sampling`, `--help ppo`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass, replace

from srl.config.experiment import SECTIONS, Experiment
from srl.config.find import list_experiments
from srl.core.errors import UserError
from srl.core.load import nearest
from srl.core.option import Row, describe, hints_of, settings
from srl.core.registry import REGISTRIES

_WIDTH = 110
_COMPONENTS = ("env", "policy", "algorithm", "learner", "launcher")

USAGE = """\
Run an experiment.

  python -m srl.launch experiment=NAME [key.path=value ...]     an experiment file, with overrides; NAME alone works too
  python -m srl.launch env=CartPole-v1 algorithm=ppo            without a file
  python -m srl.launch --resume RUN [key.path=value ...]        continue a run from its newest checkpoint

overrides   a.b=3   a.list=[1,2]   +a.new=1   ~a.b (remove)   @file.yaml (merge)   import=my_pkg (plugin)

options
  --resume RUN          continue a run: a run folder, or a folder above it for the newest run in it
  --resume-or-start ID  continue the run RUNS/NAME/ID if it exists, else start it; for jobs that are requeued
  --dry-run             check everything and print the plan; start nothing
  --print-config        print the resolved configuration and the origin of each value
  --sweep KEY=A,B,C     one run per value (several --sweep: one per combination), one folder, one table
  --sweep KEY=RANGE     random search: log(1e-5,1e-2), uniform(0.9,1) or int(1,8); of lists one value is drawn,
                        but every trial runs with all values of seed=1,2,3
  --trials N            number of trials of a random search (default: 16)
  --halving             give most env steps to the best: a third of the trials goes on to three times the env steps
  --metric NAME         what a search compares (default: episode/return; larger is better)
  --jobs N              number of runs of a sweep at a time (default: 1)
  --runs DIR            folder for the runs (default: runs)
  --quiet               print only the result
  --trace               print tracebacks of user errors too
  --help [NAME]         help on a section below, on `layout`, or on an algorithm, policy or env by its name

exit codes
  0 done   2 user error   3 a worker failed   4 no progress
  75 preempted (SIGTERM, SIGUSR1) or 130 interrupted (Ctrl-C): drained and saved, continue with --resume"""


def launch_help() -> str:
    """All of `python -m srl.launch --help`."""
    return f"{USAGE}\n\nsettings (--help SECTION lists those of a section)\n{_table(describe(Experiment))}"


def section_help(name: str) -> str:
    """One section, or the settings of one component by its name."""
    if name in SECTIONS:
        about = " ".join((SECTIONS[name].__doc__ or "").split())
        return f"{textwrap.fill(f'{name}: {about}', _WIDTH)}\n{_table(describe(SECTIONS[name]))}"
    if name == "layout":
        return _layouts()
    if name in _COMPONENTS:
        return _component(name)
    if (found := _by_name(name)) is not None:
        return found
    rows = {row.name: row for row in describe(Experiment)}
    if name in rows:
        return _table([rows[name]])
    known = [*SECTIONS, *_COMPONENTS, "layout", *REGISTRIES["algorithm"].names(), *REGISTRIES["policy"].names()]
    error = UserError(f"there is no help on '{name}'")
    if name in list_experiments():
        raise error.add("try", f"python -m srl.launch experiment={name} --print-config")
    if near := nearest(name, known):
        error.add("did you mean", f"--help {near}?")
    raise error.add("sections", ", ".join([*SECTIONS, *_COMPONENTS, "layout"]))


def _component(kind: str) -> str:
    names = REGISTRIES[kind].names()
    lines = [f"{kind}: a name, pkg.mod:Class, path/to/file.py:Class, or a mapping {{use: name, its settings}}"]
    lines.append(f"names: {', '.join(names)}" + (", and every Gymnasium id" if kind == "env" else ""))
    if kind != "env":
        lines.append(f"settings of each: python -m srl.launch --help {names[0]}")
    return "\n".join(lines)


def _by_name(name: str) -> str | None:
    """The settings of an algorithm, policy, env or worker: imports it."""
    for kind in ("algorithm", "policy", "worker", "env", "learner", "launcher", "sink"):
        if name in REGISTRIES[kind] or (":" in name and kind == "algorithm"):
            found = REGISTRIES[kind].resolve(name)
            schema = getattr(found, "Config", None) or getattr(found, "Args", None)
            parts = (schema,) if schema is not None else getattr(found, "PARTS", ())
            about = " ".join((found.__doc__ or "").split())
            head = textwrap.fill(f"{kind} {name}: {about}", _WIDTH)
            return f"{head}\n{_table(row for part in parts for row in _nested(part)) or '  no settings'}"
    return None


def _nested(schema: type, prefix: str = "") -> Iterator[Row]:
    """The settings of a component, those of its sections by their paths: `critic.hidden`."""
    hints = hints_of(schema)
    for one, row in zip(settings(schema), describe(schema), strict=True):
        kind = hints[one.name]
        if isinstance(kind, type) and is_dataclass(kind) and not hasattr(kind, "from_plain"):
            yield from _nested(kind, f"{prefix}{row.name}.")
        else:
            yield replace(row, name=f"{prefix}{row.name}")


def _layouts() -> str:
    rows = [("auto", "chosen for this machine; the plan says why")]
    rows += [(name, REGISTRIES["layout"].resolve(name).__doc__) for name in REGISTRIES["layout"].names()]
    rows += [("file.py:function", "one of your own, see docs/extending.md")]
    return "layout: which workers there are and how they are connected\n" + "\n".join(
        f"  {name:<18} {about}" for name, about in rows
    )


def _table(rows: Iterable[Row]) -> str:
    listed = [(row.name, _kind(row), row.help) for row in rows]
    wide = max((len(name) for name, _, _ in listed), default=0)
    lines = []
    for name, kind, text in listed:
        lines.append(f"  {name:<{wide}}  {kind}")
        lines += [f"  {'':<{wide}}    {part}" for part in textwrap.wrap(text, _WIDTH - wide - 6)]
    return "\n".join(lines)


def _kind(row: Row) -> str:
    kind = row.type if not row.type.startswith("mapping (") else "section"
    kind = "name or mapping" if kind.startswith("component") else kind.partition(" of mapping (")[0]
    default = "" if kind == "section" or (row.default.startswith("{") and len(row.default) > 40) else f" = {row.default}"
    return kind + (" (required)" if row.default == "required" else default)
