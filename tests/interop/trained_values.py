"""What a step has trained, against what PyTorch trains."""
import numpy as np

# Gradients that are zero but for rounding, which Adam makes as large as others.
NOISE = ("qkv.bias", "in_proj_bias", "k.bias")


def compare(name, path, tolerance, noise=NOISE):
    """Of PATH_saved.npz against PATH_reference.npz, but for parameters whose names end with one of
    `noise`: how many tensors, and the largest difference."""
    reference, found = np.load(path + "_reference.npz"), np.load(path + "_saved.npz")
    count, worst = 0, 0.0
    for key in reference.files:
        if key == "losses" or key.endswith(noise):
            continue
        expected = reference[key].astype(float)
        difference = np.abs(found[key] - expected).max() / max(np.abs(expected).max(), 1e-30)
        assert difference <= tolerance, f"{name}: {key} differs by {difference:.2g}"
        count, worst = count + 1, max(worst, difference)
    return count, worst
