"""Exports training steps in PyTorch, and trains them here as PyTorch does.

usage: PYTHON steps_in_pytorch.py MAKE_STEPS_FOLDER EXPORTER_FOLDER WEFT

PYTHON has torch. Exports all models of tests/data/pt2/make_steps.py anew, runs each by `weft run`, and
compares losses and parameters with PyTorch's, within 1e-5 of the largest.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

import trained_values

TOLERANCE, BF16_TOLERANCE = 1e-5, 0.06


def compare(name, folder, weft):
    tolerance = BF16_TOLERANCE if name.endswith("bf16") else TOLERANCE
    path = os.path.join(folder, name)
    subprocess.run([weft, "run", path + ".pt2", "--feeds", path + "_feeds.npz", "--save",
                    path + "_saved.npz", "--quiet"], check=True, stderr=subprocess.DEVNULL)
    count, worst = trained_values.compare(name, path, tolerance)
    print(f"{name}: {count} tensors after 5 steps within {worst:.1g}")


def load(name, folder, make_steps, load_trained):
    """That model and optimizer take what weft run has saved, and train on with it."""
    make, make_optimizer = make_steps.MODELS[name][:2]
    model = make()
    optimizer = make_optimizer(model)
    saved = np.load(os.path.join(folder, name + "_saved.npz"))
    load_trained(os.path.join(folder, name + "_saved.npz"), model, optimizer)
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        assert np.array_equal(value.detach().numpy(), saved[key]), f"{name}: {key}"
    for key, value in model.named_parameters():
        for state, tensor in optimizer.state[value].items():
            assert np.array_equal(tensor.numpy(), saved[f"optimizer.{key}.{state}"]), key
        value.grad = value.detach().clone()
    optimizer.step()
    print(f"{name}: PyTorch takes what was saved")


def main():
    sys.path[:0] = sys.argv[1:3]
    # pylint: disable=import-outside-toplevel,import-error
    import make_steps
    from export_step import load_trained
    with tempfile.TemporaryDirectory() as folder:
        for name in make_steps.MODELS:
            make_steps.write(name, folder)
            compare(name, folder, sys.argv[3])
            if name in ("mlp_adamw", "resnet", "gpt2"):
                load(name, folder, make_steps, load_trained)
        make_steps.by_hand(folder)


if __name__ == "__main__":
    main()
