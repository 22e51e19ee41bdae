"""Graphs for people."""

from srl.config.experiment import read_experiment
from srl.core.machine import Machine
from srl.graph.build import graph_from_yaml, graph_to_yaml
from srl.graph.decide import decide
from srl.graph.show import as_mermaid, as_text
from srl.plan.lines import plan_lines

MACHINE = Machine(cores=2, gpus=0, shared_free=1 << 34)
DATA = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "epochs": 4, "minibatch": 512},
    "sampling": {"envs": 48, "steps": 64},
    "layout": "impala",
    "stop": {"env_steps": 1000, "return": 475},
}


def test_the_plan_has_the_derived_numbers():
    done = decide(read_experiment(DATA), machine=MACHINE)
    lines = plan_lines(done.graph, MACHINE)
    texts = dict(lines)
    assert texts["batch"] == "1 batch = 48 envs x 64 steps = 3,072 steps = 6 minibatches x 4 epochs"
    assert texts["threads"] == "3 processes, 3 threads on 2 usable cores"
    assert texts["stop"] == "after 1,000 env steps or a mean return of 475"
    assert "actor x 2: 1 group of 24 envs, slabs of 64 steps" in texts["workers"]


def test_the_text_names_every_process_and_stream():
    text = as_text(decide(read_experiment(DATA), machine=MACHINE).graph)
    assert "  actor x 2 with policy inside\n  trainer\n" in text
    assert "  samples.main     sample  shm     actor x 2 --> trainer" in text


def test_mermaid_draws_a_box_for_each_process_and_an_arrow_for_each_stream():
    text = as_mermaid(decide(read_experiment(DATA), machine=MACHINE).graph)
    assert text.splitlines() == [
        "flowchart LR",
        "  subgraph actor_process[process of actor]",
        '    actor["actor x 2"]',
        '    policy["policy x 2"]',
        "  end",
        '  trainer["trainer"]',
        "  actor <-->|ask.main| policy",
        "  actor -->|samples.main| trainer",
        "  trainer -.->|params.main| policy",
    ]


def test_one_of_a_thing_is_no_plural():
    data = DATA | {"sampling": {"envs": 2, "steps": 1, "workers": 2}, "algorithm": {"use": "ppo", "epochs": 1, "minibatch": 64}}
    texts = dict(plan_lines(decide(read_experiment(data), machine=MACHINE).graph, MACHINE))
    assert texts["batch"] == "1 batch = 2 envs x 1 step = 2 steps = 1 minibatch (minibatch=64 is more than that) x 1 epoch"
    assert "actor x 2: 1 group of 1 env, slabs of 1 step" in texts["workers"]


def test_minibatches_that_do_not_divide_a_batch_have_their_size_in_the_plan():
    data = DATA | {"algorithm": {"use": "ppo", "epochs": 4, "minibatch": 1000}}
    texts = dict(plan_lines(decide(read_experiment(data), machine=MACHINE).graph, MACHINE))
    assert texts["batch"] == "1 batch = 48 envs x 64 steps = 3,072 steps = 4 minibatches of at most 768 x 4 epochs"


def test_a_route_that_is_not_fair_is_shown():
    done = decide(read_experiment(DATA | {"streams": {"sample": {"route": "drop"}}}), machine=MACHINE)
    assert "actor x 2 --> trainer  route drop\n" in as_text(done.graph)
    assert done.graph.stream("samples.main") == graph_from_yaml(graph_to_yaml(done.graph)).stream("samples.main")
