"""Names are strings until used; a class is the same thing in every process."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.core import registry
from srl.core.errors import NotImportable
from srl.core.registry import BUILTIN, REGISTRIES, Registry, dotted_path, import_module, load_plugins
from tests.errors import raises


@pytest.fixture(autouse=True)
def _modules_are_forgotten() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("srl_file_", "their_")):
            del sys.modules[name]
    sys.path[:] = path


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(registry.__file__).parents[2])
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env={"PYTHONPATH": root}, capture_output=True, text=True, timeout=60, check=False
    )


class Thing:
    pass


def test_a_registered_class_is_found_by_name_and_has_a_path() -> None:
    names = Registry("algorithm")
    names.add("thing", Thing)
    assert names.resolve("thing") is Thing
    assert names.resolve(Thing) is Thing
    assert names.names() == ["thing"]
    assert names.everywhere("thing") == names.everywhere(Thing) == f"{__name__}:Thing"
    assert "thing" in names
    assert "other" not in names


def test_a_string_is_not_imported_until_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "their_lazy.py", "class A:\n    class B: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = Registry("env")
    names.add("lazy", "their_lazy:A.B")
    assert names.everywhere("lazy") == "their_lazy:A.B"
    assert "their_lazy" not in sys.modules
    assert names.resolve("lazy").__qualname__ == "A.B"


def test_a_path_works_wherever_a_name_does(tmp_path: Path) -> None:
    file = write(tmp_path / "their_algo.py", "import their_neighbour\nclass Mine:\n    value = their_neighbour.VALUE\n")
    write(tmp_path / "their_neighbour.py", "VALUE = 5\n")
    names = Registry("algorithm")
    found = names.resolve(f"{file}:Mine")
    assert found.value == 5
    assert names.resolve(f"{file}:Mine") is found
    assert dotted_path(found) == f"{file}:Mine"
    assert names.resolve("collections.abc:Mapping").__name__ == "Mapping"


def test_two_things_under_one_name_are_refused_with_both_places() -> None:
    names = Registry("algorithm")
    names.add("x", "one.mod:A", place="one/mod.py:3")
    with raises("E13") as caught:
        names.add("x", Thing, place="two/mod.py:9")
    assert caught.value.format() == (
        "error[E13]: two things are registered as algorithm 'x'\n"
        "  first: one/mod.py:3\n"
        "  second: two/mod.py:9\n"
        "  try: give one of them another name"
    )
    assert names.everywhere("x") == "one.mod:A"


def test_the_place_of_a_registration_is_the_line_of_the_caller() -> None:
    names = Registry("algorithm")
    names.add("x", "one.mod:A")
    line = sys._getframe().f_lineno - 1
    with raises("E13") as caught:
        names.add("x", Thing)
    assert caught.value.facts[0] == ("first", f"{__file__}:{line}")


def test_a_file_that_is_imported_by_two_names_registers_one_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair").mkdir()
    write(tmp_path / "pair" / "twice.py", "import srl\n@srl.register_algorithm('twice')\nclass Twice: pass\n")
    monkeypatch.setitem(registry.REGISTRIES, "algorithm", Registry("algorithm"))
    for folder, name in ((tmp_path / "pair", "twice"), (tmp_path, "pair.twice")):
        monkeypatch.syspath_prepend(str(folder))
        registry.import_module(name, "plugin")
        assert registry.REGISTRIES["algorithm"].resolve("twice").__module__ == name


def test_a_built_in_name_cannot_be_taken() -> None:
    with raises("E13", match=r"srl\.algorithms\.ppo:PPO \(built in\)"):
        registry.register_algorithm("ppo")(Thing)


@pytest.mark.parametrize("name", ["", "a:b", "x.py"])
def test_a_name_must_not_read_as_a_path(name: str) -> None:
    with raises("E13", match="not a valid name of an env"):
        Registry("env").add(name, Thing)


def test_the_same_thing_again_renews_it(tmp_path: Path) -> None:
    file = write(tmp_path / "their_twice.py", "class A: pass\n")
    names = Registry("env")
    names.add("a", f"{file}:A")
    first = import_module(str(file))
    names.add("a", first.A)
    del sys.modules[first.__name__]  # as a reload, or as `__main__` and its module
    second = import_module(str(file))
    assert second.A is not first.A
    names.add("a", second.A)
    assert names.resolve("a") is second.A


def test_a_module_string_and_its_class_are_the_same_thing() -> None:
    names = Registry("env")
    names.add("a", f"{__name__}:Thing")
    names.add("a", Thing)
    assert names.resolve("a") is Thing


def test_an_unknown_name_names_the_nearest() -> None:
    transports = Registry("transport", BUILTIN["transport"])  # other tests may have registered theirs
    with raises("E07") as caught:
        transports.resolve("zmk")
    assert caught.value.format() == (
        "error[E07]: no transport is called 'zmk'\n"
        "  did you mean: zmq?\n"
        "  known: inproc, ipc, shm, zmq\n"
        "  try: a path such as my_pkg.mod:Class or path/to/file.py:Class, or import=my_pkg, which registers 'zmk'"
    )
    with raises("E07"):
        transports.resolve("zmk")


def test_a_module_that_is_not_there_tells_what_workers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), sys.prefix])
    with pytest.raises(NotImportable) as caught:
        Registry("algorithm").resolve("their_pkg.algo:Mine")
    assert caught.value.format() == (
        "error[E07]: cannot import algorithm 'their_pkg.algo:Mine'\n"
        "  cause: ModuleNotFoundError: No module named 'their_pkg'\n"
        f"  searched: {tmp_path}, and the installed packages\n"
        f"  workers: import the same path in processes of their own, started in {tmp_path}\n"
        "  try: pip install -e . in its project, or name the file: path/to/algo.py:Class"
    )
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_error_inside_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "their_broken.py", "x = 1\ny = x / 0\n")
    with pytest.raises(NotImportable) as caught:
        Registry("env").resolve(f"{file}:A")
    assert caught.value.format() == (
        f"error[E07]: cannot import env '{file}:A'\n  cause: ZeroDivisionError: division by zero ({file}:2)"
    )


def test_a_dependency_that_is_missing_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "their_needy.py", "import their_missing.part\n")
    with pytest.raises(NotImportable) as caught:
        Registry("env").resolve(f"{file}:A")
    assert caught.value.facts[-1] == ("try", "install what it needs: pip install their_missing")


def test_a_file_without_the_class_lists_those_it_has(tmp_path: Path) -> None:
    file = write(tmp_path / "their_other.py", "class Aa: pass\nclass Bb: pass\n")
    with pytest.raises(NotImportable) as caught:
        Registry("env").resolve(f"{file}:Cc")
    assert caught.value.format() == (
        f"error[E07]: cannot import env '{file}:Cc': no 'Cc' there\n  from: {file}\n  classes there: Aa, Bb"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotImportable) as caught:
        Registry("env").resolve(f"{tmp_path}/none.py:A")
    assert caught.value.facts == [("from", f"{tmp_path}/none.py")]


@pytest.mark.parametrize("path", [":A", "a.b:"])
def test_half_a_path_is_refused(path: str) -> None:
    with pytest.raises(NotImportable, match="expected: pkg"):
        Registry("env").resolve(path)


def test_a_class_inside_a_function_has_no_path() -> None:
    class Local:
        pass

    with pytest.raises(NotImportable, match="defined inside a function") as caught:
        dotted_path(Local)
    assert "mode=inline" in caught.value.format()


SCRIPT = """\
    from srl.core.registry import refuse_while_importing
    from srl.core.registry import REGISTRIES, register_algorithm

    def launch():
        refuse_while_importing()
        print("started")

    @register_algorithm("mine")
    class Mine:
        pass

    if __name__ == "__main__":
        print(REGISTRIES["algorithm"].everywhere("mine"))
        launch()
