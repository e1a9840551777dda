"""Rewrites training steps for two ranks, and trains what Weft has written in two processes of PyTorch.

usage: PYTHON ranks_in_pytorch.py MAKE_STEPS_FOLDER EXPORTER_FOLDER TRANSPILE
       PYTHON ranks_in_pytorch.py RANK NRANKS PORT STEP.pt2 FEEDS.npz SAVED.npz    (one rank)

PYTHON has torch. Parameters after five steps are compared with what one process trains with the
whole batch, within 3e-5 of the largest.
"""
import os
import socket
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist

import trained_values

TOLERANCE = 3e-5  # Adam enlarges the rounding of sums in another order
NOISE = ("qkv.bias", "in_proj_bias")  # gradients that are zero but for rounding
MODES = (["--mode", "grad_allreduce"], ["--mode", "grad_allreduce", "--buckets", "none"],
         ["--mode", "megengine", "--reduce_method", "mean"])
# Of SGD, means of parameters are what means of gradients make.
MEANS_OF_PARAMETERS = (["--mode", "local_sgd", "--k_steps", "1"], ["--mode", "singa_partial"])
MODELS = ("mlp_sgd", "mlp_adamw", "mlp_clip", "lenet_nesterov", "gpt", "encoder", "unet")


def train(rank, nranks, port, step, feeds, saved):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=nranks)
    module = torch.export.load(step).module()
    arrays = np.load(feeds)
    for i in range(len(arrays.files) // 2):
        batch = [np.array_split(arrays[f"{i}/{name}"], nranks)[rank] for name in ("input", "target")]
        module(*map(torch.from_numpy, batch))
    if rank == 0:
        np.savez(saved, **{name: value.numpy() for name, value in module.state_dict().items()})
    dist.destroy_process_group()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def compare(name, folder, transpile, mode):
    path = os.path.join(folder, name)
    subprocess.run([transpile, *mode, "--nranks", "2", path + ".pt2", path + "_out.pt2"],
                   check=True, stderr=subprocess.DEVNULL)
    port, saved = str(free_port()), path + "_saved.npz"
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), "2", port, path + "_out.pt2",
                               path + "_feeds.npz", saved]) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0], name
    count, worst = trained_values.compare(name, path, TOLERANCE, NOISE)
    print(f"{name} {' '.join(mode[1:])}: {count} tensors after 5 steps of 2 ranks within {worst:.1g}")


def main():
    if len(sys.argv) > 4:
        train(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
        return
    sys.path[:0] = sys.argv[1:3]
    import make_steps  # pylint: disable=import-outside-toplevel,import-error
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            make_steps.write(name, folder)
        for name in MODELS:
            compare(name, folder, sys.argv[3], MODES[0])
        for mode in MODES[1:]:
            compare("mlp_adamw", folder, sys.argv[3], mode)
        for mode in MEANS_OF_PARAMETERS:
            compare("mlp_sgd", folder, sys.argv[3], mode)


if __name__ == "__main__":
    main()
