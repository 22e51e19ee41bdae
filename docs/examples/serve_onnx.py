"""Play with an exported policy, without torch and srl: python serve_onnx.py RUN/exports/policy.onnx [EPISODES]"""

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import onnxruntime

program = onnxruntime.InferenceSession(sys.argv[1])
contract = json.loads(Path(sys.argv[1]).with_suffix(".json").read_text())
env = gymnasium.make(contract["env"]["use"])
for episode in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
    obs, _ = env.reset(seed=episode)
    memory = {
        one["name"]: np.zeros((1, *one["shape"][1:]), one["dtype"])
        for one in contract["inputs"]
        if one["name"] in contract["memory"]
    }
    total, over = 0.0, False
    while not over:
        found = dict(
            zip([one["name"] for one in contract["outputs"]], program.run(None, {"obs": np.array([obs]), **memory}), strict=True)
        )
        memory = {name: found[after] for name, after in contract["memory"].items()}
        obs, reward, terminated, truncated, _ = env.step(found["action"][0])
        total, over = total + reward, terminated or truncated
    print(f"episode {episode}: return {total:g}")
