"""`srl list` and `srl graph`, which start nothing."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

from srl.cli.parsing import Parser, words_of
from srl.core.text import aligned
from srl.graph.spec import Graph
from srl.plan.prepare import prepare

_ALSO = {"learner": ["auto"], "layout": ["auto"], "transport": ["auto"], "launcher": ["local"]}
"""Names that stand for no class."""
_WHERE = {
    "env": ", and every Gymnasium id",
    "transport": " (streams.all.via)",
    "rule": ", latest-<n> (opponents.choose)",
    "transform": " (workers.NAME.transform of a buffer)",
}
"""What else may be said, and where a name goes if the setting is not called like it."""


def list_(argv: list[str]) -> int:
    """The experiments, each with a line about it, then all names that a file can use."""
    Parser(prog="srl list", description="list the experiments, and the names that they can use").parse_args(argv)
    from srl.config.find import list_experiments
    from srl.core.registry import REGISTRIES, load_plugins

    load_plugins(())  # those that are installed
    found = list_experiments()
    print("experiments")
    print(indent(aligned(found.items()), "  "))
    for kind, registry in REGISTRIES.items():
        print(f"{kind}: {', '.join([*_ALSO.get(kind, []), *registry.names()])}{_WHERE.get(kind, '')}")
    return 0


def graph(argv: list[str]) -> int:
    """The wiring of an experiment or of a run folder."""
    parser = Parser(prog="srl graph", description="show the workers and streams of an experiment or a run")
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides, or a run folder")
    parser.add_argument("--mermaid", action="store_true", help="print a Mermaid flowchart")
    parser.add_argument("--yaml", action="store_true", help="print the graph as YAML, as `graph:` takes it")
    given = parser.parse_intermixed_args(argv)
    from srl.graph.build import graph_to_yaml
    from srl.graph.show import as_mermaid, as_text

    wired = _graph_of(given.words)
    if given.yaml:
        print(graph_to_yaml(wired), end="")
    else:
        print(as_mermaid(wired) if given.mermaid else as_text(wired))
    return 0


def _graph_of(words: list[str]) -> Graph:
    if len(words) == 1 and Path(words[0]).is_dir():
        from srl.core.files import read_text
        from srl.graph.build import graph_from_yaml
        from srl.store.run_folder import RunFolder

        path = RunFolder.open(words[0]).graph
        return graph_from_yaml(read_text(path), str(path))
    experiment, overrides = words_of(words)
    return prepare(experiment, overrides, inspect=False).graph
