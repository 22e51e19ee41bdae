"""Arguments of the commands: argparse, with our own errors."""

from __future__ import annotations

import argparse
from typing import NoReturn

from srl.core.errors import UserError
from srl.core.load import nearest


class Parser(argparse.ArgumentParser):
    """Raises a UserError instead of printing usage and exiting."""

    def error(self, message: str) -> NoReturn:
        error = UserError(f"{self.prog}: {message}")
        unknown = message.partition("unrecognized arguments: ")[2].split()
        known = [option for action in self._actions for option in action.option_strings]
        if unknown and (near := nearest(unknown[0].partition("=")[0], known)):
            error.add("did you mean", f"{near}?")
        raise error.add("all", f"{self.prog} --help")


def words_of(words: list[str]) -> tuple[str | None, list[str]]:
    """A first word that is no override names the experiment."""
    if words and "=" not in words[0] and words[0][0] not in "+~@":
        return words[0], words[1:]
    return None, words
