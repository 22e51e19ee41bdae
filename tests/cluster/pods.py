"""Pods of rendered manifests as processes of this machine: their own words, their mounted files, no cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Pods:
    """All pods of a run. Paths in the container are folders here, and the name of the pod of home is the loopback address."""

    def __init__(self, objects: list[dict[str, Any]], folder: Path) -> None:
        self._folder, self._objects = folder, {(one["kind"], one["metadata"]["name"]): one for one in objects}
        (self._service,) = (name for kind, name in self._objects if kind == "Service")
        self.jobs = {name: one for (kind, name), one in self._objects.items() if kind == "Job"}
        self._running: list[subprocess.Popen[str]] = []

    def start(self, job: str, index: int = 0, **more: str) -> subprocess.Popen[str]:
        """Pod `index` of a job."""
        (container,) = self.jobs[job]["spec"]["template"]["spec"]["containers"]
        paths = dict(self._mounts(job))
        words = [self._here(word, paths) for word in container["args"]]
        words = [
            sys.executable if word == "python" else word.replace("exec python ", f"exec {sys.executable} ") for word in words
        ]
        pod = subprocess.Popen(
            words, env={**os.environ, "JOB_COMPLETION_INDEX": str(index), **more}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self._folder,
        )  # fmt: skip
        self._running.append(pod)
        return pod

    def close(self) -> None:
        """Idempotent."""
        for one in self._running:
            one.kill()
            one.communicate()

    def _mounts(self, job: str) -> Iterator[tuple[str, str]]:
        """Path in the container -> folder here, with the files of its volume."""
        spec = self.jobs[job]["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in spec["volumes"]}
        paths = {mount["mountPath"]: volumes[mount["name"]] for mount in spec["containers"][0]["volumeMounts"]}
        for path in paths:
            (self._folder / job / path[1:]).mkdir(parents=True, exist_ok=True)
        here = {path: str(self._folder / job / path[1:]) for path in paths if path != "/dev/shm"}
        for path, volume in paths.items():
            for name, text in self._files(volume).items():
                (file := self._folder / job / path[1:] / name).unlink(missing_ok=True)
                file.write_text(self._here(text, here))
                file.chmod(volume.get("secret", {}).get("defaultMode", 0o644))
        yield from here.items()

    def _files(self, volume: dict[str, Any]) -> dict[str, str]:
        if "secret" in volume:
            return dict(self._objects["Secret", volume["secret"]["secretName"]]["stringData"])
        return dict(self._objects["ConfigMap", volume["configMap"]["name"]]["data"]) if "configMap" in volume else {}

    def _here(self, text: str, paths: dict[str, str]) -> str:
        for path, folder in paths.items():
            text = text.replace(path, folder)
        return text.replace(f"{self._service}-home-0.{self._service}", "127.0.0.1")
