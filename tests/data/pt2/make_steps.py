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


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4, momentum=0.3)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(x + self.norm2(self.conv2(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.fc1, self.fc2 = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        n, length, size = x.shape
        parts = self.qkv(self.norm1(x)).split(size, 2)
        q, k, v = (p.view(n, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, size))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(9, 8), nn.Embedding(5, 8)
        self.blocks = nn.ModuleList([Block(8, 2), Block(8, 2)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 9, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Encoder(nn.Module):
    """As BERT: attention in both directions, padded words."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.layers(self.words(x)).mean(1))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(2, 8, 3, stride=3)
        self.first = nn.Parameter(0.1 * torch.randn(1, 1, 8))
        self.places = nn.Parameter(0.1 * torch.randn(1, 5, 8))
        self.block, self.norm, self.fc = Block(8, 2), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.fc(self.norm(self.block(x))[:, 0])


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
        self.norm = nn.GroupNorm(2, 6)
        self.up, self.conv3 = nn.ConvTranspose2d(6, 4, 2, stride=2), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.1)
        y = F.elu(self.norm(self.conv2(F.avg_pool2d(x, 2))))
        return F.hardtanh(self.conv3(torch.cat([x, self.up(y)], 1)), -3, 3)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.fc = nn.Linear(5, 4)

    def forward(self, x):
        return self.fc(self.lstm(self.words(x))[0][:, -1])


class Autoencoder(nn.Module):
    """As a VAE, but for the noise."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(3, 6)

    def forward(self, x):
        mean, variance = self.fc2(F.silu(self.fc1(x))).chunk(2, 1)
        return torch.cat([self.fc3(mean * torch.exp(0.5 * variance)), mean, variance], 1)


def lm_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def vae_loss(output, target):
    mean, variance = output[:, 6:9], output[:, 9:]
    kl = (mean ** 2 + variance.exp() - variance - 1).mean()
    return F.mse_loss(output[:, :6], target) + 0.1 * kl


def mlp(outputs, activation):
    return nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, outputs))


def adamw(model):
    decayed = [p for n, p in model.named_parameters() if n.endswith("weight")]
    others = [p for n, p in model.named_parameters() if not n.endswith("weight")]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                              {"params": others, "weight_decay": 0.0}], lr=0.01)


def sgd(**options):
    return lambda model: torch.optim.SGD(model.parameters(), lr=0.1, **options)


def words(*shape):
    return lambda generator: torch.randint(0, 9, (BATCH, *shape), generator=generator)


def normal(*shape):
    return lambda generator: torch.randn((BATCH, *shape), generator=generator)


def classes(generator):
    return torch.randint(0, 4, (BATCH,), generator=generator)


def probabilities(generator):
    return torch.rand((BATCH, 1), generator=generator)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def rmsprop(model):
    return torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9, centered=True)


def adagrad(model):
    return torch.optim.Adagrad(model.parameters(), lr=0.05, weight_decay=0.01)


# Of each: the model, the optimizer, the loss, inputs and targets of a batch, clipping.
MODELS = {
    "mlp_sgd": (lambda: mlp(1, nn.Tanh), sgd(weight_decay=0.01), F.mse_loss, normal(6), normal(1)),
    "mlp_momentum": (lambda: mlp(4, nn.ReLU), sgd(momentum=0.9), F.cross_entropy, normal(6),
                     classes),
    "mlp_adamw": (lambda: mlp(4, nn.Sigmoid), adamw, F.cross_entropy, normal(6), classes),
    "mlp_rmsprop": (lambda: mlp(1, nn.GELU), rmsprop, F.binary_cross_entropy_with_logits,
                    normal(6), probabilities),
    "mlp_adagrad": (lambda: mlp(1, nn.SiLU), adagrad, F.smooth_l1_loss, normal(6), normal(1)),
    "mlp_clip": (lambda: mlp(4, nn.ReLU), adam, F.cross_entropy, normal(6), classes,
                 {"clip_norm": 0.1, "clip_value": 0.05}),
    "lenet_nesterov": (LeNet, sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
                       F.cross_entropy, normal(1, 12, 12), classes),
    "lenet_adam": (LeNet, adam, F.cross_entropy, normal(1, 12, 12), classes),
    "resnet": (ResNet, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes),
    "gpt": (Gpt, adamw, lm_loss, words(5), words(5), {"clip_norm": 1.0}),
    "encoder": (Encoder, adam, F.cross_entropy, words(5), classes),
    "lstm": (Lstm, adam, F.cross_entropy, words(4), classes),
    "vit": (Vit, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes),
    "unet": (Unet, adam, F.mse_loss, normal(1, 6, 6), normal(1, 6, 6)),
    "vae": (Autoencoder, adam, vae_loss, normal(6), normal(6)),
}


def write(name, out):
    make, make_optimizer, loss, make_input, make_target, *clipping = MODELS[name]
    clipping = clipping[0] if clipping else {}
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = make()
    batches = [(make_input(generator), make_target(generator)) for _ in range(STEPS)]
    optimizer = make_optimizer(model)
    export_step(model, optimizer, loss, batches[0], os.path.join(out, name + ".pt2"), **clipping)
    feeds, losses = {}, []
    for step, (x, y) in enumerate(batches):
        feeds[f"{step}/input"], feeds[f"{step}/target"] = x.numpy(), y.numpy()
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        if clipping:
            nn.utils.clip_grad_norm_(model.parameters(), clipping["clip_norm"])
        if "clip_value" in clipping:
            nn.utils.clip_grad_value_(model.parameters(), clipping["clip_value"])
        optimizer.step()
        losses.append(value.item())
    np.savez(os.path.join(out, name + "_feeds.npz"), **feeds)
    np.savez(os.path.join(out, name + "_reference.npz"), losses=np.float32(losses),
             **{n: v.numpy() for n, v in model.state_dict().items()})


def by_hand(out):
    """Steps that are functions: an operator without an op, an update of torch.optim's alone, and one
    by no gradient."""
    params = {"w": torch.ones(3, 2)}

    def with_operator(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = torch.lgamma(batch["x"] @ w).sum()
        gradient, = torch.autograd.grad(loss, w)
        return {"w": w.detach() - 0.1 * gradient}, state, loss.detach()

    def with_sign(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = F.mse_loss(batch["x"] @ w, batch["y"])
        gradient, = torch.autograd.grad(loss, w)
        return {"w": w.detach() - 0.1 * gradient.sign()}, state, loss.detach()

    def with_drift(params, state, batch):
        new, state, loss = with_sign(params, state, batch)
        return {**new, "v": 0.9 * params["v"] + 0.1 * params["w"]}, state, loss

    x, y = torch.ones(4, 3), torch.ones(4, 2)
    export_function(with_operator, params, {}, {"x": x}, os.path.join(out, "operator.pt2"))
    export_function(with_sign, params, {}, {"x": x, "y": y}, os.path.join(out, "sign.pt2"))
    export_function(with_drift, {**params, "v": torch.ones(3, 2)}, {}, {"x": x, "y": y},
                    os.path.join(out, "drift.pt2"))


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
    by_hand(folder)
    for file in sorted(os.listdir(folder)):
        if file.endswith(".pt2"):
            without_folder(os.path.join(folder, file))
