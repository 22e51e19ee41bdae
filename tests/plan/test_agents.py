"""Which agents go to which policy, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from srl.config.yaml import parse
from srl.core.errors import SrlError
from srl.core.seeds import Seeds
from srl.envs.resolve import make_env
from srl.plan.inspect import inspect_env, teams_of
from srl.plan.prepare import prepare


@pytest.mark.parametrize(
    ("agents", "pattern", "word"),
    [
        ({"hider_*": "main", "seker_*": "main", "*": "main"}, "seker_*", "did you mean: seeker_*"),
        ({"*": "main", "hider_*": "main"}, "hider_*", "earlier patterns take hider_0"),
    ],
)
def test_a_pattern_that_no_agent_comes_to_is_refused(agents: dict[str, str], pattern: str, word: str) -> None:
    prepared = prepare("hide_and_seek_shared", ["mode=inline"])
    assert teams_of(prepared.graph, prepared.derived.env) == {"main": ("hider", "seeker")}
    with pytest.raises(SrlError) as caught:
        teams_of(replace(prepared.graph, agents=agents), prepared.derived.env)
    assert caught.value.headline == f"pattern '{pattern}' matches no agent"
    assert word in caught.value.format()


def test_a_team_that_is_split_between_policies_is_refused_with_teams_that_are_not() -> None:
    prepared = prepare("simple_tag", inspect=False)
    agents = {"adversary_0": "prey", "*": "hunter"}
    with pytest.raises(SrlError) as caught:
        teams_of(replace(prepared.graph, agents=agents), inspect_env(prepared.graph))
    error = caught.value.format()
    assert error.startswith("error[E10]: the agents of team 'adversary' are split between policies ['hunter', 'prey']")
    (teams,) = re.findall(r"env\.teams='(.*)'", error)
    env = make_env({**prepared.graph.env.flat, "teams": parse(teams).data}, 1, Seeds(0)).spec
    owners = teams_of(replace(prepared.graph, agents=agents), env)
    assert owners == {"prey": ("adversary-prey",), "hunter": ("adversary-hunter", "agent")}


def test_past_opponents_need_two_policies_that_learn() -> None:
    with pytest.raises(SrlError) as caught:
        prepare("hide_and_seek", ["policies.seeker.algorithm=null"])
    assert "opponents=null" in caught.value.format()
