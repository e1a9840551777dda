"""Makes the archives of tests/data/pt2.tar.xz, and what PyTorch trains with them.

usage: python make_steps.py OUT_DIR        (needs torch 2.15; tar -cJf pt2.tar.xz -C OUT_DIR pt2)

Of each model NAME: NAME.pt2, its training step; NAME_feeds.npz, five batches under
"<step>/<variable>"; NAME_reference.npz, the losses of five steps of PyTorch, eager, with the
optimizer itself, and the parameters after them.
"""

import math
import os
import sys
import zipfile

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

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


class Units(nn.Module):
    """Functions of one value, some of which PyTorch writes as one operator."""

    def forward(self, x):
        return F.elu(x) + F.selu(x) + F.celu(x, 0.7) + F.mish(x)


class Waves(nn.Module):
    """Sequences: convolutions along them, one of groups and one transposed, and pools."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.conv2 = nn.Conv1d(4, 4, 3, padding="same", dilation=2, groups=2)
        self.up = nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1, output_padding=1)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        x = F.max_pool1d(F.mish(self.norm(self.conv1(x))), 2)
        x = F.avg_pool1d(F.celu(self.conv2(x), 0.7), 2)
        return self.fc(F.selu(self.up(x)).mean(2))


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


class Excitation(nn.Module):
    """As a block of MobileNet: grouped convolutions, squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, groups=2)
        self.norm, self.conv2 = nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1)
        self.squeeze, self.excite, self.fc = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1), nn.Linear(4, 4)

    def forward(self, x):
        x = F.relu6(self.norm(self.conv1(x)))
        weights = F.adaptive_avg_pool2d(x, 1)
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(weights))))
        return self.fc(F.hardswish(self.conv2(x)).mean((2, 3)))


