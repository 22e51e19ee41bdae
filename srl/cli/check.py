"""`srl check`: an experiment without starting it; an env, a policy or an algorithm alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.cli.parsing import Parser, words_of
from srl.core.progress import Progress
from srl.core.text import aligned
from srl.core.types import Component


def check(argv: list[str]) -> int:
    """Check an experiment, or one component alone."""
    if argv[:1] == ["env"]:
        return _check_env(argv[1:])
    if argv[:1] in (["policy"], ["algorithm"]):
        return _check_suite(argv[0], argv[1:])
    parser = Parser(prog="srl check", description="check an experiment without starting it")
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides, or: env NAME, policy NAME, algorithm NAME")
    experiment, overrides = words_of(parser.parse_intermixed_args(argv).words)
    from srl.observe.sinks.console import Console
    from srl.plan.prepare import prepare

    prepared = prepare(experiment, overrides)
    print(aligned(prepared.lines(), Console().width))
    print("OK")
    return 0


def _check_env(argv: list[str]) -> int:
    parser = Parser(
        prog="srl check env", description="test an env without training: spaces, resets, ends of episodes, seeds, saving"
    )
    parser.add_argument("words", nargs="+", metavar="ENV [key=value ...]", help="env=NAME or NAME, then its settings: env.id=...")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_intermixed_args(argv)
    from srl.envs.check import check_env

    env = Component.from_plain(_composed("env", given.words).get("env", ""))
    with Progress("making the env") as progress:
        report = check_env(env.flat, seed=given.seed, ticks=given.steps, tell=progress)
    print("\n".join(report.lines()))
    return 0


def _check_suite(kind: str, argv: list[str]) -> int:
    """Exit code 1 if a check does not hold."""
    about = {
        "policy": "ask a policy alone: answers, masks, noise, memory, statistics, checkpoints, its numpy twin",
        "algorithm": "train with an algorithm alone: truncation, masks, memory, seeds, checkpoints, two trainers",
    }
    parser = Parser(prog=f"srl check {kind}", description=about[kind])
    usual = "its settings: policy.hidden=[16]" if kind == "policy" else "settings: algorithm.epochs=2, policy=NAME"
    help_ = f"{kind}=NAME or NAME, then {usual}; env=NAME: with its observations and actions"
    parser.add_argument("words", nargs="+", metavar=f"{kind.upper()} [key=value ...]", help=help_)
    parser.add_argument(
        "--only", action="append", default=[], metavar="CHECK", help="run only the check with this name; may be repeated"
    )
    given = parser.parse_intermixed_args(argv)
    data = _composed(kind, given.words)
    policy = Component.from_plain(data.get("policy", "actor_critic"))
    env = Component.from_plain(data["env"]) if "env" in data else None
    with Progress("making small cases") as progress:
        if kind == "policy":
            from srl.suites.policy import check_policy

            report = check_policy(policy, env, only=given.only, tell=progress)
        else:
            from srl.suites.algorithm import check_algorithm

            algorithm = Component.from_plain(data.get("algorithm", ""))
            report = check_algorithm(algorithm, policy, env, only=given.only, tell=progress)
    print("\n".join(report.lines()))
    return 0 if report.holds else 1


def _composed(kind: str, words: list[str]) -> Mapping[str, Any]:
    """The settings that the words make, with plugins imported and the policy of an algorithm named."""
    from srl.config.compose import compose
    from srl.config.shorthand import spelled_out
    from srl.core.registry import load_plugins

    name, rest = words_of(words)
    data = compose(None, [f"{kind}={name}", *rest] if name is not None else rest).data
    load_plugins(data.get("plugins", ()))
    return spelled_out(data)