"""


def test_a_class_of_a_script_is_found_elsewhere(tmp_path: Path) -> None:
    script = write(tmp_path / "script.py", SCRIPT)
    ran = python("script.py", cwd=tmp_path)
    assert ran.stdout.splitlines() == [f"{script}:Mine", "started"]
    worker = "from srl.core.registry import REGISTRIES as R; print(R['algorithm'].resolve('{}').__name__)".format(
        f"{script}:Mine"
    )
    ran = python("-c", worker, cwd=tmp_path)
    assert ran.stdout.splitlines() == ["Mine"], ran.stderr


def test_a_script_that_would_start_its_run_again_is_refused(tmp_path: Path) -> None:
    script = write(tmp_path / "script.py", SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    worker = f"from srl.core.registry import import_path; import_path('{script}:Mine')"
    ran = python("-c", worker, cwd=tmp_path)
    assert f"importing {script} starts a run" in ran.stderr and "try: put the call under `if __name__" in ran.stderr


def test_a_module_that_is_run_is_named_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "their").mkdir()
    write(tmp_path / "their" / "script.py", SCRIPT)
    ran = python("-m", "their.script", cwd=tmp_path)
    assert ran.stdout.splitlines() == ["their.script:Mine", "started"], ran.stderr
    ran = python("-c", "from srl.core.registry import import_path; print(import_path('their.script:Mine'))", cwd=tmp_path)
    assert ran.stdout.splitlines()[-1] == "<class 'their.script.Mine'>", ran.stderr
    assert "started" not in ran.stdout


def test_a_script_is_not_run_twice_in_its_own_process(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """\
        from srl.core.registry import import_path
        class Mine: pass
        assert import_path(__file__ + ":Mine") is Mine
        print("once")
        """,
    )
    assert python("script.py", cwd=tmp_path).stdout == "once\n"


def test_a_class_of_a_notebook_says_mode_inline(tmp_path: Path) -> None:
    code = """
