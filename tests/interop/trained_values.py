"""What a step has trained, against what PyTorch trains."""
import numpy as np

# Gradients that are zero but for rounding, which Adam makes as large as others.
NOISE = ("qkv.bias", "in_proj_bias", "k.bias")


def compare(name, path, tolerance):
    """Of PATH_saved.npz against PATH_reference.npz: how many tensors, and the largest difference."""
    reference, found = np.load(path + "_reference.npz"), np.load(path + "_saved.npz")
    worst = 0.0
    for key in reference.files:
        if key == "losses" or key.endswith(NOISE):
            continue
        expected = reference[key].astype(float)
        difference = np.abs(found[key] - expected).max() / max(np.abs(expected).max(), 1e-30)
        assert difference <= tolerance, f"{name}: {key} differs by {difference:.2g}"
        worst = max(worst, difference)
    return len(reference.files) - 1, worst
