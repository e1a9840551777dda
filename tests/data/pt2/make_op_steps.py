"""Makes the archives of tests/data/pt2_ops.tar.xz: samples of PyTorch's own tests, op by op.

usage: python make_op_steps.py WEFT OUT_DIR   (needs torch 2.15 and expecttest;
                                              tar -cJf pt2_ops.tar.xz -C OUT_DIR pt2_ops)

Of each operator NAME of torch.testing's op_db: NAME.pt2, a step whose loss is the sum of the outputs
of several samples times weights; NAME_feeds.npz, its inputs; NAME_reference.npz, what PyTorch has
after it: parameters, from which their gradients are subtracted, and the outputs, states of the step. WEFT, the program, tells which
samples are read; the others are left out, and said.
"""

import contextlib
import os
import subprocess
import sys

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../../tools/pytorch"))
from export_step import export_function  # pylint: disable=wrong-import-position

SAMPLES, MAX_ELEMENTS = 4, 400
OPS = """
abs add addcdiv addcmul addmm atan baddbmm bmm cat chunk clamp clamp_max clamp_min cos cosh div eq
erf exp expand expand_as expm1 flatten floor ge gt le lerp linalg.vector_norm log log1p log2
log_softmax logical_and logical_not logical_or lt masked_fill matmul maximum mean minimum mm mul
narrow ne neg nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.binary_cross_entropy_with_logits
nn.functional.celu nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d
nn.functional.conv_transpose2d nn.functional.cross_entropy nn.functional.elu
nn.functional.embedding nn.functional.embedding_bag nn.functional.gelu nn.functional.glu
nn.functional.group_norm nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
nn.functional.huber_loss nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear
nn.functional.logsigmoid nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.mish
nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize nn.functional.pixel_shuffle
nn.functional.pixel_unshuffle nn.functional.prelu nn.functional.relu nn.functional.relu6
nn.functional.rms_norm nn.functional.scaled_dot_product_attention nn.functional.selu
nn.functional.silu nn.functional.smooth_l1_loss nn.functional.softplus nn.functional.softsign norm
permute pow reciprocal reshape rsqrt rsub select sigmoid sign sin sinh softmax split
split_with_sizes sqrt square squeeze stack sub sum t tan tanh transpose unbind unflatten unsqueeze
view where
""".split()


class Samples:
    """A step of samples: their differentiable tensors are its parameters, others its inputs."""

    def __init__(self, op, samples):
        self.op, self.calls = op, []
        self.params, self.batch, self.state = {}, {}, {}
        for i, sample in enumerate(samples):
            call = [self._take(i, [sample.input, *sample.args]), self._take(i, sample.kwargs)]
            outputs = self._outputs(call, {**self.params, **self.batch})
            if any(output.numel() == 0 for output in outputs):
                raise ValueError("an empty output")
            for j, output in enumerate(outputs):
                generator = torch.Generator().manual_seed(j)
                self.batch[f"weights_{i}_{j}"] = torch.randn(output.shape, generator=generator)
                self.state[f"output_{i}_{j}"] = torch.zeros(output.shape)
            self.calls.append((call, len(outputs)))
        if not self.params or not self.state:
            raise ValueError("no gradient")

    def _take(self, i, value):
        """The value with names in place of tensors."""
        if isinstance(value, dict):
            return {k: self._take(i, v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._take(i, v) for v in value)
        if not isinstance(value, torch.Tensor):
            return value
        differs = value.requires_grad and value.dtype == torch.float32
        tensors = self.params if differs else self.batch
        name = f"{'x' if differs else 'input'}_{i}_{len(tensors)}"
        tensors[name] = value.detach().contiguous().clone()
        return Name(name)

    def _outputs(self, call, tensors):
        args, kwargs = fill(call[0], tensors), fill(call[1], tensors)
        outputs = self.op(*args, **kwargs)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return [o for o in outputs if o.dtype == torch.float32]

    def step(self, params, state, batch):
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        loss, new_state = 0.0, {}
        for i, (call, _) in enumerate(self.calls):
            for j, output in enumerate(self._outputs(call, {**leaves, **batch})):
                loss = loss + (output * batch[f"weights_{i}_{j}"]).sum()
                new_state[f"output_{i}_{j}"] = output.detach().clone()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        return ({name: params[name] - g for name, g in zip(params, gradients)},
                {**state, **new_state}, loss.detach())


class Name(str):
    """Of a tensor, among arguments that may be strings."""


def fill(value, tensors):
    if isinstance(value, Name):
        return tensors[value]
    if isinstance(value, dict):
        return {k: fill(v, tensors) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(fill(v, tensors) for v in value)
    return value


def export(samples, path):
    def step(params, state, batch):  # make_fx counts the parameters of a function
        return samples.step(params, state, batch)

    with contextlib.redirect_stdout(None):
        export_function(step, samples.params, samples.state, samples.batch, path,
                        dynamic_batch=False)


def size_of(value):
    if isinstance(value, dict):
        return size_of(list(value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size_of, value))
    return value.numel() if isinstance(value, torch.Tensor) else 0


def write(info, weft, folder):
    torch.manual_seed(1)
    name = info.name.replace("nn.functional.", "").replace(".", "_")
    path = os.path.join(folder, name + ".pt2")
    feeds = path.replace(".pt2", "_feeds.npz")
    samples = []
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=True):
        size = size_of([sample.input, sample.args, sample.kwargs])
        if len(samples) < SAMPLES and 0 < size <= MAX_ELEMENTS:
            samples.append(sample)
    refused = {}

    def are_read(samples):
        try:
            step = Samples(info.op, samples)
            export(step, path)
        except Exception as error:  # pylint: disable=broad-except
            refused[f"torch: {str(error).splitlines()[0][:90]}"] = None
            return False
        np.savez(feeds, **{f"0/{k}": v.numpy() for k, v in step.batch.items()})
        run = subprocess.run([weft, "run", path, "--feeds", feeds], capture_output=True, text=True,
                             check=False)
        if run.returncode != 0:
            refused[run.stderr.split(".pt2: ")[-1].split(";")[0].strip()[:120]] = None
        return run.returncode == 0

    kept = samples if are_read(samples) else [s for s in samples if are_read([s])]
    for file in (path, feeds):
        if os.path.exists(file):
            os.remove(file)
    print(f"{info.name}: {len(kept)} samples; refused: {'; '.join(refused) or 'none'}", file=sys.stderr)
    if not kept:
        return
    samples = Samples(info.op, kept)
    export(samples, path)
    params, state, loss = samples.step(samples.params, samples.state, samples.batch)
    np.savez(feeds, **{f"0/{k}": v.numpy() for k, v in samples.batch.items()})
    np.savez(path.replace(".pt2", "_reference.npz"), loss=loss.numpy(),
             **{k: v.detach().numpy() for k, v in {**params, **state}.items()})


if __name__ == "__main__":
    out = os.path.join(sys.argv[2], "pt2_ops")
    os.makedirs(out, exist_ok=True)
    chosen = sys.argv[3:] or OPS
    done = set()
    for op_info in op_db:
        if op_info.name in chosen and op_info.name not in done and not op_info.variant_test_name:
            done.add(op_info.name)
            write(op_info, sys.argv[1], out)
    missing = set(chosen) - done
    if missing:
        sys.exit(f"op_db has no {', '.join(sorted(missing))}")
