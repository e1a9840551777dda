"""Prints the milliseconds of a fused optimizer of PyTorch on one thread: update_benchmark.cc.

usage: update_pytorch.py adam|adamw|momentum ELEMENTS CALLS
"""

import sys
import time

import torch


def main():
    name, elements, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    param = torch.nn.Parameter(torch.ones(elements))
    param.grad = torch.full((elements,), 0.5)
    if name == "adam":
        optimizer = torch.optim.Adam([param], fused=True)
    elif name == "adamw":
        optimizer = torch.optim.AdamW([param], fused=True)
    else:
        optimizer = torch.optim.SGD([param], lr=1e-3, momentum=0.9, fused=True)
    optimizer.step()  # makes the state
    best = float("inf")
    for _ in range(calls):
        begin = time.perf_counter()
        optimizer.step()
        best = min(best, time.perf_counter() - begin)
    print("%.6f" % (best * 1e3))


main()
