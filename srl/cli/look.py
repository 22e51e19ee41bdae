"""`srl list`, `srl graph` and `srl check`, which start nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

from srl.cli.parsing import Parser, words_of
from srl.core.text import aligned
from srl.graph.spec import Graph
from srl.plan.prepare import prepare


def list_(argv: list[str]) -> int:
    """The experiments, each with a line about it, then all names that a file can use."""
    Parser(prog="srl list", description="list the experiments, and the names that they can use").parse_args(argv)
    from srl.config.find import list_experiments
    from srl.core.registry import REGISTRIES

    found = list_experiments()
    print("experiments")
    print(indent(aligned(found.items()), "  "))
    for kind in ("env", "policy", "algorithm", "worker"):
        print(f"{kind}: {', '.join(REGISTRIES[kind].names())}")
    print(f"layout: auto, {', '.join(REGISTRIES['layout'].names())}")
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


def check(argv: list[str]) -> int:
    """Check an experiment, or with `env` an env alone."""
    if argv[:1] == ["env"]:
        return _check_env(argv[1:])
    parser = Parser(prog="srl check", description="check an experiment without starting it")
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides, or: env NAME")
    experiment, overrides = words_of(parser.parse_intermixed_args(argv).words)
    from srl.observe.sinks.console import Console

    prepared = prepare(experiment, overrides)
    print(aligned(prepared.lines(), Console().width))
    print("OK")
    return 0


def _check_env(argv: list[str]) -> int:
    parser = Parser(prog="srl check env", description="step an env alone: spaces, resets, ends of episodes, seeds, saving")
    parser.add_argument("words", nargs="+", metavar="ENV [key=value ...]", help="env=NAME or NAME, then its settings: env.id=...")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_intermixed_args(argv)
    from srl.config.compose import compose
    from srl.core.registry import load_plugins
    from srl.envs.check import check_env

    name, words = words_of(given.words)
    composed = compose(None, [f"env={name}", *words] if name is not None else words)
    load_plugins(composed.data.get("plugins", ()))
    env = composed.data.get("env", "")
    component = dict(env) if isinstance(env, Mapping) else {"use": env}
    print("\n".join(check_env(component, seed=given.seed, ticks=given.steps).lines()))
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
