"""A trainer's learner, from the graph."""

from dataclasses import replace

import torch

from srl.config.experiment import read_experiment
from srl.core.machine import Machine
from srl.graph.decide import decide
from srl.session import Session

SETTINGS = {"env": "CartPole-v1", "algorithm": "ppo", "mode": "inline", "sampling": {"envs": 4, "steps": 8}}


def test_a_learner_computes_with_the_threads_of_its_node():
    before = torch.get_num_threads()
    wanted = before + 1
    graph = decide(read_experiment(SETTINGS), machine=Machine(cores=wanted, gpus=0, shared_free=1 << 34)).graph
    nodes = (replace(node, threads=wanted) if node.worker == "trainer" else node for node in graph.nodes)
    try:
        with Session(replace(graph, nodes=tuple(nodes))) as session:
            assert torch.get_num_threads() == wanted
            assert session.step()
    finally:
        torch.set_num_threads(before)