class Bottleneck(nn.Module):
    """As ResNet-50: 1x1, 3x3 and 1x1 convolutions, and one beside them."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        sizes = [(4, 2, 1, 1), (2, 2, 3, 2), (2, 8, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, stride=s, padding=k // 2, bias=False)
                                   for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.beside = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))
        self.norm, self.fc = nn.BatchNorm2d(4), nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 3, 2, 1)
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            y = F.relu(y) if i < 2 else y
        return self.fc(F.adaptive_avg_pool2d(F.relu(y + self.beside(x)), 1).flatten(1))


class Bert(nn.Module):
    """Attention that leaves out padding, and pools the first word."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8, padding_idx=0)
        self.places = nn.Embedding(5, 8)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(8, eps=1e-12) for _ in range(3))
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.fc1, self.fc2, self.pool, self.fc = (nn.Linear(8, 16), nn.Linear(16, 8),
                                                  nn.Linear(8, 8), nn.Linear(8, 4))

    def forward(self, x):
        mask = (x != 0)[:, None, None, :]
        x = self.norm1(self.words(x) + self.places(torch.arange(x.shape[1])))
        n, length, size = x.shape
        q, k, v = (f(x).view(n, length, 2, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = self.attend(q, k, v, mask).transpose(1, 2).reshape(n, length, size)
        x = self.norm2(x + self.out(y))
        x = self.norm3(x + self.fc2(F.gelu(self.fc1(x))))
        return self.fc(torch.tanh(self.pool(x[:, 0])))

    def attend(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class BertByHand(Bert):
    def attend(self, q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return torch.softmax(scores.masked_fill(mask.logical_not(), -1e9), -1) @ v


class Gpt2(Gpt):
    """The embedding of words is the weight of the head."""

    def __init__(self):
        super().__init__()
        self.head.weight = self.words.weight


class Dlrm(nn.Module):
    """Bags of indices, dense features, and products of all pairs."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(9, 4, mode="sum"), nn.EmbeddingBag(9, 4)])
        self.bottom, self.top = nn.Linear(6, 4), nn.Linear(4 + 3, 1)

    def forward(self, dense, indices):
        dense = F.relu(self.bottom(dense))
        vectors = torch.stack([dense] + [bag(indices[:, i]) for i, bag in enumerate(self.bags)], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = torch.cat([products[:, 1, :1], products[:, 2, :2]], 1)
        return self.top(torch.cat([dense, pairs], 1))


class Scaled(nn.Module):
    """Divides by a norm of its own."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        x = x / (x.pow(2).mean(1, keepdim=True) + 1e-6).sqrt()
        return self.fc2(F.normalize(x, dim=1))


class Gan(nn.Module):
    """A generator and a discriminator; which of them trains, the optimizer says."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


class GeneratorStep(Gan):
    def forward(self, noise):
        return self.discriminator(self.generator(noise))


class DiscriminatorStep(Gan):
    def forward(self, noise, real):
        fake = self.generator(noise).detach()
        return torch.cat([self.discriminator(real), self.discriminator(fake)], 1)


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


def weighted_loss(weights):
    """The mean over examples, by which ranks take their part."""
    return lambda x, y: F.cross_entropy(x, y, weight=weights, reduction="none").mean()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def rmsprop(model):
    return torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9, centered=True)


def adagrad(model):
    return torch.optim.Adagrad(model.parameters(), lr=0.05, weight_decay=0.01)


def warm_up(optimizer):
    rates = torch.optim.lr_scheduler
    return rates.SequentialLR(optimizer, [rates.LambdaLR(optimizer, lambda step: step / 2),
                                          rates.CosineAnnealingLR(optimizer, 8)], [2])


def trains(part):
    return lambda model: torch.optim.Adam(getattr(model, part).parameters(), lr=0.01,
                                          betas=(0.5, 0.999))


BF16 = {"autocast": torch.bfloat16}
# Of each: the model, the optimizer, the loss, inputs and targets of a batch, options of the export.
MODELS = {
    "mlp_sgd": (lambda: mlp(1, nn.Tanh), sgd(weight_decay=0.01), F.mse_loss, normal(6), normal(1)),
    "mlp_momentum": (lambda: mlp(4, nn.ReLU), sgd(momentum=0.9), F.cross_entropy, normal(6),
                     classes),
    "mlp_adamw": (lambda: mlp(4, nn.Sigmoid), adamw, F.cross_entropy, normal(6), classes),
    "mlp_rmsprop": (lambda: mlp(1, nn.GELU), rmsprop, F.binary_cross_entropy_with_logits,
                    normal(6), probabilities),
    "mlp_adagrad": (lambda: mlp(1, nn.SiLU), adagrad, F.smooth_l1_loss, normal(6), normal(1)),
    "mlp_prelu": (lambda: mlp(4, nn.PReLU), adam, F.cross_entropy, normal(6), classes),
    "mlp_units": (lambda: mlp(4, Units), adam, weighted_loss(torch.tensor([1.0, 0.5, 2.0, 0.0])),
                  normal(6), classes),
    "mlp_smooth": (lambda: mlp(4, nn.LogSigmoid), adam, nn.CrossEntropyLoss(label_smoothing=0.1),
                   normal(6), classes),
    "mlp_clip": (lambda: mlp(4, nn.ReLU), adam, F.cross_entropy, normal(6), classes,
                 {"clip_norm": 0.1, "clip_value": 0.05}),
    "lenet_nesterov": (LeNet, sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
                       F.cross_entropy, normal(1, 12, 12), classes),
    "lenet_adam": (LeNet, adam, F.cross_entropy, normal(1, 12, 12), classes),
    "waves": (Waves, adam, F.cross_entropy, normal(2, 8), classes),
    "resnet": (ResNet, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes),
    "gpt": (Gpt, adamw, lm_loss, words(5), words(5), {"clip_norm": 1.0}),
    "encoder": (Encoder, adam, F.cross_entropy, words(5), classes),
    "lstm": (Lstm, adam, F.cross_entropy, words(4), classes),
    "vit": (Vit, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes),
    "unet": (Unet, adam, F.mse_loss, normal(1, 6, 6), normal(1, 6, 6)),
    "mlp_schedule": (lambda: mlp(4, nn.ReLU), adamw, F.cross_entropy, normal(6), classes,
                     {"scheduler": warm_up, "schedule_steps": 100}),
    "mlp_accumulate": (lambda: mlp(4, nn.ReLU), adamw, F.cross_entropy, normal(6), classes,
                       {"accumulate": 2, "clip_norm": 0.5}),
    "resnet_accumulate": (ResNet, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes,
                          {"accumulate": 2}),
    "lenet_bf16": (LeNet, sgd(momentum=0.9), F.cross_entropy, normal(1, 12, 12), classes, BF16),
    "resnet_bf16": (ResNet, sgd(momentum=0.9), F.cross_entropy, normal(2, 6, 6), classes, BF16),
    "gpt_bf16": (Gpt, sgd(momentum=0.9), lm_loss, words(5), words(5), BF16),
    "excitation": (Excitation, adam, F.cross_entropy, normal(2, 6, 6), classes),
    "bottleneck": (Bottleneck, sgd(momentum=0.9), F.cross_entropy, normal(2, 8, 8), classes),
    "bert": (Bert, adamw, F.cross_entropy, words(5), classes),
    "bert_by_hand": (BertByHand, adamw, F.cross_entropy, words(5), classes),
    "gpt2": (Gpt2, adamw, lm_loss, words(5), words(5), {"clip_norm": 1.0}),
    "dlrm": (Dlrm, adagrad, F.binary_cross_entropy_with_logits,
             lambda g: (normal(6)(g), words(2, 3)(g)), probabilities),
    "scaled": (Scaled, adam, F.cross_entropy, normal(6), classes),
    "gan_generator": (GeneratorStep, trains("generator"), F.binary_cross_entropy_with_logits,
                      normal(3), probabilities),
    "gan_discriminator": (DiscriminatorStep, trains("discriminator"),
                          F.binary_cross_entropy_with_logits,
                          lambda g: (normal(3)(g), normal(6)(g)),
                          lambda g: torch.tensor([[1.0, 0.0]]).repeat(BATCH, 1)),
    "vae": (Autoencoder, adam, vae_loss, normal(6), normal(6)),
}


def write(name, out):
    make, make_optimizer, loss, make_input, make_target, *options = MODELS[name]
    options = options[0] if options else {}
    autocast, parts = options.get("autocast"), options.get("accumulate", 1)
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = make()
    batches = [(make_input(generator), make_target(generator)) for _ in range(STEPS)]
    batches = [(x if isinstance(x, tuple) else (x,), y) for x, y in batches]
    optimizer = make_optimizer(model)
    scheduler = options["scheduler"](optimizer) if "scheduler" in options else None
    export_step(model, optimizer, loss, batches[0], os.path.join(out, name + ".pt2"),
                **{**options, "scheduler": scheduler})
    feeds, losses = {}, []
    for step, (x, y) in enumerate(batches):
        for i, value in enumerate(x):
            feeds[f"{step}/input_{i}" if len(x) > 1 else f"{step}/input"] = value.numpy()
        feeds[f"{step}/target"] = y.numpy()
        optimizer.zero_grad()
        total = 0.0
        for i in range(parts):
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                value = loss(model(*(value[i::parts] for value in x)), y[i::parts]) / parts
            value.backward()
            total += value.item()
        if "clip_norm" in options:
            nn.utils.clip_grad_norm_(model.parameters(), options["clip_norm"])
        if "clip_value" in options:
            nn.utils.clip_grad_value_(model.parameters(), options["clip_value"])
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(total)
    np.savez(os.path.join(out, name + "_feeds.npz"), **feeds)
    np.savez(os.path.join(out, name + "_reference.npz"), losses=np.float32(losses),
             **{n: v.detach().numpy() for n, v in [*model.named_parameters(), *model.named_buffers()]})


def by_hand(out):
    """Steps that are functions: an operator without an op, an update of torch.optim's alone, one by no
    gradient, one that draws, one whose new parameter a moving average reads, and one that averages in bf16."""
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

    def with_dropout(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = F.mse_loss(F.dropout(batch["x"] @ w, 0.5), batch["y"])
        gradient, = torch.autograd.grad(loss, w)
        return {"w": w.detach() - 0.1 * gradient}, state, loss.detach()

    def with_average(params, state, batch):
        w = params["w"].detach().requires_grad_()
        loss = F.mse_loss(batch["x"] @ w, batch["y"])
        gradient, = torch.autograd.grad(loss, w)
        new = 0.999 * (w.detach() - 0.1 * gradient)
        return {"w": new}, {"average": 0.99 * state["average"] + 0.01 * new}, loss.detach()

    def with_half(params, state, batch):
        new, state, loss = with_sign(params, state, batch)
        half = new["w"].bfloat16() + params["w"].bfloat16()
        mean = functional.all_reduce(half, "avg", dist.group.WORLD)
        return {"w": functional.wait_tensor(mean).float()}, state, loss

    x, y = torch.ones(4, 3), torch.ones(4, 2)
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    export_function(with_half, params, {}, {"x": x, "y": y}, os.path.join(out, "half.pt2"))
    export_function(with_average, params, {"average": torch.ones(3, 2)}, {"x": x, "y": y},
                    os.path.join(out, "average.pt2"))
    export_function(with_dropout, params, {}, {"x": x, "y": y}, os.path.join(out, "dropout.pt2"))
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
