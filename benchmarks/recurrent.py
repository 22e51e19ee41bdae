"""Policies with memory on one thread: cells, PPO passes in chunks, acting. `python benchmarks/recurrent.py [--rounds 8]`.

CPU seconds, the best of several rounds, which alternate. A cell costs 18 (GRU) or 24 (LSTM) multiply-adds for each weight
of a layer of its width, where the layer costs 3: so beside the speed stands what it would be if nothing but the products
took time, each in float32 at the speed that the fastest product of this size has here.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.ppo import PPO
from srl.api.env import Discrete
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape, slab_spec
from srl.core.load import load
from srl.core.spec import Leaf, zeros
from srl.core.tree import map_tree
from srl.envs.hide_and_seek.config import preset
from srl.envs.hide_and_seek.env import env_spec
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic
from srl.nets.cells import CELLS
from srl.nets.entity import EntityPolicy
from srl.nets.recurrent import Recurrent
from srl.plan.acting import zero_ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for chunk, number, width in ((16, 64, 64), (16, 160, 128), (10, 256, 256)):
        cells(chunk, number, width, args.rounds)
    for width in (64, 128, 256):
        small_policies(width, args.rounds)
    for game, size in (("mini", "small"), ("mini_2v2", "small"), ("full", "full")):
        entity_policies(game, size, args.rounds)


def cells(chunk: int, number: int, width: int, rounds: int) -> None:
    """Forward and backward of one cell over `[chunk, number]` rows, inputs as wide as outputs."""
    torch.manual_seed(0)
    x = torch.randn(chunk, number, width, requires_grad=True)
    none, some = torch.zeros(chunk, number, dtype=torch.bool), torch.rand(chunk, number) < 0.02
    variants: dict[str, Callable[[], Any]] = {}
    for kind, own in (("lstm", nn.LSTM(width, width)), ("gru", nn.GRU(width, width))):
        cell = CELLS[kind](width, width)
        memory = torch.zeros(number, CELLS[kind].leaf_of(width).shape[0])
        variants[f"{kind}, no resets"] = lambda c=cell, m=memory: c(x, m, none)[0].sum().backward()
        variants[f"{kind}, a reset every 50 rows"] = lambda c=cell, m=memory: c(x, m, some)[0].sum().backward()
        variants[f"torch nn.{kind.upper()}, cannot reset"] = lambda o=own: o(x)[0].sum().backward()
    step = nn.LSTMCell(width, width)

    def loop() -> None:
        state, outs = (torch.zeros(number, width), torch.zeros(number, width)), []
        keep = (~some).float().unsqueeze(-1)
        for t in range(chunk):
            state = step(x[t], (state[0] * keep[t], state[1] * keep[t]))
            outs.append(state[0])
        torch.stack(outs).sum().backward()

    variants["torch nn.LSTMCell in a loop, resets"] = loop
    rows = chunk * number
    report(f"cells: {number} sequences of {chunk}, width {width}", variants, rows, rounds)
    print(f"  {'products of the lstm alone':38} {24 * width * width * product_time(rows, width, 4 * width):8.2f} us/row")


def small_policies(width: int, rounds: int) -> None:
    """PPO epochs over 8,192 rows of 8 numbers, minibatches of 1,024."""
    spec = PolicySpec(obs=Leaf((8,), "float32"), action=Discrete(4))
    variants: dict[str, Callable[[], Any]] = {}
    work: dict[str, float] = {}
    for cell in ("none", "gru", "lstm"):
        work[f"recurrent, cell {cell}"] = multiply_adds(width, cell)
        config = {"hidden": [width], "width": width, "cell": cell}
        variants[f"recurrent, cell {cell}"] = updates(Recurrent, config, spec, {"window": 16, "minibatch": 1024}, 64, 128)
    settings = {"window": 16, "minibatch": 1024}
    config = {"hidden": [width], "width": width, "cell": "lstm"}
    variants["recurrent, cell lstm, bfloat16"] = updates(Recurrent, {**config, "half": True}, spec, settings, 64, 128)
    config = {"hidden": [width, width], "shared": True}
    variants["actor_critic, shared tower"] = updates(ActorCritic, config, spec, {"minibatch": 1024}, 64, 128)
    for name in variants:
        work.setdefault(name, multiply_adds(width, "lstm" if "lstm" in name else "none"))
    times = multiply_adds(width, "lstm") / multiply_adds(width, "none")
    title = f"PPO, chunks of 16, width {width}; the products of the LSTM are {times:.1f} times those without memory"
    report(
        title, variants, 64 * 128, rounds, against="recurrent, cell none", work=work, each=product_time(1024, width, 4 * width)
    )


def entity_policies(game: str, size: str, rounds: int) -> None:
    """PPO passes over minibatches of 2,560 rows, and acting."""
    config = preset(game)
    team = env_spec(config).teams["hider"]
    spec = PolicySpec(obs=team.obs, action=team.action, mask=True)
    variants: dict[str, Callable[[], Any]] = {}
    for cell in ("none", "gru", "lstm"):
        variants[f"entity, cell {cell}"] = updates(
            EntityPolicy, {"size": size, "cell": cell}, spec, {"window": 16, "minibatch": 2560}, 64, 40 * 2
        )
    variants["entity, cell lstm, bfloat16"] = updates(
        EntityPolicy, {"size": size, "half": True}, spec, {"window": 16, "minibatch": 2560}, 64, 40 * 2
    )
    policy = EntityPolicy(load(EntityPolicy.Config, {"size": size}), spec)
    numbers = sum(one.numel() for one in policy.parameters())
    report(f"hide and seek {game}, {size} ({numbers:,} numbers): PPO", variants, 64 * 80, rounds, against="entity, cell none")
    for rows in (64, 128):
        ask = zero_ask(spec, policy.memory, rows)
        seconds = best({"act": lambda ask=ask: policy.act(ask)}, rounds * 4)["act"]
        print(f"  {f'acting, {rows} rows a block':38} {seconds / rows * 1e6:8.2f} us/row {rows / seconds:10,.0f} rows/s")


def updates(
    policy: Any, config: dict[str, Any], spec: PolicySpec, settings: dict[str, Any], steps: int, envs: int
) -> Callable[[], Any]:
    """One PPO update of one epoch over random rows."""
    every = settings.get("window")
    shape = SlabShape(steps=steps, envs=envs, agents=1, memory_every=every)
    learner = SingleLearner(Task(
        algorithm=PPO, config=load(PPO.Config, {"epochs": 1, "entropy": 0.01, **settings}), policy=policy,
        policy_config=load(policy.Config, config), spec=spec, seed=0, shape=shape,
    ))  # fmt: skip
    noise = np.random.default_rng(0)
    extra = {"log_prob": Leaf((), "float32"), "value": Leaf((), "float32")}
    rows: Any = zeros(slab_spec(shape, spec, memory=learner.policy.memory, extra=extra, signals={}))
    rows["obs"] = map_tree(lambda leaf: noise.standard_normal(leaf.shape).astype(np.float32), rows["obs"])
    rows["reward"][...] = noise.standard_normal(rows["reward"].shape)
    rows["valid"][...] = True
    if spec.mask:
        rows["mask"][...] = True
        rows["choice"][...] = True
        for key, leaf in rows["obs"].items():
            if key.startswith(("mask_", "exist_")):
                leaf[...] = noise.random(leaf.shape) < 0.7
    return lambda: learner.update(rows)


def best(variants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """CPU seconds of one call each."""
    found = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds + 1):
        for name, run in variants.items():
            start = time.process_time()
            run()
            found[name] = min(found[name], time.process_time() - start)
    return found


def report(
    title: str, variants: dict[str, Callable[[], Any]], rows: int, rounds: int, against: str = "",
    work: dict[str, float] | None = None, each: float = 0.0,
) -> None:  # fmt: skip
    """Times; with `work`, multiply-adds a row, and `each`, microseconds of one, also what products alone would take."""
    print(title)
    found = best(variants, rounds)
    for name, seconds in found.items():
        took = seconds / rows * 1e6
        ratio = f"   x{found[against] / seconds:4.2f} of its speed without memory" if against and name != against else ""
        if work is not None:
            alone = work[name] * each
            ratio = f"{ratio:40}   products {alone:6.2f} us, {alone / took:4.0%}"
            if name != against:
                ratio += f", alone x{found[against] / rows * 1e6 / alone:4.2f}"
        print(f"  {name:38} {took:8.2f} us/row{ratio}")


def multiply_adds(width: int, cell: str, inputs: int = 8, heads: int = 5) -> float:
    """Of one row, there and back: a layer, a cell or a second layer, heads. The inputs need no gradient."""
    return 2 * inputs * width + {"none": 3, "gru": 18, "lstm": 24}[cell] * width * width + 3 * heads * width


def product_time(rows: int, inputs: int, outputs: int) -> float:
    """Microseconds of one multiply-add in a product of these sizes, by torch or numpy."""
    x, w = torch.randn(rows, inputs), torch.randn(inputs, outputs)
    out: Tensor = torch.empty(rows, outputs)
    mine, theirs, there = x.numpy(), w.numpy(), out.numpy()
    ways = {"torch": lambda: torch.mm(x, w, out=out), "numpy": lambda: np.matmul(mine, theirs, out=there)}
    return min(best(ways, 50).values()) * 1e6 / (rows * inputs * outputs)


if __name__ == "__main__":
    main()
