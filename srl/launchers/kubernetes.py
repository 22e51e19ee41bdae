"""`launcher: kubernetes`: one Job for home and one indexed Job for each group of hosts, whose pods are the hosts."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.cluster.security import Credentials, Join, new_credentials
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.types import HOME, HostGroup
from srl.graph.hosts import Host
from srl.launchers.base import Home, Submitter, check_program
from srl.launchers.documents import document, fresh_name, merged, plain_name

_SECRETS = "/run/srl"
_EXPERIMENT = "/etc/srl"
_RUNS = "/runs"
_WAIT = 3600
"""Seconds that pods of hosts wait for home, whose image may still be pulled."""
_AGAIN = 20
"""How often a pod of one host is replaced, with growing pauses."""
_LONGEST = 40
"""Letters of the name of a run: names of pods have at most 63."""
_USER = 1000
"""In the image of deploy/docker."""


@dataclass(frozen=True, kw_only=True)
class KubernetesArgs:
    """What is submitted. Cores, GPUs and memory of pods come from `hosts` and `launcher.home`."""

    image: str = option(help="image with srl and the envs, which the nodes can pull: see deploy/docker")
    home: Home = field(default_factory=Home)
    """The pod of the trainers"""
    claim: str | None = option(None, "persistent volume claim for run folders; null: run folders are lost with the pod of home")
    name: str | None = option(None, "name of the run and its objects; null: that of the experiment and six letters")
    namespace: str | None = option(None, "namespace; null: as kubectl decides")
    context: str | None = option(None, "context of kubectl; null: the current one")
    port: int = option(6400, "port of home that supervisors connect to", low=1, high=65535)
    grace: int = option(60, "seconds for home to save when its pod is ended", low=1)
    keep: int = option(86_400, "seconds after which the objects of a run that has ended are deleted", low=0)
    gpu: str = option("nvidia.com/gpu", "name of the resource for GPUs")
    labels: Mapping[str, str] = option({}, "labels of all Jobs: {kueue.x-k8s.io/queue-name: lab}")
    pod: Mapping[str, Any] = option({}, "fields added to the spec of all pods: {imagePullSecrets: [{name: lab}]}")
    pods: Mapping[str, Mapping[str, Any]] = option({}, "the same by group, or for home: {gpu: {nodeSelector: {gpu: a100}}}")


class Kubernetes(Submitter):
    """Submits a run with kubectl. Its pods need no rights in the cluster; the objects are deleted with the Job of home."""

    Args = KubernetesArgs
    args: KubernetesArgs

    def __init__(self, args: KubernetesArgs, hosts: Sequence[Host], groups: Mapping[str, HostGroup], name: str) -> None:
        super().__init__(args, hosts, groups, args.name or fresh_name(name, _LONGEST))
        self._experiment = name
        if self.name != plain_name(self.name) or len(self.name) > _LONGEST:
            raise UserError(
                f"'launcher.name' must be at most {_LONGEST} small letters, digits and '-', not '{self.name}'",
                path=("launcher", "name"),
            )
        for _, group, _ in self.groups_in_use():
            if group != plain_name(group) or len(group) > 63 - _LONGEST - 12:
                raise UserError(
                    f"'hosts.{group}' must have a short name of small letters, digits and '-'",
                    ("because", "pods of launcher kubernetes are named after it"),
                    path=("hosts", group),
                )
        self.check_groups("pods", self.args.pods, HOME)

    @property
    def there(self) -> Mapping[str, Any]:
        return {"use": "external", "folder": _SECRETS, "port": self.args.port, "patience": 30 * 86_400}

    def check(self) -> None:
        hint = "https://kubernetes.io/docs/tasks/tools, and `kubectl get pods` to see that it reaches your cluster"
        check_program("kubernetes", "kubectl", hint)

    def render(self, experiment: str) -> Mapping[str, str]:
        files = self._manifests(experiment, None)
        return {f"{name}.yaml": document(one) for name, one in files.items()}

    def submit(self, experiment: str) -> Mapping[str, str]:
        files = self._manifests(experiment, new_credentials())
        home = files.pop(HOME)
        created = self._kubectl("create", "--output=json", "--filename=-", given=json.dumps(home))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": home["metadata"]["name"]}
        owner["uid"] = json.loads(created)["metadata"]["uid"]
        for one in files.values():
            one["metadata"]["ownerReferences"] = [owner]
        rest = {"apiVersion": "v1", "kind": "List", "items": list(files.values())}
        try:
            self._kubectl("create", "--filename=-", given=json.dumps(rest))
        except BaseException:
            self._kubectl("delete", "job", owner["name"])  # and with it all that it owns
            raise
        job = f"job/{owner['name']}"
        return {
            "follow": self._shown("logs", "--follow", job),
            "hosts": self._shown("get", "pods", f"--selector=srl-run={self.name}"),
            "save, end": self._shown("delete", job, "--cascade=foreground"),
        }

    @staticmethod
    def join_of(credentials: Credentials, experiment: str, name: str, port: int) -> Join:
        """The address of home and secrets for the pods of hosts."""
        return Join(experiment, f"{name}-{HOME}-0.{name}:{port}", credentials.ca.decode(), credentials.token)

    def _manifests(self, experiment: str, credentials: Credentials | None) -> dict[str, dict[str, Any]]:
        """Name of the file -> object; without credentials there are words in their place."""
        keys, join = dict.fromkeys(("ca.crt", "tls.crt", "tls.key", "token"), "(made at the start)"), "(made at the start)"
        if credentials is not None:
            keys = credentials.files()
            join = self.join_of(credentials, self._experiment, self.name, self.args.port).dump() + "\n"
        launch = ["python", "-m", "srl.launch", f"{_EXPERIMENT}/experiment.yaml", "--resume-or-start", self.name]
        home = self.args.home
        files = {
            HOME: self._job(HOME, 1, home.cores, home.gpus, home.memory, [*launch, "--runs", _RUNS]),
            "service": self._object("v1", "Service", self.name)
            | {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self._labels}},
            "experiment": self._object("v1", "ConfigMap", f"{self.name}-experiment") | {"data": {"experiment.yaml": experiment}},
            "secret-home": self._object("v1", "Secret", f"{self.name}-{HOME}") | {"stringData": keys},
            "secret-hosts": self._object("v1", "Secret", f"{self.name}-hosts") | {"stringData": {"join.json": join}},
        }
        for first, name, group in self.groups_in_use():
            run = f"exec python -m srl.cluster.supervisor --join {_SECRETS}/join.json --wait {_WAIT} --patience 300"
            words = ["sh", "-c", f"{run} --host $(({first} + JOB_COMPLETION_INDEX))"]
            files[f"hosts-{name}"] = self._job(name, group.size, group.cores, group.gpus, group.memory, words)
        return files

    def _job(
        self, role: str, pods: int, cores: int | None, gpus: int, memory: float | None, words: Sequence[str]
    ) -> dict[str, Any]:
        """One indexed Job: pod i is called NAME-ROLE-i, also by DNS."""
        is_home = role == HOME
        least = {"cpu": str(cores or 1)} | ({"memory": f"{math.ceil(memory * 1000)}M"} if memory is not None else {})
        resources = least | ({self.args.gpu: str(gpus)} if gpus else {})
        secret = {"secretName": f"{self.name}-{HOME if is_home else 'hosts'}", "defaultMode": 0o440}
        volumes: dict[str, tuple[str, dict[str, Any]]] = {
            "secrets": (_SECRETS, {"secret": secret}),
            "shm": ("/dev/shm", {"emptyDir": {"medium": "Memory"}}),
        }
        if is_home:
            claim = {"persistentVolumeClaim": {"claimName": self.args.claim}}
            volumes["experiment"] = (_EXPERIMENT, {"configMap": {"name": f"{self.name}-experiment"}})
            volumes["runs"] = (_RUNS, claim if self.args.claim else {"emptyDir": {}})
        container = {
            "name": "srl",
            "image": self.args.image,
            "args": list(words),
            "resources": {"requests": dict(resources), "limits": dict(resources)},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [
                {"name": name, "mountPath": path} | ({"readOnly": True} if name in ("secrets", "experiment") else {})
                for name, (path, _) in volumes.items()
            ],
        }
        safe = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
        spec = {
            "subdomain": self.name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": self.args.grace,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": safe | {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": name} | source for name, (_, source) in volumes.items()],
        }
        for more in (self.args.pod, self.args.pods.get(role, {})):
            spec = merged(spec, more)
        user_error = {"operator": "In", "values": [2]}
        rules: list[dict[str, Any]] = [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob" if is_home else "FailIndex", "onExitCodes": user_error},
        ]
        if is_home:  # preempted, and saved: it continues in the same run folder
            rules.append({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}})
        retries = {"backoffLimit": 3} if is_home else {"backoffLimitPerIndex": _AGAIN}
        job = {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            **retries,
            "podFailurePolicy": {"rules": rules},
            **({"ttlSecondsAfterFinished": self.args.keep} if is_home else {}),
            "template": {"metadata": {"labels": {**self._labels, "srl-role": role}}, "spec": spec},
        }
        return self._object("batch/v1", "Job", f"{self.name}-{role}", self.args.labels) | {"spec": job}

    @property
    def _labels(self) -> dict[str, str]:
        return {"srl-run": self.name}

    def _object(self, version: str, kind: str, name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        place = {"namespace": self.args.namespace} if self.args.namespace else {}
        metadata = {"name": name, **place, "labels": {**self._labels, **(labels or {})}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata}

    def _command(self, *words: str) -> list[str]:
        context = [f"--context={self.args.context}"] if self.args.context else []
        return ["kubectl", *context, *([f"--namespace={self.args.namespace}"] if self.args.namespace else []), *words]

    def _shown(self, *words: str) -> str:
        return " ".join(self._command(*words))

    def _kubectl(self, *words: str, given: str | None = None) -> str:
        done = subprocess.run(self._command(*words), input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(
                "Kubernetes does not accept the run",
                ("cause", done.stderr.strip() or done.stdout.strip()),
                ("try", "`kubectl get pods`: it must reach your cluster; --dry-run shows what is submitted"),
                code="E08",
            )
        return done.stdout
