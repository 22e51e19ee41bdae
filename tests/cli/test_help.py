"""Help answers at once: nothing heavy is imported for it."""

import subprocess
import sys

import pytest

from srl.cli.help import section_help
from srl.config.experiment import SECTIONS
from srl.core.errors import UserError

HEAVY = ("torch", "numpy", "zmq", "grpc", "rich", "gymnasium")


@pytest.mark.parametrize(
    "code",
    [
        "import srl",
        "import srl; srl.register_env; srl.option",
        "from srl.cli.launch import main; assert main(['--help']) == 0",
        "from srl.cli.launch import main; assert main(['--help', 'sampling']) == 0",
        "from srl.__main__ import main; assert main(['--help']) == 0",
    ],
)
def test_nothing_heavy_is_imported(code):
    check = f"{code}\nimport sys\nfound = [name for name in {HEAVY} if name in sys.modules]\nassert not found, found"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_of_a_section_is_explained(section):
    lines = section_help(section).splitlines()
    assert lines[0].startswith(f"{section}: ")
    assert len(lines) > 2


def test_an_algorithm_explains_its_own_settings():
    text = section_help("ppo")
    assert "minibatch" in text
    assert "rows per minibatch" in text


def test_an_unknown_topic_names_the_nearest():
    with pytest.raises(UserError) as caught:
        section_help("samplng")
    assert ("did you mean", "--help sampling?") in caught.value.facts


def test_public_names_are_there():
    import srl

    for name in srl.__all__:
        assert getattr(srl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lunch'"):
        _ = srl.lunch


def test_the_sections_of_a_component_are_listed_by_their_paths() -> None:
    told = section_help("sac")
    assert "critic.hidden" in told and "critic.tau" in told and "section" not in told
