"""What the site has beyond the pages in docs/: pages made from the source, from experiments and from a notebook.

A page with `<!-- NAME -->` gets the text of `MADE[NAME]` in its place. Links to files outside docs/ go to their place here.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import srl
from srl.cli.help import section_help
from srl.config.experiment import SECTIONS, Experiment
from srl.core.option import Row, describe
from srl.core.registry import REGISTRIES

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def on_config(config: Any) -> Any:
    """Pages that the navigation does not name come last; decisions have a part of their own."""
    docs = Path(config.docs_dir)
    named = set(re.findall(r"[\w/]+\.md", str(config.nav)))
    pages = sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md") if "site/" not in str(page.relative_to(docs)))
    decisions = [page for page in pages if page.startswith("decisions/")]
    others = [page for page in pages if page not in named and page not in decisions]
    config.nav += [{"Decisions": decisions}, {"More": [*others, *(uri for uri, _ in _more()), "changelog.md"]}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add pages that lie elsewhere."""
    made = [("changelog.md", (ROOT / "CHANGELOG.md").read_text()), *_more()]
    made += [(f"{file.stem}.md", _notebook(file)) for file in sorted(Path(config.docs_dir).glob("*.ipynb"))]
    for uri, text in made:
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put the made parts in, and lead links to the pages of the site."""
    for name, make in MADE.items():
        markdown = markdown.replace(f"<!-- {name} -->", make())
    source = _source(page.file.src_uri)

    def lead(found: re.Match[str]) -> str:
        target, _, anchor = found[3].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri, place = _on_site(path)
        if files.get_file_from_path(uri) is None:
            return f"`{path}`" if found[2] in (path, target) else f"{found[2]} (`{path}`)"
        anchor = anchor or place
        way = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}[{found[2]}]({way}{'#' + anchor if anchor else ''})"

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(lead, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(lead, markdown[at:])])


def _source(uri: str) -> str:
    """The file of the repository that a page is made of."""
    if uri.startswith("deploy/"):
        return uri.removesuffix(".md") + "/README.md"
    return {"changelog.md": "CHANGELOG.md"}.get(uri, f"docs/{uri}")


def _on_site(path: str) -> tuple[str, str]:
    """(page, anchor) for a file of the repository."""
    if path.startswith("experiments/"):
        return "experiments.md", Path(path).stem
    if path.startswith("deploy/"):
        return path.removesuffix("/README.md") + ".md", ""
    if path.endswith(".ipynb"):
        return path.removeprefix("docs/").removesuffix(".ipynb") + ".md", ""
    return {"CHANGELOG.md": "changelog.md", "README.md": "README.md"}.get(path, path.removeprefix("docs/")), ""


def _more() -> list[tuple[str, str]]:
    readmes = sorted((ROOT / "deploy").glob("*/README.md"))
    return [(f"deploy/{file.parent.name}.md", file.read_text()) for file in readmes]


def _notebook(file: Path) -> str:
    """A notebook as a page: its texts, its code, and what that printed."""
    parts = []
    for cell in json.loads(file.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        printed = "".join("".join(out.get("text", ())) for out in cell.get("outputs", ()))
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _experiments() -> str:
    parts = []
    for file in sorted((ROOT / "experiments").glob("*.yaml")):
        text = file.read_text()
        head = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
        parts.append(f"## {file.stem}\n\n{' '.join(head)}\n")
        parts.append(f"```sh\npython -m srl.launch experiment={file.stem}\n```\n")
        parts += _measured(file.stem)
        parts.append(
            f'??? note "{file.name}"\n\n' + "\n".join(f"    {line}" for line in f"```yaml\n{text}```".splitlines()) + "\n"
        )
    return "\n".join(parts)


def _measured(name: str) -> Iterator[str]:
    file = ROOT / "docs" / "curves" / f"{name}.json"
    if not file.is_file():
        yield "*No curve has been recorded yet.*\n"
        return
    record = json.loads(file.read_text())
    yield f"![returns of {name}](curves/{name}.svg)\n"
    rows = ["| seed | env steps | seconds | return | as expected |", "|---|---|---|---|---|"]
    for one in record["seeds"]:
        said = {True: "yes", False: "no", None: "nothing is expected"}[one["reached"]]
        rows.append(f"| {one['seed']} | {one['env_steps']:,} | {one['seconds']:.0f} | {one['return']:.4g} | {said} |")
    yield "\n".join(rows) + "\n"
    machine = record["seeds"][0]["machine"]
    yield f"On {machine['cores']} cores, {machine['memory']} of memory, Linux, torch {machine['torch']}.\n"


def _settings() -> str:
    parts = ["## The file\n", "Keys at the top of an experiment file.\n", _table(describe(Experiment))]
    for name, schema in SECTIONS.items():
        parts += [f"## {name}\n", f"{_about(schema)}\n", _table(describe(schema))]
    for kind, title in _KINDS.items():
        parts.append(f"## {title}\n")
        for name in REGISTRIES[kind].names():
            lines = section_help(name).splitlines() if kind != "layout" else []
            about = lines[0].partition(": ")[2] if lines else _about(REGISTRIES[kind].resolve(name))
            listed = "\n".join(lines[1:])
            parts.append(f"### {name}\n\n{about}\n" + (f"\n```text\n{listed}\n```\n" if listed.strip() else ""))
    return "\n".join(parts)


_KINDS = {
    "algorithm": "Algorithms", "policy": "Policies", "env": "Envs", "learner": "Learners", "worker": "Workers",
    "launcher": "Launchers", "sink": "Sinks", "layout": "Layouts",
}  # fmt: skip


def _about(thing: Any) -> str:
    return " ".join((thing.__doc__ or "").split())


def _table(rows: list[Row]) -> str:
    lines = ["| setting | type | default | |", "|---|---|---|---|"]
    for row in rows:
        kind, default = (text.replace("|", "&#124;") for text in (row.type, row.default))
        lines.append(f"| `{row.name}` | {kind} | {'' if len(default) > 60 else f'<code>{default}</code>'} | {row.help} |")
    return "\n".join(lines) + "\n"


def _api() -> str:
    """Every public name, by the module that it is from."""
    about = inspect.cleandoc(srl.launch.__doc__ or "")
    parts = [f"### launch\n\n```python\nlaunch{_signature(srl.launch)}\n```\n\n{about}\n"]  # its module has the same name
    by_module: dict[str, list[str]] = {}
    for name, module in srl._NAMES.items():
        by_module.setdefault(module, []).append(srl._OTHER.get(name, name))
    for module, names in by_module.items():
        parts += [f"::: {module}.{name}\n" for name in dict.fromkeys(names)]
    return "\n".join(parts)


def _signature(function: Any) -> str:
    return ",\n    ".join(str(inspect.signature(function)).replace("(", "(\n    ", 1).split(", "))


MADE: dict[str, Callable[[], str]] = {"experiments": _experiments, "settings": _settings, "api": _api}
