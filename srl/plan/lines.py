"""The start plan: what is about to run, with its derived numbers, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from srl.api.inputs import encoders
from srl.core.learner import split_config
from srl.core.machine import Machine
from srl.core.text import count, size
from srl.core.tree import leaves
from srl.core.types import HOME
from srl.graph.hosts import hosts_lines, processes_by_host, sockets_lines
from srl.graph.placement import last_device
from srl.graph.show import times, words
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived


def plan_lines(
    graph: Graph, machine: Machine, why: Iterable[str] = (), derived: Derived | None = None, shared: int = 0
) -> list[tuple[str, str]]:
    """What is about to run, as (label, text)."""
    lines = [("experiment", f"{graph.name}: {words(graph.env)}, seed {graph.seed}, mode {graph.mode}")]
    if derived is not None and derived.env.about:
        lines.append(("env", derived.env.about))
    for name, entry in graph.policies.items():
        learner = f" by {words(entry.algorithm)}" if entry.algorithm else ", not trained"
        numbers = ""
        if derived is not None and derived.policies[name].params != {}:
            numbers = f", {sum(math.prod(leaf.shape) for _, leaf in leaves(derived.policies[name].params)):,} parameters"
            if entry.policy.use in ("actor_critic", "recurrent", "q_network", "recurrent_q"):
                numbers += "".join(f"\n{text}" for text in encoders(derived.policies[name].spec.obs, entry.policy.args))
        lines.append((f"policy {name}" if len(graph.policies) > 1 else "policy", f"{words(entry.policy)}{learner}{numbers}"))
    lines += [("why", reason) for reason in why]
    lines.append(("workers", "\n".join(_node_line(graph, node) for node in graph.nodes)))
    if graph.hosts:
        lines += [("launcher", words(graph.launcher)), ("hosts", hosts_lines(graph))]
        lines.append(("sockets", sockets_lines(graph)))
        if graph.insecure:
            lines.append(("insecure", "streams between hosts are not encrypted: whoever reaches their ports can read them"))
    lines += [("batch", text) for text in _batches(graph, derived)]
    lines.append(("threads", _threads(graph, machine)))
    if derived is not None:
        own = sum(node.kind.memory(node.loaded, node, graph, derived) for node in graph.nodes)
        kept = f", {size(own)} for replays," if own else ""
        lines.append(("memory", f"{size(shared)} shared{kept} of {size(machine.shared_free)} free"))
    lines.append(("stop", _stop(graph)))
    return lines


def _node_line(graph: Graph, node: Node) -> str:
    text = node.kind.about(node.loaded) or node.worker
    is_split = split_config(getattr(node.loaded, "learner", None)) is not None  # it says more about its devices
    text += ", each on its part of a batch" if node.kind.gang and node.count > 1 else ""
    if (node.kind.slow or node.device != "cpu") and not is_split:
        each = node.kind.gang and node.count > 1 and node.device == "cuda"
        text += f", on {f'cuda:0 to {last_device(graph, node)[0]}' if each else node.device}"
        text += f" with {node.threads} threads" if node.threads > 1 else ""
    return f"{times(node)}: {text}" + (f", inside {node.inside}" if node.inside and graph.mode != "inline" else "")


def _batches(graph: Graph, derived: Derived | None) -> Iterable[str]:
    """`1 batch = 48 envs x 64 steps x 4 agents = 12,288 agent steps = 6 minibatches x 4 epochs`"""
    args = [node.loaded for node in graph.nodes]
    sampling = next((one for one in args if hasattr(one, "envs") and hasattr(one, "steps")), None)
    for trainer, ranks in ((node.loaded, node.count) for node in graph.nodes if node.kind.gang and hasattr(node.loaded, "slabs")):
        if sampling is None:
            return
        if not trainer.slabs:
            continue
        policy, envs, steps = trainer.policy, trainer.slabs * sampling.envs, sampling.steps
        agents = derived.policies[policy].spec.agents if derived is not None else 1
        rows = envs * steps * agents
        text = f"{count(envs, 'env')} x {count(steps, 'step')}" + (f" x {agents} agents" if agents > 1 else "")
        text = f"1 batch = {text} = {count(rows, 'agent step' if agents > 1 else 'step')}"
        text += f" = {ranks} trainers x {rows // ranks:,}" if ranks > 1 else ""
        algorithm = graph.policies[policy].algorithm
        minibatch, epochs = (algorithm.args.get(key) if algorithm else None for key in ("minibatch", "epochs"))
        if isinstance(minibatch, int) and isinstance(epochs, int):
            text += f" = {_minibatches(rows, minibatch)} x {count(epochs, 'epoch')}"
        yield text if len(graph.policies) == 1 else f"{policy}: {text}"


def _minibatches(rows: int, most: int) -> str:
    """How many, and their size where it is not the one that was asked for: they are as even as can be."""
    number = -(-rows // most)
    text = count(number, "minibatch")
    if most > rows:
        return f"{text} (minibatch={most:,} is more than that)"
    return f"{text} of at most {-(-rows // number):,}" if rows % most else text


def _threads(graph: Graph, machine: Machine) -> str:
    cores = f"on {count(machine.cores, 'usable core')}"
    children = sum(_children(node) for node in graph.nodes)
    if graph.mode == "inline":
        return f"{count(1 + children, 'process')} {cores}"
    owners = processes_by_host(graph)[HOME]
    threads = children + sum(graph.node(name.rpartition("/")[0]).threads for name in owners)
    return f"{count(len(owners) + children, 'process')}, {count(threads, 'thread')} {cores}"


def _children(node: Node) -> int:
    """Processes of the critics of split learners."""
    split = split_config(getattr(node.loaded, "learner", None))
    return node.count if split is not None and split.devices[0] == "cpu" else 0


def _stop(graph: Graph) -> str:
    stop = graph.stop
    parts = [count(stop.env_steps, "env step")] if stop.env_steps else []
    parts += [count(stop.updates, "update")] if stop.updates else []
    parts += [f"a mean return of {stop.episode_return:g}"] if stop.episode_return is not None else []
    parts += [f"{stop.seconds:g} s"] if stop.seconds else []
    return f"after {' or '.join(parts)}" if parts else "at Ctrl-C"
