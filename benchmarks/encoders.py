"""CPU time of the image encoders, us per image: forward and backward of 256, and acting for 8. Contestants take turns.

python benchmarks/encoders.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from srl.api.policy import PictureConfig
from srl.core.spec import Leaf
from srl.nets.vision import PictureEncoder

TRAINED, ACTED = 256, 8


class Plain(nn.Module):
    """The Nature CNN as it is usually written."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
        self.layers = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())

    def forward(self, pictures: Tensor) -> Tensor:
        features: Tensor = self.layers(pictures.float() / 255.0)
        return features


def encoder(kind: str, half: bool) -> PictureEncoder:
    features = 512 if kind == "nature" else 256
    return PictureEncoder(Leaf((4, 84, 84), "uint8"), PictureConfig(encoder=kind, encoder_half=half, features=features))


def cpu_time(net: nn.Module, pictures: Tensor) -> tuple[float, float]:
    """us per image in training, and in acting."""
    for one in net.parameters():
        one.grad = None
    start = time.process_time()
    net(pictures).square().mean().backward()
    trained = time.process_time() - start
    acted = []
    with torch.inference_mode():
        for _ in range(4):
            start = time.process_time()
            net(pictures[:ACTED])
            acted.append(time.process_time() - start)
    return trained / TRAINED * 1e6, min(acted) / ACTED * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    nets: dict[str, nn.Module] = {"nature, plain modules": Plain()}
    for kind in ("nature", "impala"):
        nets |= {f"{kind}, {'bfloat16' if half else 'float32'}": encoder(kind, half) for half in (False, True)}
    pictures = torch.randint(0, 255, (TRAINED, 4, 84, 84), dtype=torch.uint8)
    best = {name: (float("inf"), float("inf")) for name in nets}
    for _ in range(given.rounds):
        for name, net in nets.items():
            trained, acted = cpu_time(net, pictures)
            best[name] = min(best[name][0], trained), min(best[name][1], acted)
    print(f"{'us per image':<24}{f'training {TRAINED}':>14}{f'acting {ACTED}':>12}")
    for name, (trained, acted) in best.items():
        print(f"{name:<24}{trained:>14.0f}{acted:>12.0f}")


if __name__ == "__main__":
    main()
