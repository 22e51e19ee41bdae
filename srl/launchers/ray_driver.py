"""One Ray actor for each host, whose child is the supervisor: run by `launcher=ray` as a script, with Ray and nothing of srl.

Standard input: a line of JSON with what to start, then lines `{"again": HOST}`; its end is the end of all. Standard output:
lines `{"gone": HOST, "reason": TEXT}`.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_TAIL = 2000
_LINES = 6


class Host:
    """In a process of Ray on the node. When that ends, the pipe closes, and the supervisor ends with all it has started."""

    def run(self, command: list[str], directory: str, join: str) -> str:
        """Why the supervisor has ended."""
        with tempfile.TemporaryFile() as output:
            try:
                child = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=output, stderr=output)
            except OSError as error:
                return f"{error.strerror}: {error.filename} (launcher.python and launcher.directory name others)"
            assert child.stdin is not None
            try:
                child.stdin.write(join.encode() + b"\n")
                child.stdin.flush()
            except BrokenPipeError:  # it has ended already
                pass
            code = child.wait()
            output.seek(max(0, output.tell() - _TAIL))
            lines = output.read().decode(errors="replace").splitlines()[-_LINES:]
        return "\n".join([f"its supervisor ended with exit code {code}", *lines])


def main() -> None:
    says = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is not for the launcher
    told = json.loads(sys.stdin.readline())
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    ray.init(address=told["address"], log_to_driver=False, configure_logging=False)
    group = placement_group(told["bundles"], strategy=told["strategy"])
    running: dict[Any, tuple[int, Any]] = {}  # future -> host and its actor, which lives as long as it is kept here

    def start(host: int) -> None:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=host)
        needs = dict(told["bundles"][host])
        options = {"num_cpus": needs.pop("CPU"), "num_gpus": needs.pop("GPU", 0), "memory": needs.pop("memory", None)}
        actor = ray.remote(Host).options(**options, resources=needs, scheduling_strategy=place).remote()
        running[actor.run.remote(told["commands"][host], told["directory"], told["join"])] = (host, actor)

    for host in range(len(told["bundles"])):
        start(host)
    try:
        while True:
            ended, _ = ray.wait(list(running), timeout=0.2) if running else ([], [])
            for future in ended:
                host, _actor = running.pop(future)
                print(json.dumps({"gone": host, "reason": _reason(future)}), file=says, flush=True)
            try:
                line = lines.get(timeout=0.0 if running else 0.2)
            except queue.Empty:
                continue
            if not line:
                break
            start(json.loads(line)["again"])
    finally:
        remove_placement_group(group)
        ray.shutdown()


def _read(lines: "queue.SimpleQueue[str]") -> None:
    while line := sys.stdin.readline():
        lines.put(line)
    lines.put("")


def _reason(future: Any) -> str:
    try:
        return str(ray.get(future))
    except ray.exceptions.RayError as error:
        return f"its actor is gone: {str(error).strip().splitlines()[0]}"


if __name__ == "__main__":
    main()
