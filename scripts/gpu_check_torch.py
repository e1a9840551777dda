"""Times training steps of PyTorch on a GPU, of the models that gpu_check.py times.

usage: gpu_check_torch.py resnet50|bert_base BATCH FILE

Adds a line of JSON to FILE for each precision: bf16 with torch.compile first, which is what counts.
"""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

STEPS, WARM_UP = 20, 5


class Block(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width

        def conv(a, b, size, step=1):
            return nn.Sequential(nn.Conv2d(a, b, size, step, size // 2, bias=False), nn.BatchNorm2d(b))

        self.main = nn.Sequential(conv(channels, width, 1), nn.ReLU(), conv(width, width, 3, stride),
                                  nn.ReLU(), conv(width, out, 1))
        self.side = conv(channels, out, 1, stride) if stride != 1 or channels != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.main(x) + self.side(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Block(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Bert(nn.Module):
    """Predicts the label of each token."""

    def __init__(self, tokens=30522, length=128, width=768):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, 0.1, "gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 12), nn.Linear(width, tokens)

    def forward(self, ids):
        places = self.places.weight[:ids.shape[1]]
        return self.out(self.layers(self.dropout(self.norm(self.tokens(ids) + places)))).flatten(0, 1)


def median_ms(name, batch, precision, is_compiled):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(1)
    if name == "resnet50":
        model = resnet50().cuda().to(memory_format=torch.channels_last)
        x = torch.rand(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(2, (batch,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=1e-4)
    else:
        model = Bert().cuda()
        x, y = torch.randint(2, (batch, 128), device="cuda"), torch.randint(2, (batch * 128,), device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    called = torch.compile(model) if is_compiled else model
    times = []
    for step in range(STEPS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(called(x), y)
        optimizer.zero_grad()
        loss.backward()
        if name == "bert_base":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch.cuda.synchronize()
        if step >= WARM_UP:
            times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def main():
    name, batch, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    for precision, is_compiled in (("bf16", True), ("bf16", False), ("tf32", False), ("fp32", False)):
        ms = median_ms(name, batch, precision, is_compiled)
        with open(path, "a", encoding="utf-8") as file:
            print(json.dumps({"precision": precision, "how": "compiled" if is_compiled else "eager",
                              "ms": ms}), file=file)


main()
