from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_worker_process_imports_neither_torch_nor_grpc_nor_rich() -> None:
    modules = "srl.workers.process, srl.streams.zmq, srl.workers.actor"
    code = f"import sys, json, {modules}; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)
    assert not {"torch", "grpc", "rich", "gymnasium", "safetensors", "cryptography", "yaml"} & set(loaded)


def test_a_worker_whose_parent_is_another_ends_at_once() -> None:
    command = [sys.executable, "-m", "srl.workers.process", "a/0", "--fd", "0", "--parent", str(os.getppid())]
    assert subprocess.run(command, cwd=ROOT, timeout=20, check=False).returncode == 1
