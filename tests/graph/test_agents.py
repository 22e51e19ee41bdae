"""Which agents go to which policy, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srl.core.errors import SrlError
from srl.graph.policies import teams_of
from srl.graph.prepare import prepare


@pytest.mark.parametrize(
    ("agents", "pattern", "word"),
    [
        ({"hider_*": "main", "seker_*": "main", "*": "main"}, "seker_*", "did you mean: seeker_*"),
        ({"*": "main", "hider_*": "main"}, "hider_*", "earlier patterns take hider_0"),
    ],
)
def test_a_pattern_that_no_agent_comes_to_is_refused(agents: dict[str, str], pattern: str, word: str) -> None:
    prepared = prepare("hide_and_seek_shared")
    assert teams_of(prepared.graph, prepared.derived.env) == {"main": ("hider", "seeker")}
    with pytest.raises(SrlError) as caught:
        teams_of(replace(prepared.graph, agents=agents), prepared.derived.env)
    assert caught.value.headline == f"no agent comes to the pattern '{pattern}'"
    assert word in caught.value.format()


def test_past_opponents_need_two_policies_that_learn() -> None:
    with pytest.raises(SrlError) as caught:
        prepare("hide_and_seek", ["policies.seeker.algorithm=null"])
    assert "opponents=null" in caught.value.format()
