"""Makes the archives of tests/data/pt2_ranks.tar.xz: steps of ranks, written with torch.distributed.

usage: python make_ranks.py OUT_DIR  (needs torch 2.15; tar -cJf pt2_ranks.tar.xz -C OUT_DIR pt2_ranks)

step.pt2 is the step of one device. NAME_rankR.pt2 is the step of rank R of four, by a fake process
group: right ones, and some with the factors that scripts get wrong.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "../../../tools/pytorch"))
sys.path.insert(0, FOLDER)
from export_step import export_function  # pylint: disable=wrong-import-position
from make_steps import without_folder  # pylint: disable=wrong-import-position

RANKS = 4


def loss_of(params, batch):
    hidden = torch.tanh(batch["input"] @ params["w1"].t() + params["b1"])
    return F.mse_loss(hidden @ params["w2"].t(), batch["target"])


def gradients_of(params, batch, times=1):
    """Accumulated `times` times, of the same batch."""
    values = [value.detach().requires_grad_() for value in params.values()]
    loss = loss_of(dict(zip(params, values)), batch)
    gradients = torch.autograd.grad(loss, values)
    total = gradients
    for _ in range(times - 1):
        total = [t + g for t, g in zip(total, gradients)]
    return loss.detach(), list(total)


def all_reduced(gradients, operation="sum"):
    group = dist.group.WORLD
    return [functional.wait_tensor(functional.all_reduce(g, operation, group)) for g in gradients]


def in_one_bucket(gradients, operation):
    reduced = functional.all_reduce_coalesced(gradients, operation, dist.group.WORLD)
    return [functional.wait_tensor(g) for g in reduced]


def updated(params, gradients):
    return {name: value - 0.1 * g for (name, value), g in zip(params.items(), gradients)}


def make_step(reduce, times=1):
    def step(params, state, batch):
        loss, gradients = gradients_of(params, batch, times)
        return updated(params, reduce(gradients)), state, loss
    return step


def sharded(params, state, batch):
    """Each rank keeps a quarter of the rows of each parameter."""
    group = dist.group.WORLD
    whole = {name: functional.wait_tensor(functional.all_gather_tensor(value, 0, group))
             for name, value in params.items()}
    loss, gradients = gradients_of(whole, batch)
    parts = [functional.wait_tensor(functional.reduce_scatter_tensor(g, "avg", 0, group))
             for g in gradients]
    return updated(params, parts), state, loss


STEPS = {
    "sum_then_divide": make_step(lambda g: [x / RANKS for x in all_reduced(g)]),
    "divide_then_sum": make_step(lambda g: all_reduced([x / RANKS for x in g])),
    "bucket": make_step(lambda g: in_one_bucket(g, "avg")),
    "accumulated": make_step(lambda g: [x / (2 * RANKS) for x in all_reduced(g)], times=2),
    "never_divided": make_step(all_reduced),
    "divided_twice": make_step(lambda g: [x / RANKS for x in all_reduced(g, "avg")]),
    "accumulated_never_divided": make_step(all_reduced, times=2),
    "never_reduced": make_step(lambda g: g),
}


def main():
    out = os.path.join(sys.argv[1], "pt2_ranks")
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(1)
    params = {"w1": 0.3 * torch.randn(8, 6), "b1": torch.zeros(8), "w2": 0.3 * torch.randn(2, 8)}
    batch = {"input": torch.randn(4, 6), "target": torch.randn(4, 2)}

    def write(step, name, values=params, examples=batch):
        path = os.path.join(out, name + ".pt2")
        export_function(step, values, {}, examples, path)
        without_folder(path)

    write(make_step(lambda g: g), "step")
    for rank in range(2):  # two of the ranks show that they are alike
        dist.init_process_group("fake", rank=rank, world_size=RANKS, store=FakeStore())
        for name, step in STEPS.items():
            write(step, f"{name}_rank{rank}")
        parts = {"w1": params["w1"][2 * rank:2 * rank + 2].clone(), "b1": torch.zeros(2),
                 "w2": torch.ones(1, 8)}
        write(sharded, f"sharded_rank{rank}", parts, {**batch, "target": torch.randn(4, 4)})
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
