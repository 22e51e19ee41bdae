"""Sample Factory APPO on Pong: prints {"rate": agent steps/s after the first third of the run}."""

import argparse
import json
import sys
import tempfile
import time

from ale_py.env import AtariEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStack
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.envs.env_wrappers import ClipRewardEnv, NumpyObsWrapper
from sample_factory.train import make_runner

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30_720)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()


def make_env(name: str, cfg=None, env_config=None, render_mode=None):
    game = AtariEnv(game="pong", frameskip=1, repeat_action_probability=0.0)
    return NumpyObsWrapper(FrameStack(ClipRewardEnv(AtariPreprocessing(game, terminal_on_life_loss=True)), 4))


def main() -> None:
    register_env("pong", make_env)
    settings = {
        "algo": "APPO", "env": "pong", "experiment": "bench", "train_dir": tempfile.mkdtemp(), "device": "cpu",
        "num_workers": args.workers, "num_envs_per_worker": 8 // args.workers, "worker_num_splits": 2, "rollout": 128,
        "batch_size": 256, "num_batches_per_epoch": 4, "num_epochs": args.epochs, "train_for_env_steps": args.steps,
        "seed": args.seed, "use_rnn": False, "recurrence": 1, "actor_critic_share_weights": True, "nonlinearity": "relu",
        "encoder_conv_architecture": "convnet_atari", "obs_scale": 255.0, "normalize_input": False, "normalize_returns": False,
        "restart_behavior": "overwrite", "async_rl": True, "learning_rate": 2.5e-4, "save_every_sec": 100_000,
        "with_wandb": False,
    }  # fmt: skip
    argv = [f"--{key}={value}" for key, value in settings.items()] + ["--encoder_conv_mlp_layers", "512"]
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
    (start, first), *_, (end, last) = [mark for mark in marks if mark[1] >= args.steps * 0.3]
    sys.stdout.flush()
    print(json.dumps({"rate": (last - first) / max(end - start, 1e-9)}))


if __name__ == "__main__":
    main()
