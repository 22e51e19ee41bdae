"""Arguments of the commands: argparse, with our own errors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from srl.cli.hints import hint_option
from srl.core.errors import UserError
from srl.core.load import nearest


class Parser(argparse.ArgumentParser):
    """Raises a UserError instead of printing usage and exiting."""

    words: Sequence[str] = ()

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = list(args or ())
        return super().parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        error = UserError(f"{self.prog}: {message}")
        unknown = message.partition("unrecognized arguments: ")[2].split()
        known = [option for action in self._actions for option in action.option_strings]
        if unknown and (hint := hint_option(unknown, self.words)):
            error.add("did you mean", f"{hint}?")
        elif unknown and (near := nearest(unknown[0].partition("=")[0], known)):
            error.add("did you mean", f"{near}?")
        raise error.add("all", f"{self.prog} --help")


def words_of(words: list[str]) -> tuple[str | None, list[str]]:
    """The experiment and the overrides: a first word without `=` is the name of the experiment."""
    if words and "=" not in words[0] and words[0][0] not in "+~@":
        return words[0], words[1:]
    return None, words
