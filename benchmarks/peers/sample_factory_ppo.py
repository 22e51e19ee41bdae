"""Sample Factory APPO on CartPole: prints {"rate": env steps/s over the second half of the run}."""

import argparse
import json
import sys
import tempfile
import time

import gymnasium
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--steps", type=int, default=300_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()


def make_env(name: str, cfg=None, env_config=None, render_mode=None):
    return gymnasium.make(name)


def main() -> None:
    register_env(args.env, make_env)
    settings = {
        "algo": "APPO", "env": args.env, "experiment": "bench", "train_dir": tempfile.mkdtemp(), "device": "cpu",
        "num_workers": args.workers, "num_envs_per_worker": 64 // args.workers, "worker_num_splits": 2, "rollout": 128,
        "batch_size": 1024, "num_batches_per_epoch": 8, "num_epochs": 4, "train_for_env_steps": args.steps, "seed": args.seed,
        "use_rnn": False, "recurrence": 1, "actor_critic_share_weights": False, "nonlinearity": "tanh",
        "normalize_input": False, "normalize_returns": False, "restart_behavior": "overwrite", "async_rl": True,
        "learning_rate": 1e-3, "save_every_sec": 100_000, "with_wandb": False,
    }  # fmt: skip
    argv = [f"--{key}={value}" for key, value in settings.items()] + ["--encoder_mlp_layers", "64", "64"]
    partial, _ = parse_sf_args(argv)
    _, runner = make_runner(parse_full_cfg(partial, argv))
    marks: list[tuple[float, int]] = []
    inner = runner._update_stats_and_print_report

    def watched() -> None:
        marks.append((time.perf_counter(), sum(runner.env_steps.values())))
        inner()

    runner._update_stats_and_print_report = watched
    runner.report_interval_sec = 1
    runner.init()
    runner.run()
    marks.append((time.perf_counter(), sum(runner.env_steps.values())))
    steady = [mark for mark in marks if mark[1] >= args.steps * 0.3]
    (start, first), (end, last) = steady[0], steady[-1]
    sys.stdout.flush()
    print(json.dumps({"rate": (last - first) / max(end - start, 1e-9), "solved": None}))


if __name__ == "__main__":
    main()
