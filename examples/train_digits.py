"""Train the small residual network that ``unskip demo`` audits.

Data: scikit-learn's handwritten digits (1,797 images of 8×8, shipped inside the package).
Network: Linear(64, 16), three blocks x + MLP(x) of width 48 (ReLU, biases, no norm),
Linear(16, 10).  The blocks are written to src/unskip/data/digits.safetensors.

    pip install 'unskip[torch]' scikit-learn && python examples/train_digits.py
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

D, M, BLOCKS = 16, 48, 3
OUT = Path(__file__).parent.parent / "src" / "unskip" / "data" / "digits.safetensors"


class Residual(nn.Module):
    """x + MLP(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D, M), nn.Linear(M, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows in, rows out."""
        return x + self.down(torch.relu(self.up(x)))


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images))
    train, test = order[:1400], order[1400:]

    blocks = [Residual() for _ in range(BLOCKS)]
    model = nn.Sequential(nn.Linear(64, D), *blocks, nn.Linear(D, 10))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(60):
        for batch in train[torch.randperm(len(train))].split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        accuracy = (model(images[test]).argmax(dim=1) == labels[test]).float().mean()
    print(f"test accuracy {accuracy:.3f} on {len(test)} held-out digits")

    tensors = {}
    for index, block in enumerate(blocks):
        tensors |= {
            f"block{index}.w_up": block.up.weight,
            f"block{index}.b_up": block.up.bias,
            f"block{index}.w_down": block.down.weight,
            f"block{index}.b_down": block.down.bias,
        }
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, OUT, metadata={"activation": "relu", "norm": "none"})


if __name__ == "__main__":
    main()
