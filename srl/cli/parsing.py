"""Arguments of the commands: argparse with our own errors, and what was probably meant by words that are wrong."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from srl.core.errors import Fact, UserError
from srl.core.load import nearest


class Parser(argparse.ArgumentParser):
    """Raises a UserError instead of printing usage and exiting."""

    words: Sequence[str] = ()

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = list(args or ())
        return super().parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if missing := message.partition("arguments are required: ")[2]:
            raise UserError(
                f"{self.prog} needs {missing.replace(', ', ' and ')}", *self._example(), ("all", f"{self.prog} --help")
            )
        error = UserError(f"{self.prog}: {message}")
        unknown = message.partition("unrecognized arguments: ")[2].split()
        known = [option for action in self._actions for option in action.option_strings]
        if unknown and (hint := hint_option(unknown, self.words)):
            error.add("did you mean", f"{hint}?")
        elif unknown and (near := nearest(unknown[0].partition("=")[0], known)):
            error.add("did you mean", f"{near}?")
        raise error.add("all", f"{self.prog} --help")

    def _example(self) -> list[Fact]:
        """What could be typed instead of the command alone."""
        asked = [one.dest for one in self._actions if not one.option_strings]
        return [("try", f"{self.prog} runs/cartpole")] if asked and asked[0].lower() in ("run", "runs") else []


def number(text: str) -> int:
    """The type of an argument that counts something."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def words_of(words: list[str]) -> tuple[str | None, list[str]]:
    """The experiment and the overrides: a first word without `=` is the name of the experiment."""
    if words and "=" not in words[0] and words[0][0] not in "+~@":
        return words[0], words[1:]
    return None, words


def hint_option(options: Sequence[str], words: Sequence[str]) -> str:
    """`seed=3` for `--seed 3` or `--seed=3`: settings have no dashes. Empty if it is not a setting."""
    from srl.config.experiment import Experiment
    from srl.core.option import describe

    settings = {row.name.split(".")[0] for row in describe(Experiment)}
    name, equals, value = options[0].lstrip("-").partition("=")
    if not options[0].startswith("--") or not (name in ("experiment", *settings) or "." in name):
        return ""
    if not equals:
        after = list(words[words.index(options[0]) + 1 :]) if options[0] in words else []
        value = after[0] if after and "=" not in after[0] and not after[0].startswith("-") else "..."
    return f"{name}={value}"


def add_hints(error: UserError, words: Sequence[str]) -> None:
    """Say where a misplaced setting belongs, and that several values are a sweep."""
    path = error.path or ()
    if error.code == "E02" and len(path) == 1:
        key = str(path[0])
        word = next((word for word in words if word.startswith((f"{key}=", f"{key}."))), f"{key}=...")
        if meant := " or ".join(f"{home}.{word}" for home in _homes(key)):
            error.facts[:] = [("did you mean", f"{meant}?"), *(fact for fact in error.facts if fact[0] != "did you mean")]
    if error.code == "E03" and path:
        name = ".".join(map(str, path))
        for word in words:
            text = word.partition("=")[2]
            if word.startswith(f"{name}=") and "," in text and text[0] not in "[{":
                error.facts.insert(0, ("try", f"--sweep {word} for one run with each value"))


def _homes(key: str) -> Iterator[str]:
    """Where a setting of this name belongs: `workers` for a kind of worker, else a registered component or a section."""
    from srl.config.experiment import SECTIONS
    from srl.core.option import describe
    from srl.core.registry import REGISTRIES

    if key in REGISTRIES["worker"]:
        yield "workers"
    for kind in ("algorithm", "policy"):
        for name in REGISTRIES[kind].names():
            schema = getattr(REGISTRIES[kind].resolve(name), "Config", None)
            if schema is not None and key in [row.name for row in describe(schema)]:
                yield kind
                break
    for section, schema in SECTIONS.items():
        if section != "policies" and key in [row.name for row in describe(schema)]:
            yield section