from srl.core.registry import register_env, dotted_path
@register_env("a")
class A: pass
@register_env("a")
class A: pass          # the cell is run again
dotted_path(A)
"""
    ran = python("-c", code, cwd=tmp_path)
    assert "'A' is defined in a notebook or an interactive session, where other processes cannot find it" in ran.stderr
    assert "try: mode=inline, or move the class to a file" in ran.stderr


def test_plugins_are_modules_files_and_installed_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "from srl.core.registry import register_transform\n@register_transform('{}')\nclass A: pass\n"
    file = write(tmp_path / "their_file.py", line.format("of_file"))
    write(tmp_path / "their_module.py", line.format("of_module"))
    write(tmp_path / "their_installed.py", line.format("of_entry"))
    info = tmp_path / "their-1.0.dist-info"
    info.mkdir()
    write(info / "METADATA", "Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[srl.plugins]\ntheirs = their_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.setitem(REGISTRIES, "transform", Registry("transform"))
    load_plugins([str(file), "their_module"])
    assert REGISTRIES["transform"].names() == ["of_entry", "of_file", "of_module"]
    load_plugins([str(file), "their_module"])


def test_a_plugin_that_is_not_there_is_a_user_error() -> None:
    with pytest.raises(NotImportable, match="cannot import plugin 'their_none'"):
        load_plugins(["their_none"])


def test_built_in_names_are_strings_of_one_form() -> None:
    for table in BUILTIN.values():
        for target in table.values():
            module, _, name = target.partition(":")
            assert module.startswith("srl.")
            assert name.isidentifier()


def test_importing_the_core_takes_neither_torch_nor_numpy() -> None:
    code = "import sys, srl.core.registry, srl.config.compose; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    ran = python("-c", code, cwd=Path.cwd())
    assert ran.stdout == "[]\n", ran.stderr
