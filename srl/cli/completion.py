"""`srl completion bash|zsh|fish`: the shell asks `srl completion --words LINE` what may follow."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from srl.cli.parsing import Parser
from srl.cli.verbs import VERBS
from srl.core.errors import SrlError

SCRIPTS = {
    "bash": """\
# eval "$(srl completion bash)", in ~/.bashrc
_srl() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=($(srl completion --words "$line" 2> /dev/null))
    [[ "${COMPREPLY[0]}" == *= || "${COMPREPLY[0]}" == */ ]] && compopt -o nospace
    local cut="${line##*[[:space:]]}"; cut="${cut%"${COMP_WORDS[COMP_CWORD]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
complete -o default -F _srl srl""",
    "zsh": """\
# eval "$(srl completion zsh)", in ~/.zshrc
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_srl() {
    local -a found open
    found=(${(f)"$(srl completion --words "$BUFFER[1,CURSOR]" 2> /dev/null)"})
    open=(${(M)found:#*[=./]})
    found=(${found:#*[=./]})
    (( $#open + $#found )) || { _files; return }
    compadd -Q -S '' -- $open
    compadd -Q -- $found
}
compdef _srl srl""",
    "fish": """\
# srl completion fish > ~/.config/fish/completions/srl.fish
complete -c srl -a '(srl completion --words (commandline -cp) 2> /dev/null)'""",
}
_WITH_SETTINGS = ("launch", "graph", "check", "bench", "expect")
_WITH_RUNS = ("eval", "play", "watch", "export", "tag", "status", "stop", "logs", "top", "dashboard", "report", "compare")


def completion(argv: list[str]) -> int:
    """Print the script for a shell, or with `--words` what may follow a line."""
    parser = Parser(prog="srl completion", description='print the completion script for a shell: eval "$(srl completion bash)"')
    parser.add_argument("shell", nargs="?", choices=sorted(SCRIPTS), help="the shell that the script is for")
    parser.add_argument("--words", metavar="LINE", help="print the completions of this line; used by the script")
    given = parser.parse_args(argv)
    if given.words is not None:
        print("\n".join(sorted(set(words(given.words)))))
        return 0
    if given.shell is None:
        parser.error("which shell? bash, zsh or fish")
    print(SCRIPTS[given.shell])
    return 0


def words(line: str) -> Iterator[str]:
    """What the last word of a line may become."""
    before, last = line.split()[1:], ""
    if not line.endswith((" ", "\t")) and before:
        last = before.pop()
    if not before:
        yield from (verb for verb in VERBS if verb.startswith(last))
        return
    verb = before[0]
    if last.startswith("-"):
        yield from (option for option in _options(verb) if option.startswith(last))
    elif verb == "help" or verb not in VERBS:
        return
    elif verb == "completion":
        yield from (shell for shell in SCRIPTS if shell.startswith(last))
    elif verb in _WITH_SETTINGS:
        yield from _settings(last, [word for word in before[1:] if "=" in word])
    elif verb in _WITH_RUNS:
        yield from _folders(last)


def _settings(last: str, given: list[str]) -> Iterator[str]:
    """`algorithm.lr=`, or a value after the equals sign."""
    from srl.config.experiment import SECTIONS, Experiment
    from srl.config.find import list_experiments
    from srl.core.option import describe
    from srl.core.registry import REGISTRIES

    key, equals, value = last.partition("=")
    if equals:
        names = list(list_experiments()) if key == "experiment" else []
        if key in ("algorithm", "policy", "layout", "learner", "launcher", "env"):
            names = REGISTRIES[key].names()
        elif key == "mode":
            names = ["inline", "local"]
        yield from (f"{key}={name}" for name in names if name.startswith(value))
        return
    section, dot, name = key.partition(".")
    if not dot:
        known = ["experiment", *(row.name for row in describe(Experiment))]
        yield from (f"{one}=" for one in known if one.startswith(key))
        yield from (f"{one}." for one in (*SECTIONS, "algorithm", "policy") if one.startswith(key))
        return
    schema = SECTIONS.get(section)
    if section in ("algorithm", "policy"):
        schema = _component(section, given)
    if schema is not None:
        yield from (f"{section}.{row.name}=" for row in describe(schema) if row.name.startswith(name))


def _component(kind: str, given: list[str]) -> type | None:
    """The settings of the algorithm or policy that a line names; else those of PPO and its usual policy."""
    from srl.core.registry import REGISTRIES

    usual = {"algorithm": "ppo", "policy": "actor_critic"}[kind]
    named = next((word.partition("=")[2] for word in given if word.startswith(f"{kind}=")), usual)
    try:
        return getattr(REGISTRIES[kind].resolve(named), "Config", None)
    except SrlError:
        return None


def _options(verb: str) -> Iterator[str]:
    """The options of a command, from its help."""
    import contextlib
    import io
    import re

    if verb not in VERBS:
        return
    module, _, name = VERBS[verb][0].partition(":")
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit, SrlError):
        getattr(importlib.import_module(module), name)(["--help"])
    yield from dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text.getvalue()))


def _folders(last: str) -> Iterator[str]:
    """Folders below the one that the word begins with."""
    prefix = last[: last.rfind("/") + 1]
    if (place := Path(prefix or ".")).is_dir():
        yield from (f"{prefix}{one.name}/" for one in place.iterdir() if one.is_dir() and f"{prefix}{one.name}".startswith(last))
