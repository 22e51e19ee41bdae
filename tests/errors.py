"""How tests expect an error of ours: by its code, not by its words."""

from __future__ import annotations

import pytest

from srl.core.errors import SrlError


def raises(code: str, path: str | None = None, *, match: str | None = None) -> pytest.RaisesExc[SrlError]:
    """`pytest.raises` for an error with this code, about the setting at this path."""

    def check(error: SrlError) -> bool:
        return error.code == code and (path is None or ".".join(map(str, error.path or ())) == path)

    return pytest.raises(SrlError, match=match, check=check)
