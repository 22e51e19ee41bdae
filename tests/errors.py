"""How tests expect an error of ours: by its code, not by its words."""

from __future__ import annotations

import pytest

from srl.core.errors import SrlError


def raises(code: str, *, match: str | None = None) -> pytest.RaisesExc[SrlError]:
    """`pytest.raises` for an error with this code."""
    return pytest.raises(SrlError, match=match, check=lambda error: error.code == code)
