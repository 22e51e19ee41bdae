"""`srl bench scale experiment=NAME --hosts N`: what a run would do on N hosts, from unit costs measured on this machine."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

from srl.cli.parsing import Parser, words_of
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.machine import Machine
from srl.core.progress import Progress
from srl.core.registry import REGISTRIES
from srl.core.text import columns, count, size
from srl.core.types import HOME
from srl.graph.spec import Graph
from srl.plan.prepare import Prepared, prepare
from srl.scale.check import Seen, real
from srl.scale.costs import Measured, measure
from srl.scale.costs import words as costs_in_words
from srl.scale.model import Costs, Outcome, Setup, Simulation

MOST_CONNECTIONS = 1000
_SLABS = 120_000
"""About so many are simulated."""


def scale_parser() -> Parser:
    """The words and options of `srl bench scale`."""
    parser = Parser(
        prog="srl bench scale", description="predict how a run would behave on many hosts, from unit costs measured here"
    )
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides")
    parser.add_argument("--hosts", type=int, required=True, help="hosts with actors")
    parser.add_argument(
        "--cores", type=int, help="cores of each host, with an actor on every core; default: as in the file, else 1"
    )
    parser.add_argument("--envs", type=int, help="envs of one actor; default: as in the file")
    parser.add_argument(
        "--trainers", type=int, default=1, help="trainers that train one policy together, each on a host of its own"
    )
    parser.add_argument(
        "--trainer-speed", type=float, default=1.0, help="how many times as fast a trainer is as one core of this machine"
    )
    parser.add_argument("--gbit", type=float, default=10.0, help="Gbit/s of a network card, in each direction")
    parser.add_argument("--latency", type=float, default=1e-4, help="seconds of a message on an idle network")
    parser.add_argument("--direct", action="store_true", help="every actor fetches its parameters from the trainer itself")
    parser.add_argument(
        "--fan-out", type=int, help="how many other hosts each host passes parameters on to; default: 8 above 64 hosts"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each measurement of unit costs")
    parser.add_argument("--check", type=float, metavar="SECONDS", help="also run it with all hosts on this machine, and compare")
    return parser


def scale(argv: list[str]) -> int:
    """Measure, simulate and print."""
    given = scale_parser().parse_intermixed_args(argv)
    if given.hosts < 1 or given.trainers < 1 or given.trainer_speed <= 0 or given.gbit <= 0:
        raise UserError("--hosts, --trainers, --trainer-speed and --gbit must be positive")
    with Progress("planning") as progress:
        _scale(given, progress)
    return 0


def _scale(given: argparse.Namespace, progress: Progress) -> None:
    experiment, overrides = words_of(given.words)
    prepared = _planned(experiment, overrides)
    graph = prepared.graph
    actor = graph.node("actor").loaded
    cores = given.cores or _cores(graph)
    envs = given.envs or actor.envs * actor.groups
    slabs = given.hosts * cores
    if slabs % given.trainers:
        raise UserError(
            f"{count(slabs, 'actor')} cannot be divided among {count(given.trainers, 'trainer')} equally",
            ("try", f"--trainers {max(one for one in range(1, given.trainers) if slabs % one == 0)}"),
        )
    progress("measuring unit costs")
    measured = measure(experiment, overrides, given.seconds, envs=envs, encrypt=not graph.insecure)
    costs = replace(measured.costs, train=measured.costs.train / given.trainer_speed)
    (trainer,) = (node.loaded for node in graph.nodes if node.worker == "trainer")
    fan_out = given.fan_out if given.fan_out is not None else (8 if given.hosts > 64 and not given.direct else 0)
    setup = Setup(
        hosts=given.hosts,
        actors=cores,
        cores=cores,
        envs=envs,
        steps=actor.steps,
        trainers=given.trainers,
        staleness=trainer.staleness,
        optimizer_steps=_optimizer_steps(prepared, measured.rows * slabs * envs * actor.steps),
        slab_bytes=measured.slab_bytes,
        param_bytes=measured.param_bytes,
        bandwidth=given.gbit * 1e9 / 8,
        latency=given.latency,
        pullers=not given.direct,
        fan_out=fan_out,
    )
    progress.print(columns([*costs_in_words(measured), *_plan(setup, given.trainer_speed)]))
    progress("simulating")
    outcome = Simulation(costs, setup).run(_updates(setup))
    progress.print("\n" + columns([*_table(setup, outcome, measured), ("bottleneck", bottleneck(setup, outcome))]))
    if given.check:
        progress.lasting("a real run", given.check)
        seen = real(experiment, overrides, given.check, hosts=given.hosts, envs=envs)
        progress.print(_compared(setup, measured.costs, seen))


def bottleneck(setup: Setup, outcome: Outcome) -> str:
    """What limits the rate, in words."""
    if outcome.nic_in > 0.9:
        return "the network cards of the trainers: samples come as fast as they can. More trainers, or smaller observations"
    if setup.together and outcome.cpu > 0.95:
        return "the cores of this machine, which all hosts share"
    if outcome.actors_wait_version > 0.1 and outcome.actors_wait_version > outcome.trainers_wait / 2:
        return f"parameters: actors wait {outcome.actors_wait_version:.0%} of the time for the version that they need"
    if outcome.sums > 0.3:
        return (
            f"sums over trainers: gradients are on their way {outcome.sums:.0%} of the time. Larger minibatches, fewer trainers"
        )
    if outcome.trainers_wait < 0.1:
        return f"the trainers: actors wait {outcome.actors_wait_credit:.0%} of the time for credit. More or faster trainers"
    if outcome.actors_wait_credit < 0.1:
        return f"the actors: trainers wait {outcome.trainers_wait:.0%} of the time for slabs. More hosts, or a faster env"
    return (
        f"no single part: trainers wait {outcome.trainers_wait:.0%} and actors {outcome.actors_wait_credit:.0%} of the time,"
        " for each other. A larger staleness.max lets them work at the same time"
    )


def _planned(experiment: str | None, overrides: list[str]) -> Prepared:
    """The plan for the hosts that the file names: it says how many envs an actor has."""
    prepared = prepare(experiment, [*overrides, "launcher=loopback", "layout=impala"], inspect=False)
    trainers = [node for node in prepared.graph.nodes if node.worker == "trainer"]
    if len(trainers) != 1 or any(node.worker == "replay" for node in prepared.graph.nodes):
        raise UserError(
            "the model has one policy that is trained on slabs",
            ("found", "a replay" if len(trainers) == 1 else f"{len(trainers)} policies that learn"),
            ("try", "an experiment with PPO or IMPALA and one policy, such as hide_and_seek_full or cartpole"),
        )
    return prepared


def _cores(graph: Graph) -> int:
    placed = graph.node("actor").hosts
    return 1 if placed == HOME else graph.hosts[placed].cores or 1


def _optimizer_steps(prepared: Prepared, rows: int) -> int:
    """Of one update of so many rows, by the settings of the algorithm; minibatches count the rows of all trainers."""
    entry = prepared.graph.policies[prepared.experiment.learning[0]]
    assert entry.algorithm is not None
    settings = load(REGISTRIES["algorithm"].resolve(entry.algorithm.use).Config, entry.algorithm.args)
    epochs, minibatch = int(getattr(settings, "epochs", 1)), int(getattr(settings, "minibatch", 0) or rows)
    return epochs * math.ceil(rows / minibatch)


def _updates(setup: Setup) -> int:
    return max(4, min(60, _SLABS // setup.slabs))


def _plan(setup: Setup, speed: float) -> list[tuple[str, str]]:
    ways = (
        "by each actor" if not setup.pullers else f"by a tree with fan-out {setup.fan_out}" if setup.fan_out else "by each host"
    )
    trainers = count(setup.trainers, "trainer") + (f", each as fast as {speed:g} cores here" if speed != 1 else "")
    return [
        ("actors", f"{setup.hosts * setup.actors:,} on {count(setup.hosts, 'host')}, {setup.envs} envs each"),
        ("trainers", trainers),
        ("optimizer", f"{count(setup.optimizer_steps, 'step')} an update"),
        ("batch", f"{setup.slabs:,} slabs of {setup.slab_steps:,} = {setup.slabs * setup.slab_steps:,} env steps"),
        ("network", f"{setup.bandwidth * 8e-9:g} Gbit/s, parameters {ways}"),
    ]


def _table(setup: Setup, outcome: Outcome, measured: Measured) -> list[tuple[str, str]]:
    own = setup.slabs / setup.trainers
    memory = (setup.staleness + 1) * own * setup.slab_bytes
    host = setup.actors * (measured.resident + (setup.groups + 1 + setup.staleness) * setup.slab_bytes)
    joined = setup.hosts * setup.actors / setup.trainers
    far = max(setup.delay(one) for one in (0, setup.hosts - 1))
    samples = outcome.updates * own * setup.slab_bytes
    too_many = f": more than {MOST_CONNECTIONS:,}, {count(math.ceil(joined / MOST_CONNECTIONS), 'buffer worker')} needed between"
    return [
        ("rate", f"{outcome.rate:,.0f} env steps/s, {outcome.updates:.3g} updates/s"),
        ("actors wait", f"{outcome.actors_wait_credit:.1%} for credit, {outcome.actors_wait_version:.1%} for parameters"),
        (
            "trainers wait",
            f"{outcome.trainers_wait:.1%} for slabs" + (f", {outcome.sums:.1%} for sums" if setup.trainers > 1 else ""),
        ),
        ("staleness", f"{outcome.staleness:.2f} updates"),
        ("network of a trainer", f"{size(samples)}/s in ({outcome.nic_in:.0%} of its card), {outcome.nic_out:.0%} out"),
        ("network of a host", f"{size(samples * setup.trainers / setup.hosts)}/s out"),
        ("parameters everywhere", f"{far:.3g} s after their publication"),
        ("memory", f"{size(memory)} of batches in each trainer, {size(host)} on each host"),
        ("connections", f"{joined:,.0f} at each trainer" + (too_many if joined > MOST_CONNECTIONS else "")),
    ]


def _compared(setup: Setup, costs: Costs, seen: Seen) -> str:
    """A real run with these hosts on this machine, and a simulation of just that, with the costs that steps had in the run."""
    alone = replace(setup, actors=1, trainers=1, pullers=False, fan_out=0, latency=0.0)
    shared = replace(alone, together=True, cores=seen.available)
    acting, training = costs.acting(shared.slab_steps), costs.training(shared.slab_steps)
    told = Simulation(costs.times(seen.acting / acting, seen.training / training), shared).run(_updates(shared))
    rows = [
        ("all hosts on this machine", "simulated", "real", ""),
        ("env steps/s", f"{told.rate:,.0f}", f"{seen.rate:,.0f}", f"{told.rate / seen.rate - 1:+.1%}"),
        ("actors wait", f"{told.actors_wait_credit + told.actors_wait_version:.1%}", f"{seen.actors_wait:.1%}", ""),
        ("trainer waits", f"{told.trainers_wait:.1%}", f"{seen.trainer_waits:.1%}", ""),
        ("staleness", f"{told.staleness:.2f}", f"{seen.staleness:.2f}", ""),
        ("cores used", f"{told.cpu * shared.cores:.2f}", f"{seen.cores:.2f}", ""),
    ]
    words = (
        f"taken from the real run: other programs left it {seen.available:.2f} of {Machine.here().cores} cores, and an env step "
        f"took {1e6 * seen.acting:.2f} us of an actor and {1e6 * seen.training:.2f} us of the trainer, "
        f"{1e6 * acting:.2f} and {1e6 * training:.2f} us when measured alone"
    )
    return "\n" + columns(rows, right=(1, 2, 3)) + f"\n{words}"
