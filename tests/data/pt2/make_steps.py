"""Makes the archives of tests/data/pt2.tar.xz, and what PyTorch trains with them.

usage: python make_steps.py OUT_DIR        (needs torch 2.15; tar -cJf pt2.tar.xz -C OUT_DIR pt2)

Of each model NAME: NAME.pt2, its training step; NAME_feeds.npz, five batches under
"<step>/<variable>"; NAME_reference.npz, the losses of five steps of PyTorch, eager, with the
optimizer itself, and the parameters after them.
"""

import os
import sys
import zipfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../../tools/pytorch"))
from export_step import export_function, export_step  # pylint: disable=wrong-import-position

STEPS, BATCH = 5, 8


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 3, padding=1)
        self.conv2 = nn.Conv2d(3, 4, 3)
        self.fc1 = nn.Linear(16, 8)
        self.fc2 = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def mlp(outputs, activation):
    return nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, outputs))


def adamw(model):
    decayed = [p for n, p in model.named_parameters() if n.endswith("weight")]
    others = [p for n, p in model.named_parameters() if not n.endswith("weight")]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                              {"params": others, "weight_decay": 0.0}], lr=0.01)


def sgd(**options):
    return lambda model: torch.optim.SGD(model.parameters(), lr=0.1, **options)


MODELS = {
    "mlp_sgd": (lambda: mlp(1, nn.Tanh), sgd(weight_decay=0.01), F.mse_loss, (6,)),
    "mlp_momentum": (lambda: mlp(4, nn.ReLU), sgd(momentum=0.9), F.cross_entropy, (6,)),
    "mlp_adamw": (lambda: mlp(4, nn.Sigmoid), adamw, F.cross_entropy, (6,)),
    "lenet_nesterov": (LeNet, sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
                       F.cross_entropy, (1, 12, 12)),
    "lenet_adam": (LeNet, lambda m: torch.optim.Adam(m.parameters(), lr=0.01), F.cross_entropy,
                   (1, 12, 12)),
}


def batch(loss, shape, generator):
    x = torch.randn((BATCH, *shape), generator=generator)
    if loss is F.mse_loss:
        return x, torch.randn((BATCH, 1), generator=generator)
    return x, torch.randint(0, 4, (BATCH,), generator=generator)


def write(name, out):
    make, make_optimizer, loss, shape = MODELS[name]
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = make()
    batches = [batch(loss, shape, generator) for _ in range(STEPS)]
    optimizer = make_optimizer(model)
    export_step(model, optimizer, loss, batches[0], os.path.join(out, name + ".pt2"))
    feeds, losses = {}, []
    for step, (x, y) in enumerate(batches):
        feeds[f"{step}/input"], feeds[f"{step}/target"] = x.numpy(), y.numpy()
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    np.savez(os.path.join(out, name + "_feeds.npz"), **feeds)
    np.savez(os.path.join(out, name + "_reference.npz"), losses=np.float32(losses),
             **{n: v.numpy() for n, v in model.state_dict().items()})


def refused(out):
    """Steps by hand: an operator that has no op, and an update that is that of no optimizer."""
    params = {"w": torch.ones(3, 2)}

    def with_operator(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = torch.special.erf(batch["x"] @ w).sum()
        gradient, = torch.autograd.grad(loss, w)
        return {"w": w.detach() - 0.1 * gradient}, state, loss.detach()

    def with_update(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = F.mse_loss(batch["x"] @ w, batch["y"])
        gradient, = torch.autograd.grad(loss, w)
        return {"w": w.detach() - 0.1 * gradient.sign()}, state, loss.detach()

    x, y = torch.ones(4, 3), torch.ones(4, 2)
    export_function(with_operator, params, {}, {"x": x}, os.path.join(out, "operator.pt2"))
    export_function(with_update, params, {}, {"x": x, "y": y}, os.path.join(out, "update.pt2"))


def without_folder(path):
    """Stacks name this file without the folder that it lies in."""
    folder = os.path.dirname(os.path.abspath(__file__)) + "/"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data.replace(folder.encode(), b""))


if __name__ == "__main__":
    folder = os.path.join(sys.argv[1], "pt2")
    os.makedirs(folder, exist_ok=True)
    for model_name in MODELS:
        write(model_name, folder)
    refused(folder)
    for file in sorted(os.listdir(folder)):
        if file.endswith(".pt2"):
            without_folder(os.path.join(folder, file))
