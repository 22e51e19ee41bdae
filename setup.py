"""The distribution `really-scalable-rl`; it is imported as `srl`."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
SHARE = "share/srl"

EXTRAS = {
    "mujoco": ["mujoco-core>=4.0.1", "imageio>=2.34", "glfw", "PyOpenGL"],
    "video": ["imageio-ffmpeg>=0.5", "pillow"],
    "lz4": ["lz4>=4.3"],
    "pettingzoo": ["pettingzoo>=1.24", "mpe2"],
    "classic": ["pygame-ce"],
    "atari": ["ale-py>=0.10"],
    "minatar": ["minatar>=1.0.15"],
    "minigrid": ["minigrid>=3", "pygame-ce"],
    "minari": ["minari[hdf5]>=0.5"],
    "box2d": ["box2d>=2.3.10", "pygame-ce"],
    "cluster": ["cryptography>=42"],
    "export": ["onnx>=1.18", "onnxscript>=0.5", "onnxruntime>=1.20"],
}
LARGE = {"envpool": ["envpool>=1.2"]}
"""Extras of more than 500 MB, which `all` and `dev` leave out."""
DEV = [
    "pytest>=8",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "ruff",
    "mypy",
    "types-PyYAML",
    "tensorboard",
    "psutil",
    "kubernetes-validate>=1.37",
    "setuptools>=68",
]
DOCS = ["mkdocs-material>=9.6", "mkdocstrings[python]>=0.30"]


def shared() -> list[tuple[str, list[str]]]:
    """Experiments, and the examples that they name, by folder: an installed wheel finds them under `sys.prefix`."""
    folders: dict[str, list[str]] = {}
    for file in sorted([*(HERE / "experiments").rglob("*.yaml"), *(HERE / "docs" / "examples").glob("*.*")]):
        path = file.relative_to(HERE)
        folders.setdefault(str(Path(SHARE) / path.parent), []).append(str(path))
    return list(folders.items())


setup(
    name="really-scalable-rl",
    version="0.1.0",
    description="Distributed reinforcement learning: one experiment file, from one process to a cluster",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires=">=3.11",
    package_dir={"": "."},  # editable installs are then a plain path, which type checkers follow
    packages=find_packages(include=["srl", "srl.*"]),
    package_data={"srl": ["py.typed", "**/*.html", "**/*.yaml", "**/*.json", "**/*.xml", "dashboard/page/*"]},
    data_files=shared(),
    install_requires=[
        "torch>=2.6",
        "numpy>=1.26",
        "pyzmq>=26",
        "gymnasium>=1.0",
        "msgpack>=1.0",
        "pyyaml>=6.0",
        "grpcio>=1.60",
        "safetensors>=0.4",
        "rich>=13",
    ],
    extras_require={
        **EXTRAS,
        **LARGE,
        "all": sorted({one for group in EXTRAS.values() for one in group}),
        "wandb": ["wandb>=0.20"],
        "docs": DOCS,
        "dev": sorted({one for group in [*EXTRAS.values(), DEV, DOCS] for one in group}),
    },
    entry_points={"console_scripts": ["srl=srl.__main__:main"]},
)
