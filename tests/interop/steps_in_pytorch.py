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

TOLERANCE = 1e-5
# Gradients that are zero but for rounding, which Adam makes as large as others.
NOISE = ("qkv.bias", "in_proj_bias")


def compare(name, folder, weft):
    path = os.path.join(folder, name)
    subprocess.run([weft, "run", path + ".pt2", "--feeds", path + "_feeds.npz", "--save",
                    path + "_saved.npz", "--quiet"], check=True, stderr=subprocess.DEVNULL)
    reference, found = np.load(path + "_reference.npz"), np.load(path + "_saved.npz")
    worst = 0.0
    for key in reference.files:
        if key == "losses" or key.endswith(NOISE):
            continue
        expected = reference[key].astype(float)
        difference = np.abs(found[key] - expected).max() / max(np.abs(expected).max(), 1e-30)
        assert difference <= TOLERANCE, f"{name}: {key} differs by {difference:.2g}"
        worst = max(worst, difference)
    print(f"{name}: {len(reference.files) - 1} tensors after 5 steps within {worst:.1g}")


def main():
    sys.path[:0] = sys.argv[1:3]
    import make_steps  # pylint: disable=import-outside-toplevel,import-error
    with tempfile.TemporaryDirectory() as folder:
        for name in make_steps.MODELS:
            make_steps.write(name, folder)
            compare(name, folder, sys.argv[3])
        make_steps.by_hand(folder)


if __name__ == "__main__":
    main()
