"""What the docs tell people to type, beside commands of `srl`: programs of this repository, jobs, settings in tables and text."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Iterator

import pytest
from test_docs import FENCE, PAGES, ROOT, name

from srl.cli.help import section_help
from srl.cli.parsing import words_of
from srl.config.experiment import SECTIONS
from srl.core.registry import REGISTRIES
from srl.plan.prepare import prepare

PROGRAM = re.compile(r"(?:^|\s)((?:python )?(?:benchmarks|docs|deploy)/[\w/]+\.(?:py|sh))([^\n`]*)")
SETTING = re.compile(r"(?<![\w/.-])(\w+(?:\.\w+)+)(?![\w/(])")
"""`algorithm.lr`, but neither a path nor a call."""
FILES = ("onnx", "json", "jsonl", "py", "md", "yaml", "npz", "sh", "txt")
METHODS = ("env.step",)
KINDS = ("env", "policy", "algorithm", "learner", "launcher", "worker")


def lines() -> Iterator[tuple[str, str]]:
    """(page and line, code) of every line in a fence, and of every piece of code in the text."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # it has old names too
            continue
        text = page.read_text()
        for found in FENCE.finditer(text):
            first = text.count("\n", 0, found.start()) + 2
            if not found[1].strip().startswith(("python", "yaml")):
                yield from ((f"{name(page)}:{first + i}", line) for i, line in enumerate(found[2].splitlines()))
        blank = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
        for i, line in enumerate(blank.splitlines(), 1):
            before = ""
            for code in re.findall(r"`([^`]+)`", line):  # `algorithm.lr`, `.gamma`: the section is that of the one before
                code = f"{before}{code}" if re.match(r"\.[a-z]\w+", code) else code
                before = code.partition(".")[0] if re.match(r"(algorithm|policy)\.", code) else before
                yield f"{name(page)}:{i}", code


LINES = list(lines())
PROGRAMS = sorted({(found[1], found[2]) for _, line in LINES for found in PROGRAM.finditer(line)})
JOBS = sorted({found[1] for _, line in LINES if (found := re.match(r"sbatch .*run\.sh ([^.].*)", line))})


@pytest.mark.parametrize(("program", "words"), PROGRAMS, ids=[f"{program}{words}"[:60] for program, words in PROGRAMS])
def test_programs_of_the_repository_are_there_and_have_these_options(program: str, words: str) -> None:
    path = ROOT / program.removeprefix("python ")
    assert path.is_file(), program
    if path.suffix == ".sh":
        assert os.access(path, os.X_OK), f"{program} must be executable"
    else:
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", words.partition(" | ")[0]):
            assert f'"{option}"' in path.read_text(), f"{program} has no {option}"


@pytest.mark.parametrize("words", JOBS)
def test_jobs_are_experiments_that_can_start(words: str) -> None:
    given = shlex.split(words)
    if given[0] == "--join":
        assert "--join" in (ROOT / "deploy/slurm/run.sh").read_text()
    else:
        prepare(*words_of(given), inspect=False)


@functools.cache
def known(section: str) -> frozenset[str]:
    """Every setting that a section has, with any of the components that it may name."""
    topics = REGISTRIES[section].names() if section in KINDS else []
    topics += [section] if section in SECTIONS else []
    rows = [found for topic in topics for found in re.findall(r"^  (\w[\w.]*)  ", section_help(topic), re.M)]
    return frozenset([*rows, "use"])


def settings(code: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Every setting that is named: the section, what is named in it, and what it has."""
    for path in SETTING.findall(code):
        section, _, rest = path.partition(".")
        node, _, below = rest.partition(".")
        if path.rpartition(".")[2] in FILES or path in METHODS:
            continue
        if section == "workers":
            if node in REGISTRIES["worker"] and below:
                yield path, below, known("workers") | known("worker") | {"learner"}
        elif section == "hosts":
            if below:
                yield path, below, known("hosts")
        elif section == "env":
            yield path, rest, known(section) | {"preset", "physics"}  # of hide_and_seek, which explains them above its settings
        elif section != "streams" and (section in KINDS or section in SECTIONS):
            yield path, rest, known(section)


def test_settings_that_are_named_exist() -> None:
    named = {(place, *found) for place, code in LINES for found in settings(code)}
    assert len(named) > 300
    wrong = [f"{place}: {path}" for place, path, rest, there in named if not any(fits(rest, one) for one in there)]
    assert not wrong, "\n".join(sorted(wrong))


def fits(named: str, there: str) -> bool:
    """`critic` and `critic.hidden` name a setting `critic.hidden`; `lr.from` and `home.cores` name parts of `lr` and `home`."""
    return f"{there}.".startswith(f"{named}.") or f"{named}.".startswith(f"{there}.")
