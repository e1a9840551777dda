"""Prints what an all-reduce of torch.distributed over Gloo takes, by size: allreduce_benchmark.cc.

usage: gloo_allreduce.py RANKS [rewrite]
"""

import multiprocessing
import os
import socket
import sys
import time

SIZES = [4 << 10, 256 << 10, 16 << 20]


def measure(rank, ranks, port, rewrites):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in SIZES:
        # Fewer calls than faster programs make in a batch.
        calls = 10 if size <= 4 << 10 else 5 if size <= 256 << 10 else 2
        batches = 100 if size <= 256 << 10 else 20
        tensor = torch.zeros(size // 4)
        best = float("inf")
        for _ in range(batches):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                if rewrites:
                    tensor.zero_()
                dist.all_reduce(tensor)
            best = min(best, (time.perf_counter() - begin) / calls)
        if rank == 0:
            print(size, "%.9f" % best, flush=True)
    dist.destroy_process_group()


def main():
    ranks = int(sys.argv[1])
    rewrites = len(sys.argv) > 2
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        multiprocessing.Process(target=measure, args=(rank, ranks, port, rewrites)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
