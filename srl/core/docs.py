"""The texts that stand under the fields of a dataclass, for `--help`."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import is_dataclass


def field_docs(cls: type) -> dict[str, str]:
    """Field name -> the string literal under it, of the class and its bases. Empty where there is no source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            found.update(_own_docs(base))
    return found


def _own_docs(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for statement, below in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and _is_text(below):
            found[statement.target.id] = " ".join(inspect.cleandoc(_text(below)).split())
    return found


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )


def _text(statement: ast.stmt) -> str:
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return str(statement.value.value)
