"""The texts below the fields of a dataclass, for `--help`."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from dataclasses import is_dataclass


def field_docs(cls: type) -> dict[str, str]:
    """Field name -> the string literal below it, of the class and its bases. Empty where there is no source."""
    found: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(cls.__mro__)):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        for pair in itertools.pairwise(getattr(tree.body[0], "body", [])):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
