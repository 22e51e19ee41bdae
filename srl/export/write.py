"""Write a policy of a finished run as an ONNX or PT2 program, check it, and describe it in JSON."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from srl.api.env import ActionSpec, Box, Discrete, MultiBinary, MultiDiscrete
from srl.api.neural import NeuralPolicy
from srl.core.errors import UserError
from srl.core.progress import Tell, silent
from srl.core.user_code import user_code
from srl.export.parity import Arrays, Parity, compare, record
from srl.export.program import Program, needed
from srl.loaded import LoadedRun

Format = Literal["onnx", "pt2"]
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    program: Path
    contract: Path
    parity: Parity


def export_policy(
    run: LoadedRun,
    *,
    name: str,
    which: str = "best",
    format: Format = "onnx",
    out: Path | None = None,
    observations: int = 1000,
    tell: Tell = silent,
) -> Exported:
    """Export the policy `name`, compare it with the original, and put both files in `exports/` of the run, or at `out`."""
    if format == "onnx":
        _check_packages()
    tell("translating the network", 0, 0)
    network = _network(run, which, name)
    info = run.derived.policies[name]
    path = out or run.folder / "exports" / f"{name if len(run.graph.learning) > 1 else 'policy'}.{format}"
    with _quiet(), user_code(f"policy '{name}' ({info.use}) cannot be exported", ("try", "--trace, which shows the traceback")):
        program, exported = _traced(network, info)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".tmp-{path.name}.{format}")
        _write(exported, program, aside, format)
    try:
        policies = {one: run.policy(which, name=one) for one in run.derived.policies}
        tell("playing episodes to compare with", 0, 0)
        asked = record(run, policies, name, observations)
        tell("comparing the answers", 0, 0)
        parity = compare(_runner(aside, program, format), program, info.bounds, asked)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    contract = path.with_suffix(".json")
    contract.write_text(json.dumps(_contract(run, name, which, format, program, parity), indent=2) + "\n", encoding="utf-8")
    return Exported(path, contract, parity)


def _check_packages() -> None:
    for package in _NEEDED:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise UserError(
                f"export to ONNX needs the package '{package}'",
                ("try", "pip install 'really-scalable-rl[export]', or --format pt2, which needs only torch"),
            ) from error


def _network(run: LoadedRun, which: str, name: str) -> NeuralPolicy:
    info = run.derived.policies[name]
    if name not in run.graph.learning or info.params == {}:
        raise UserError(f"policy '{name}' has no network to export", ("because", "it does not learn"))
    return run.network(which, name=name).requires_grad_(False)


def _traced(network: NeuralPolicy, info: Any) -> tuple[Program, torch.export.ExportedProgram]:
    """The program without inputs that no action depends on."""
    whole = Program(network, info).eval()
    kept = needed(_export(whole), list(whole.inputs), whole.outputs)
    if len(kept) == len(whole.inputs):
        return whole, _export(whole)
    program = Program(network, info, kept).eval()
    return program, _export(program)


def _export(program: Program) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows")
    with torch.no_grad():
        return torch.export.export(program, program.example(), dynamic_shapes=(tuple({0: rows} for _ in program.inputs),))


def _write(exported: torch.export.ExportedProgram, program: Program, path: Path, format: Format) -> None:
    if format == "pt2":
        torch.export.save(exported, path)
        return
    made = torch.onnx.export(exported, dynamo=True, input_names=list(program.inputs), output_names=program.outputs, verbose=False)
    assert made is not None
    for value in (*made.model.graph.inputs, *made.model.graph.outputs):
        assert value.shape is not None
        value.shape = type(value.shape)(["rows", *value.shape[1:]])
    made.save(str(path), external_data=False)


def _runner(path: Path, program: Program, format: Format) -> Callable[[Arrays], Arrays]:
    """The program as it was written, from arrays to arrays."""
    if format == "pt2":
        module = torch.export.load(path).module()
        return lambda given: dict(
            zip(program.outputs, [leaf.numpy() for leaf in module(*map(torch.from_numpy, given.values()))], strict=True)
        )
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: dict(zip(program.outputs, session.run(program.outputs, given), strict=True))


def _contract(run: LoadedRun, name: str, which: str, format: Format, program: Program, parity: Parity) -> dict[str, Any]:
    """What a program that serves the policy must know."""
    checkpoint = run.checkpoint(which, name)
    outputs = program.run(*program.example())
    memory = [one for one in program.inputs if one.split("/")[0] == "memory"]
    return {
        "format": format,
        "made_by": f"torch {torch.__version__}",
        "run": run.folder.name,
        "env": run.graph.env.flat,
        "policy": name,
        "checkpoint": checkpoint.name,
        "inputs": [{"name": key, "shape": ["rows", *leaf.shape], "dtype": leaf.dtype} for key, leaf in program.inputs.items()],
        "outputs": [
            {"name": key, "shape": ["rows", *one.shape[1:]], "dtype": np.dtype(one.detach().numpy().dtype).name}
            for key, one in outputs.items()
        ],
        "memory": {one: f"next_{one}" for one in memory},
        "action": _action(program.action),
        "notes": [text for word, text in _NOTES.items() if any(one.split("/")[0] == word for one in (*program.inputs, *outputs))],
        "parity": asdict(parity),
    }


_NOTES = {
    "obs": "observations are the env's own, in its units: scaling and normalization are part of the program",
    "mask": "mask is true where a choice is allowed",
    "memory": "memory is zero at the start of an episode; after a step each next_memory is the memory of the next one",
    "action": "action is the most likely action, within the bounds of the env",
    "logits": "logits are logarithms of the chances of every choice (of bits: log odds), masked: for sampling actions",
    "q": "q are the values of every action, not masked",
    "mean": "mean and log_std describe a normal distribution; clip what is drawn from it, or if the policy is a squashed"
    " gaussian take its tanh and map [-1, 1] onto the bounds",
}


def _action(action: ActionSpec) -> dict[str, Any]:
    if isinstance(action, dict):
        return {"kind": "dict", "parts": {key: _action(part) for key, part in action.items()}}
    if isinstance(action, Discrete):
        return {"kind": "discrete", "n": action.n}
    if isinstance(action, MultiDiscrete):
        return {"kind": "multi-discrete", "counts": list(action.counts)}
    if isinstance(action, MultiBinary):
        return {"kind": "bits", "n": action.n}
    assert isinstance(action, Box)
    low, high = ([one if np.isfinite(one) else None for one in ends] for ends in (action.low, action.high))
    return {"kind": "box", "shape": list(action.shape), "low": low, "high": high}


@contextmanager
def _quiet() -> Iterator[None]:
    """torch tells about packages that it would use for other networks."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
