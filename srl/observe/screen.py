"""A report in words: a screen of 80 columns and 24 rows, or one line of a log."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from srl.core.text import clock_time, columns, figure, size
from srl.observe.report import Report, StreamRow, WorkerRow, by_kind, by_role

LOG_WIDTH = 120
_FIRST = ("loss", "entropy", "kl", "value")
"""Of what an algorithm reports, names with these words come first."""


def screen(report: Report, width: int = 80) -> list[str]:
    """The lines of the live screen, most important first; every line fits."""
    to_go = f", {clock_time(report.eta)} to go" if report.eta is not None else ""
    lines = textwrap.wrap(f"{report.experiment}  {clock_time(report.elapsed)}  {steps(report)}{to_go}", width)
    lines += textwrap.wrap(report.advice, width)
    lines += _packed([f"return {returns(report)}" if report.returns else "", evaluation(report)], width)
    for policy, values in report.training.items():
        lines += _packed(training(policy, values), width, rows=1)
    lines += _packed([rates(report), f"update {report.update:,}"], width)
    lines += _packed([learning(report), f"lag {lag(report)}" if report.lag else "", replay(report)], width)
    lines += _packed([f"sides {sides(report)}" if sides(report) else ""], width)
    lines += _packed([f"{name} {value:.2f}" for name, value in report.stats.items()], width, between="  ")
    if report.workers:
        rows = [_worker(row) for row in by_role(report.workers)]
        lines += ["", *_grid([("worker", "busy", "cores", "memory", "waits for"), *rows], range(1, 4), width)]
    if report.streams:
        rows = [_stream(row) for row in by_kind(report.streams)]
        lines += ["", *_grid([("stream", "items/s", "bytes/s", "queue", "staleness", "dropped"), *rows], range(1, 5), width)]
    return lines


def line(report: Report) -> str:
    """One line for a log, with as many figures as fit."""
    limit = report.advice.partition(":")[0]  # `the trainer is the limit`
    parts = [f"return {returns(report, brief=True)}" if report.returns else "", evaluation(report), rates(report), limit]
    parts += [f"{row.name} dropped {drops}" for row in report.streams if (drops := _drops(row))]
    text = f"{clock_time(report.elapsed)} | {steps(report)}"
    for part in parts:
        if part and len(text) + 3 + len(part) <= LOG_WIDTH:
            text += f" | {part}"
    for part in (part for policy, values in report.training.items() for part in training(policy, values)):
        if len(text) + 3 + len(part) > LOG_WIDTH:
            break
        text += f" | {part}"
    return text


def steps(report: Report) -> str:
    """`120,000 of 300,000 env steps (40 %)`"""
    text = f"{report.env_steps:,}" + (f" of {report.target:,}" if report.target else "") + " env steps"
    if report.progress is not None:
        text += f" ({100 * report.progress:.0f} %)"
    return text


def returns(report: Report, *, brief: bool = False) -> str:
    """`187.3 (512 episodes, length 187)`"""
    text = ", ".join(f"{team} {figure(value)}".strip() for team, value in report.returns.items())
    if brief:
        return text
    facts = [f"{report.episodes:,} episodes"] if report.episodes else []
    facts += [f"length {figure(report.episode_length)}"] if report.episode_length is not None else []
    return f"{text} ({', '.join(facts)})" if facts else text


def evaluation(report: Report) -> str:
    """`evaluation of 250,000: return 475, cross/seeker/seen 0.5`"""
    found = report.evaluation
    if found is None:
        return ""
    figures = ", ".join(f"{name.removeprefix('eval/')} {figure(value)}" for name, value in found.values.items())
    return f"evaluation at {found.env_steps:,}: {figures}"


def training(policy: str, values: Mapping[str, float]) -> list[str]:
    """`hider policy_loss -0.01`, `value_loss 0.5`, `entropy 2.1`, `kl 0.004`"""
    plain = [name for name in values if name.removesuffix(_side(name)) not in _sides(values)]
    order = sorted(plain, key=lambda name: next((at for at, word in enumerate(_FIRST) if word in name), len(_FIRST)))
    parts = [f"{name} {values[name]:.3g}" for name in order]
    return [f"{policy}: {parts[0]}", *parts[1:]] if policy and parts else parts


def sides(report: Report) -> str:
    """`critics 2,972 (busy 99 %), actor 2,972 (busy 71 %), lag 3`: the sides of a split learner."""
    texts = []
    for policy, values in report.training.items():
        found = _sides(values)
        parts = [f"{name} {values[f'{name}_version']:,.0f} (busy {100 * values[f'{name}_busy']:.0f} %)" for name in found]
        apart = max((abs(values.get(f"{name}_lag", 0.0)) for name in found), default=0.0)
        if parts:
            texts.append((f"{policy}: " if policy else "") + ", ".join([*parts, f"lag {apart:.2g}"]))
    return "; ".join(texts)


def _sides(values: Mapping[str, float]) -> list[str]:
    """The names of the sides that report."""
    return [name.removesuffix("_version") for name in values if name.endswith("_version") and name[:-8] + "_busy" in values]


def _side(name: str) -> str:
    """The end of a figure that sides report."""
    return next((end for end in ("_version", "_waits", "_busy", "_lag") if name.endswith(end)), "")


def rates(report: Report) -> str:
    """`env 52,310/s, agent 104,620/s (hider 52,310, seeker 52,310), train 52,100/s`"""
    text = f"env {report.env_rate:,.0f}/s"
    if report.agent_rate > 1.05 * report.train_rate:  # several agents in an env
        text += f", agent {report.agent_rate:,.0f}/s"
    if len(report.policy_rates) > 1:
        text += f" ({', '.join(f'{name} {rate:,.0f}' for name, rate in report.policy_rates.items())})"
    return text + f", train {report.train_rate:,.0f}/s"


def learning(report: Report) -> str:
    """`298 updates/s, 76,300 frames/s, replay ratio 256`"""
    if not report.frame_rate:
        return ""
    return f"{report.update_rate:,.0f} updates/s, {report.frame_rate:,.0f} frames/s, replay ratio {report.replay_ratio:.3g}"


def replay(report: Report) -> str:
    """`replay 50,000 of 1,000,000 rows, 3 updates owed`"""
    found = report.replay
    if not found:
        return ""
    owed = f"{found['owed']:,.0f} updates owed" if found["owed"] >= 0 else "warming up"
    return f"replay {found['rows']:,.0f} of {found['size']:,.0f} rows, {owed}"


def lag(report: Report) -> str:
    """`0.9 updates (p99 1), 210 ms (p99 330)`"""
    found = report.lag
    if "ms" not in found:
        return ""
    shown = {name: f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for name, value in found.items()}
    return f"{shown['updates']} updates (p99 {shown['updates_p99']}), {shown['ms']} ms (p99 {shown['ms_p99']})"


def shares(report: Report) -> str:
    """`trainer 71 % (waits for slabs 27 %), actor 99 %`"""
    texts = []
    for row in sorted(by_role(report.workers), key=lambda row: -row.busy):
        what, part = max(row.waits.items(), key=lambda item: item[1], default=("", 0.0))
        texts.append(f"{row.kind} {100 * row.busy:.0f} %" + (f" (waits for {what} {100 * part:.0f} %)" if part >= 0.05 else ""))
    return ", ".join(texts)


def _packed(parts: Iterable[str], width: int, *, between: str = "   ", rows: int = 2) -> list[str]:
    """Parts side by side in a few lines; what has no room is left out."""
    lines: list[str] = []
    for part in parts:
        if lines and part and len(lines[-1]) + len(between) + len(part) <= width:
            lines[-1] += between + part
        elif part and len(lines) < rows:
            lines.append(part[:width])
    return lines


def _grid(rows: Sequence[Sequence[str]], right: Collection[int], width: int) -> list[str]:
    return [text[:width].rstrip() for text in columns(rows, right=right).splitlines()]


def _worker(row: WorkerRow) -> tuple[str, ...]:
    name = f"{row.kind} x {row.count}" if row.count > 1 else row.kind
    name += f" ({row.restarts} restarted)" if row.restarts else ""
    most = sorted(row.waits.items(), key=lambda item: -item[1])[:2]
    waits = ", ".join(f"{what} {100 * part:.0f} %" for what, part in most if part >= 0.005)
    own = ("in", row.inside) if row.inside else (f"{row.cpu:.2f}", size(row.rss))
    return (name, f"{100 * row.busy:.0f} %", *own, waits)


def _stream(row: StreamRow) -> tuple[str, ...]:
    name = f"{row.name} x {row.count}" if row.count > 1 else row.name
    queue = (f"{row.queue:.0f}/{row.slots}" if row.slots else f"{row.queue:.0f}") if row.kind == "sample" else ""
    stale = " / ".join(f"{value:.1f}" for value in row.staleness) if row.staleness else ""
    return (name, f"{row.items:,.1f}", size(row.bytes), queue, stale, _drops(row))


def _drops(row: StreamRow) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in sorted(row.drops.items()) if number)
