from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from srl.workers.process import ProcessAgent
from tests.workers.test_loop import loop_of

ROOT = Path(__file__).parents[2]


def test_a_worker_process_imports_neither_torch_nor_grpc_nor_rich() -> None:
    modules = "srl.workers.process, srl.streams.zmq, srl.workers.actor"
    code = f"import sys, json, {modules}; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)
    assert not {"torch", "grpc", "rich", "gymnasium", "safetensors", "cryptography", "yaml"} & set(loaded)


def test_a_worker_whose_parent_is_another_ends_at_once() -> None:
    command = [sys.executable, "-m", "srl.workers.process", "a/0", "--fd", "0", "--parent", str(os.getppid())]
    assert subprocess.run(command, cwd=ROOT, timeout=20, check=False).returncode == 1


def test_a_process_that_is_ready_still_sends_again_what_others_did_not_get() -> None:
    """A trainer on another host may need it before it is ready itself."""
    said: list[Any] = []
    agent = ProcessAgent("a/0", said.append)
    agent.loop, agent.phase = loop_of("Plain", inline=False), "open"
    agent.loop.wakeup.pipe()
    agent.loop.wakeup.at(0.0, lambda: said.append("sent again"))
    agent.turn()
    assert said == ["sent again"]
    agent.close()
