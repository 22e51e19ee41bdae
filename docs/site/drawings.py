"""The drawings of docs/concepts.md: python docs/site/drawings.py"""

from pathlib import Path

HERE = Path(__file__).parents[1] / "pictures"
BLUE, ORANGE, GREEN, GREY, PAPER = "#0072b2", "#d55e00", "#009e73", "#666", "white"


def box(x: float, y: float, wide: float, high: float, text: str, colour: str = BLUE, fill: str = "#f4f8fb") -> str:
    rect = f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="6" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
    return rect + label(x + wide / 2, y + high / 2 + 4, text)


def frame(x: float, y: float, wide: float, high: float) -> str:
    return f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="8" fill="#fafafa" stroke="#999" stroke-dasharray="4 3"/>'


def label(x: float, y: float, text: str, colour: str = "#222", anchor: str = "middle", size: int = 13) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{text}</text>'


def arrow(path: str, colour: str, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" marker-end="url(#{colour[1:]})"{dash}/>'


def drawing(name: str, wide: int, high: int, *parts: str) -> None:
    heads = "".join(
        f'<marker id="{one[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{one}"/></marker>'
        for one in (BLUE, ORANGE, GREEN, GREY)
    )
    body = "\n".join(parts)
    (HERE / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="system-ui, sans-serif" role="img">\n'
        f'<defs>{heads}</defs>\n<rect width="{wide}" height="{high}" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def graph() -> None:
    drawing(
        "graph", 720, 250,
        box(40, 40, 150, 44, "actor: envs"), box(40, 160, 150, 44, "policy"), box(480, 40, 150, 44, "trainer"),
        box(480, 160, 150, 44, "evaluator", GREY, "#f6f6f6"),
        arrow("M190 62H478", ORANGE), label(335, 54, "samples: slabs of T steps", ORANGE),
        arrow("M95 86V158", BLUE), arrow("M135 158V86", BLUE), label(145, 126, "questions and answers", BLUE, "start"),
        arrow("M480 76C400 110 330 182 192 182", GREEN), arrow("M555 86V158", GREEN),
        label(565, 126, "parameters", GREEN, "start"), label(388, 140, "parameters", GREEN, "start"),
    )  # fmt: skip


def slab() -> None:
    steps, parts = 8, []
    for env in range(3):
        for t in range(steps + 1):
            ended = (env, t) == (2, 4)
            fill = "#eee" if ended else "#fdeee4" if t == steps else "#e4f0f8"
            parts.append(
                f'<rect x="{70 + 62 * t}" y="{48 + 46 * env}" width="56" height="38" rx="4" fill="{fill}" stroke="#9ab"/>'
            )
            first = t == 0 or (env, t) == (2, 5)
            word = "last obs" if ended else "obs" if t == steps else "first" if first else f"row {t}"
            parts.append(label(98 + 62 * t, 71 + 46 * env, word, size=11))
        parts.append(label(58, 71 + 46 * env, f"env {env}", anchor="end", size=12))
    drawing(
        "slab", 720, 240, *parts, label(70, 34, "steps t = 0 .. T-1: observation, action, reward, flags", anchor="start"),
        label(594, 34, "row T: bootstrap", ORANGE), label(346, 212, "not valid: an episode has ended", GREY, size=12),
        arrow("M346 200V182", GREY),
    )  # fmt: skip


def credits() -> None:
    drawing(
        "credits", 720, 170,
        box(50, 55, 150, 60, "actor"), box(520, 55, 150, 60, "trainer"),
        arrow("M200 72H518", ORANGE), label(360, 62, "slab, with the version that chose its actions", ORANGE),
        arrow("M520 100H202", GREEN, dashed=True), label(360, 122, "credit: start one more", GREEN),
        label(360, 154, "slabs under way + slabs waiting = credits given", GREY, size=12),
    )  # fmt: skip


def layouts() -> None:
    parts = []
    for i, (name, groups) in enumerate(
        {
            "inline": [("actor", "policy", "trainer")],
            "impala": [("actor", "policy"), ("actor", "policy"), ("trainer",)],
            "seed": [("actor",), ("actor",), ("policy", "trainer")],
        }.items()
    ):
        left = 20 + 235 * i
        parts.append(label(left + 105, 30, name, size=15))
        top = 44
        for group in groups:
            high = 14 + 34 * len(group)
            parts.append(frame(left, top, 210, high))
            parts += [box(left + 20, top + 9 + 34 * n, 170, 28, worker) for n, worker in enumerate(group)]
            top += high + 10
    drawing("layouts", 720, 310, *parts, label(360, 300, "dashed: one process", GREY, size=12))


for draw in (graph, slab, credits, layouts):
    draw()
