"""Classes by path: `pkg.mod:Class` or `path/to/file.py:Class`, the same in every process."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srl.core.errors import Fact, NotImportable, UserError

_PREFIX = "srl_file_"
_importing: list[str] = []


def import_path(path: str, kind: str = "object") -> Any:
    """The object behind `pkg.mod:Class` or `file.py:Class`; NotImportable says what went wrong."""
    module_name, _, attribute = path.rpartition(":")
    if not module_name or not attribute:
        raise NotImportable(f"'{path}' is not an import path", ("expected", "pkg.mod:Class or path/to/file.py:Class"))
    found: Any = import_module(module_name, f"{kind} '{path}'")
    for part in attribute.split("."):
        if not hasattr(found, part):
            place = getattr(found, "__file__", None) or module_name
            headline = f"cannot import {kind} '{path}': no '{attribute}' there"
            raise NotImportable(headline, ("from", str(place)), *_offers(found, part))
        found = getattr(found, part)
    return found


def import_module(name: str, what: str = "") -> types.ModuleType:
    """A module by name, or a file ending in `.py` by path (which is run once per process)."""
    what = what or f"'{name}'"
    is_file = name.endswith(".py")
    if is_file and not Path(name).expanduser().is_file():
        raise NotImportable(f"cannot import {what}: no such file", ("from", str(Path(name).expanduser().absolute())))
    _importing.append(name)
    try:
        return _import_file(Path(name).expanduser().resolve()) if is_file else _import_dotted(name)
    except UserError:
        raise
    except Exception as problem:
        raise _failed(name, what, problem, is_file) from problem
    finally:
        _importing.pop()


def refuse_while_importing() -> None:
    """Called first by `srl.launch()`: a script that is imported for its classes must not start the run again."""
    if _importing:
        raise NotImportable(
            f"importing {_importing[-1]} starts a run",
            ("because", "every process of a run imports the file of its classes, and comes to the call of srl.launch there"),
            ("try", 'put the call under `if __name__ == "__main__":`'),
        )


def dotted_path(found: Any) -> str:
    """The path by which every process can import the class or function."""
    module, name = found.__module__, found.__qualname__
    if "<" in name:
        inside = "inside a function" if "<locals>" in name else "without a name"
        raise NotImportable(
            f"'{name}' is defined {inside}, where other processes cannot find it",
            ("from", place_of(found)),
            ("try", "move it to the top level of its file, or mode=inline"),
        )
    if module.startswith(_PREFIX):
        module = str(sys.modules[module].__file__)
    return f"{_main_path(name) if module == '__main__' else module}:{name}"


def place_of(found: Any) -> str:
    """`file.py:12` of a class or function, as well as it is known."""
    try:
        return f"{inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]}"
    except (OSError, TypeError):
        return str(getattr(found, "__module__", "") or "unknown place")


def import_paths() -> list[str]:
    """Entries of `sys.path` beyond the installation: what a worker needs to find the modules this process finds."""
    roots = {str(Path(root).resolve()) for root in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    entries = [str(Path(entry or ".").resolve()) for entry in sys.path if not entry.endswith(".zip")]
    own = [entry for entry in entries if not any(entry == root or entry.startswith(root + os.sep) for root in roots)]
    return list(dict.fromkeys(own))


def _import_dotted(name: str) -> types.ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(getattr(main, "__spec__", None), "name", None) == name:
        return main  # started by `python -m name`
    return importlib.import_module(name)


def _import_file(path: Path) -> types.ModuleType:
    for module in [sys.modules["__main__"], *sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(path.name) and Path(file).resolve() == path:
            return module
    name = f"{_PREFIX}{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # its neighbours are importable, as when it runs as a script
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _forgotten_if_it_fails(name):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _forgotten_if_it_fails(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        del sys.modules[name]
        raise


def _main_path(name: str) -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name and not spec.name.endswith("__main__"):
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise NotImportable(
            f"'{name}' is defined in a notebook or an interactive session, where other processes cannot find it",
            ("try", "mode=inline, or move the class to a file and name it as path/to/file.py:" + name),
        )
    return str(Path(file).resolve())


def _offers(module: Any, wanted: str) -> list[Fact]:
    """What a module defines itself, the near miss first."""
    import difflib  # for errors only

    own = getattr(module, "__name__", "")
    found = {name: one for name, one in vars(module).items() if getattr(one, "__module__", "") == own and name[0] != "_"}
    near = difflib.get_close_matches(wanted, list(found), n=1, cutoff=0.6)
    classes = [name for name, one in found.items() if isinstance(one, type)]
    return [*(("did you mean", f"{name}?") for name in near), ("classes there", ", ".join(classes) or "none")]


def _failed(name: str, what: str, problem: Exception, is_file: bool) -> NotImportable:
    error = NotImportable(f"cannot import {what}", ("cause", f"{type(problem).__name__}: {problem}{_origin(problem)}"))
    missing = problem.name or "" if isinstance(problem, ModuleNotFoundError) else ""
    if missing and not (name == missing or name.startswith(missing + ".")):
        error.add("try", f"install what it needs: pip install {missing.partition('.')[0]}")
    elif missing:
        searched = ", ".join(import_paths()) or "the installed packages only"
        error.add("searched", f"{searched}, and the installed packages")
        error.add("workers", f"import the same path in processes of their own, started in {Path.cwd()}")
        error.add("try", f"pip install -e . in its project, or name the file: path/to/{name.rpartition('.')[2]}.py:Class")
    return error


def _origin(problem: BaseException) -> str:
    """The last line outside the import machinery that was running."""
    trace, place = problem.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file not in (__file__, importlib.__file__):
            place = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
