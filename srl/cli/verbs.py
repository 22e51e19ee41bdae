"""The commands by name: where each is, and a line about it."""

from __future__ import annotations

VERBS: dict[str, tuple[str, str]] = {
    "launch": ("srl.cli.launch:run_command", "run an experiment; same as python -m srl.launch"),
    "list": ("srl.cli.look:list_", "list the experiments, and the names that they can use"),
    "graph": ("srl.cli.look:graph", "show workers and streams of an experiment or a run, as text or --mermaid"),
    "check": (
        "srl.cli.check:check",
        "check an experiment without starting it; check env, policy or algorithm NAME checks one of these alone",
    ),
    "expect": ("srl.cli.expect:expect", "run an experiment with several seeds and check that it reaches the return in its file"),
    "eval": ("srl.cli.play:evaluate", "play episodes with the policy of a run and print the means"),
    "play": ("srl.cli.play:play", "record a video of episodes of a run: --record FILE.mp4"),
    "export": ("srl.cli.export:export", "write the policy of a run as an ONNX or PT2 program for other software"),
    "tag": ("srl.cli.play:tag", "keep a version of a run under a name, for load=RUN@NAME and --checkpoint NAME"),
    "watch": ("srl.cli.watch:watch", "watch the newest policy of a run play, in a window or a browser; Ctrl-C ends it"),
    "bench": (
        "srl.cli.bench:bench",
        "bench limit experiment=NAME: measure the highest possible and the achieved rate; bench scale: predict many hosts",
    ),
    "dashboard": (
        "srl.cli.dashboard:dashboard",
        "serve a page about active and ended runs: graph, curves, workers, films, settings",
    ),
    "report": ("srl.cli.dashboard:report", "write that page to one HTML file, to mail or to keep"),
    "compare": (
        "srl.cli.dashboard:compare",
        "compare runs: settings, curves, final figures with intervals over seeds; --png FILE",
    ),
    "replay": ("srl.cli.recorded:replay", "show what a recording contains; replay.data=FOLDER trains on its rows"),
    "status": ("srl.cli.status:status", "list the newest runs: state, env steps, return, duration"),
    "stop": ("srl.cli.asking:stop", "end an active run: save, and print the command that resumes"),
    "logs": ("srl.cli.asking:logs", "show the logs of a run's workers, on any host"),
    "top": ("srl.cli.asking:top", "show rates, hosts and processes of a run, every second"),
    "completion": ("srl.cli.completion:completion", "print the completion script for bash, zsh or fish"),
    "doctor": ("srl.cli.doctor:doctor", "look for common problems of the machine and the installation"),
}
