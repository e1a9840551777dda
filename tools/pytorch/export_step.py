"""Writes a training step of PyTorch as a file that Weft reads (docs/pytorch.md).

    from export_step import export_step
    export_step(model, optimizer, torch.nn.functional.cross_entropy, (images, labels), "step.pt2")

Needs torch 2.15. The file is torch.export's: its nodes are the forward pass, the backward pass and
the updates; its parameters and buffers are the model's, by the names of model.state_dict(), and the
optimizer's, as optimizer.PARAMETER.KEY.
"""

import copy
import json
import os
import re
import warnings
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch._decomp import get_decompositions
from torch.fx.experimental import _config as shapes
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

aten = torch.ops.aten
# Operators that are written as what PyTorch composes them of.
COMPOSED = (aten._prelu_kernel, aten._prelu_kernel_backward, aten.baddbmm, aten.glu,
            aten.glu_backward, aten.pixel_shuffle, aten.pixel_unshuffle)


def _convolution(input, weight, bias, stride, padding, dilation, is_transposed, added, groups):
    """A convolution of sequences as one of images of height 1."""
    if input.dim() != 3:
        return NotImplemented
    images = aten.convolution(input.unsqueeze(2), weight.unsqueeze(2), bias, [1, *stride],
                              [0, *padding], [1, *dilation], is_transposed, [0, *added], groups)
    return images.squeeze(2)


def _convolution_backward(gradient, input, weight, bias_sizes, stride, padding, dilation,
                          is_transposed, added, groups, mask):
    if input.dim() != 3:
        return NotImplemented
    of_input, of_weight, of_bias = aten.convolution_backward(
        gradient.unsqueeze(2), input.unsqueeze(2), weight.unsqueeze(2), bias_sizes, [1, *stride],
        [0, *padding], [1, *dilation], is_transposed, [0, *added], groups, mask)
    return (None if of_input is None else of_input.squeeze(2),
            None if of_weight is None else of_weight.squeeze(2), of_bias)


def _decompositions():
    return {**get_decompositions(COMPOSED), aten.convolution.default: _convolution,
            aten.convolution_backward.default: _convolution_backward}


class CannotExport(Exception):
    """Says what cannot be written, and what to do instead."""


def export_step(model, optimizer, loss, example, path, dynamic_batch=True, clip_norm=None,
                clip_value=None, accumulate=1, autocast=None, scheduler=None,
                schedule_steps=10000):
    """Writes one step of training: loss(model(input), target), its gradients, and the updates.

    example: (input, target), of the shapes and types of a batch; input may be a tuple. The file
    begins with the parameters of the model, and the state of the optimizer, as they are.
    optimizer: torch.optim's SGD, Adam, AdamW, RMSprop or Adagrad, with any groups of parameters.
    dynamic_batch: the first axis of all inputs is the batch, of any size.
    clip_norm, clip_value: gradients are clipped, as torch.nn.utils.clip_grad_norm_ and
    clip_grad_value_ do, by the norm of all of them together before each value.
    accumulate: the batch is that many micro-batches, and the loss the mean of theirs. Micro-batch i
    has the examples i, i + accumulate, ..., so that ranks can share out the batch.
    autocast: torch.bfloat16 runs model and loss under torch.autocast.
    scheduler: of torch.optim.lr_scheduler, which steps after each step of the optimizer: the file
    has the rates of the next schedule_steps steps, and weft run follows them.
    """
    inputs, target = example
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    names = ["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]
    batch = {**dict(zip(names, inputs)), "target": target}
    schedules = _schedules_of(optimizer, scheduler, schedule_steps) if scheduler else {}
    updates, state = _updates_of(model, optimizer, bool(scheduler))
    for name, buffer in model.named_buffers():
        state[name] = buffer.detach()
    params = {name: p.detach() for name, p in model.named_parameters()}
    buffers = [name for name, _ in model.named_buffers()]

    def step(params, state, batch):
        values = {k: v.detach() for k, v in params.items()}
        for name in updates:
            values[name].requires_grad_()
        held = {name: state[name].clone() for name in buffers}
        tensors = {**values, **held}  # then with the tensors that the model assigns
        losses = []
        for part in _micro_batches(batch, accumulate):
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                output = torch.func.functional_call(model, tensors, tuple(part[n] for n in names))
                losses.append(loss(output, part["target"]))
        value = losses[0] if accumulate == 1 else sum(losses[1:], losses[0]) / accumulate
        gradients = torch.autograd.grad(value, [values[n] for n in updates], allow_unused=True)
        new_params, new_state = dict(params), dict(state)
        for name, gradient in zip(updates, gradients):
            if gradient is None:
                raise CannotExport(
                    f"parameter {name}: the loss does not depend on it; set requires_grad to False "
                    "and leave it out of the optimizer")
        for name, gradient in zip(updates, _clipped(gradients, clip_norm, clip_value)):
            with torch.no_grad():
                new_params[name], of_param = updates[name](values[name].detach(), gradient, state)
            new_state.update(of_param)
        # Normalizations change running statistics where the version of a tensor does not show it.
        new_state.update((name, tensors[name].detach()) for name in buffers)
        return new_params, new_state, value.detach()

    export_function(step, params, state, batch, path, dynamic_batch, accumulate, schedules)


def _micro_batches(batch, count):
    if count == 1:
        return [batch]
    parts = {k: v.unflatten(0, (-1, count)) for k, v in batch.items()}
    return [{k: v.select(1, i) for k, v in parts.items()} for i in range(count)]


def _clipped(gradients, norm, value):
    if norm is not None:
        total = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
        factor = torch.clamp(norm / (total + 1e-6), max=1.0)
        gradients = [g * factor for g in gradients]
    if value is not None:
        gradients = [g.clamp(-value, value) for g in gradients]
    return gradients


def export_function(step, params, state, batch, path, dynamic_batch=True, multiple=1,
                    schedules=None):
    """Writes step(params, state, batch) -> (params, state, loss), of dictionaries of tensors.

    step computes gradients itself (torch.autograd.grad), and returns new values under the names of
    the old ones. It may use what make_fx can trace: no data-dependent control flow.
    """
    for name, value in [*params.items(), *state.items(), *batch.items()]:
        if not isinstance(value, torch.Tensor):
            raise CannotExport(f"{name}: expected a tensor, found {type(value).__name__}")
        if value.device.type != "cpu":
            raise CannotExport(f"{name}: is on {value.device}; move the model and the example to "
                               "the CPU before the export: Weft chooses the device of a run")
    if not all(name.isidentifier() for name in batch):
        raise CannotExport(f"the names {', '.join(batch)}: expected Python identifiers")
    for name in (*params, *state):
        if name in {*batch, "loss"}:
            raise CannotExport(f"{name}: is a parameter or a state, and an input or the loss "
                               "of the step; rename it")
    sizes = {v.shape[0] if v.dim() else None for v in batch.values()}
    if dynamic_batch and (len(sizes) != 1 or sizes & {None, 0, 1}):
        raise CannotExport("dynamic_batch: expected inputs with the same first axis, of at least 2 "
                           "examples; or pass dynamic_batch=False")
    with shapes.patch(use_duck_shape=False):  # an axis as long as the batch is not the batch
        graph = make_fx(step, tracing_mode="symbolic" if dynamic_batch else "fake",
                        record_stack_traces=True, _allow_non_fake_inputs=True)(params, state, batch)
    if dynamic_batch:
        _check_any_size(graph, batch, multiple)
    constants = {n.target: getattr(graph, n.target) for n in graph.graph.nodes if n.op == "get_attr"}
    module = _step_class(batch)(graph, params, state, constants)
    axes = {0: torch.export.Dim("batch") if multiple == 1 else
            multiple * torch.export.Dim("micro_batch")} if dynamic_batch else None
    program = torch.export.export(module, tuple(batch.values()),
                                  dynamic_shapes={name: axes for name in batch})
    program = program.run_decompositions(_decompositions())
    for node in program.graph.nodes:
        node.meta.pop("from_node", None)  # half of the file
        stack = _user_frames(node.meta.pop("stack_trace", None) or "")
        if stack:
            node.meta["stack_trace"] = stack
    rates = json.dumps([{"rate": rate, "schedule": text}
                        for rate, text in (schedules or {}).items()])
    extra_files = {"lr_schedules.json": rates} if schedules else None
    torch.export.save(program, path, extra_files=extra_files)
    nodes = sum(n.op == "call_function" for n in program.graph.nodes)
    kept = [n for n in (*params, *state) if n not in _written(program)]
    print(f"{path}: {nodes} nodes, {len(params)} parameters, {len(state)} states"
          + (f", of which {len(kept)} stay as they are" if kept else "")
          + (f", {len(constants)} constants" if constants else ""))
    for name, value in batch.items():
        sizes = [str(size) for size in value.shape]
        batch_size = "batch" if multiple == 1 else f"a multiple of {multiple}"
        sizes[:1] = [batch_size] if dynamic_batch else sizes[:1]
        print(f"  feed {name}: {str(value.dtype)[6:]}[{', '.join(sizes)}]")


def load_trained(path, model, optimizer=None):
    """Gives the model, and the optimizer, what weft run --save PATH.npz has saved of its step."""
    arrays = np.load(path)
    names = {id(value): name
             for name, value in [*model.named_parameters(), *model.named_buffers()]}
    # Tied weights are saved under the first of their names.
    model.load_state_dict({name: torch.from_numpy(arrays[names[id(value)]])
                           for name, value in model.state_dict(keep_vars=True).items()})
    for group in optimizer.param_groups if optimizer else []:
        for param in group["params"]:
            prefix = f"optimizer.{names[id(param)]}."
            optimizer.state[param].update(
                (key[len(prefix):], torch.from_numpy(arrays[key]))
                for key in arrays.files if key.startswith(prefix))


def _check_any_size(graph, batch, multiple):
    """That no number in the step is the size of the batch; notes what branches may depend on it."""
    conditions, guards = set(), [guard.expr for guard in graph.shape_env.guards]
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"][-len(batch):]
    for node, value in zip(inputs, batch.values()):
        size = node.meta["val"].shape[0]
        symbol = size.node.expr if isinstance(size, torch.SymInt) else None
        if symbol is None or not symbol.is_symbol:
            raise CannotExport(f"the step depends on the size of the batch, {value.shape[0]}; "
                               "take means by an operator, such as x.mean(), or pass "
                               "dynamic_batch=False")
        # Not what holds for the batches of any number of examples: the cut into micro-batches.
        conditions.update(str(e) for e in map(graph.shape_env.simplify, guards)
                          if e.free_symbols == {symbol}
                          and not all(e.subs(symbol, multiple * n) for n in (2, 3, 15, 16, 9999)))
    if conditions:  # convolutions have some of their own, to choose among equal kernels
        print(f"note: traced where {' and '.join(sorted(conditions))}, of a batch of "
              f"{value.shape[0]}; if the script branches on it, pass dynamic_batch=False")


class _Step(nn.Module):
    """Runs a graph of a step, and keeps its parameters, state and constants."""

    def __init__(self, graph, params, state, constants):
        super().__init__()
        self._graph = [graph]  # no submodule
        self._names = [list(params), list(state)]
        self._constants = {target: f"constant.{i}" for i, target in enumerate(constants)}
        for name, value in params.items():
            self._put(name, lambda m, k, v=value: m.register_parameter(
                k, nn.Parameter(v.detach().clone(), requires_grad=False)))
        of_constants = {self._constants[target]: value for target, value in constants.items()}
        for name, value in {**state, **of_constants}.items():
            self._put(name, lambda m, k, v=value: m.register_buffer(k, v.detach().clone()))

    def _put(self, name, register):
        *path, last = name.split(".")
        module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        register(module, last)

    def _get(self, name):
        value = self
        for part in name.split("."):
            value = getattr(value, part)
        return value

    def run(self, batch):
        old = [{name: self._get(name) for name in names} for names in self._names]
        with torch.fx.traceback.preserve_node_meta():
            constants = {target: self._get(name) for target, name in self._constants.items()}
            *new, loss = _Run(self._graph[0], constants).run(*old, batch)
        # A new value may be another old one: none changes before all are there.
        changed = [(before[name], name, value.clone()) for before, after in zip(old, new)
                   for name, value in after.items() if value is not before[name]]
        for tensor, name, value in changed:
            if tensor.shape != value.shape or tensor.dtype != value.dtype:
                raise CannotExport(f"{name}: becomes {value.dtype}{list(value.shape)} in the step, "
                                   f"and was {tensor.dtype}{list(tensor.shape)}")
            tensor.copy_(value)
        return loss


class _Run(torch.fx.Interpreter):
    """Of a graph whose constants are elsewhere."""

    def __init__(self, graph, constants):
        super().__init__(graph)
        self._constants = constants

    def get_attr(self, target, args, kwargs):
        return self._constants[target]


def _user_frames(stack):
    """Of a formatted stack, the frames outside of torch and of this file."""
    frames = re.split(r"^(?=\s*File )", stack, flags=re.MULTILINE)
    ours = (os.path.dirname(torch.__file__), "torch/", __file__, "<")
    return "".join(f for f in frames
                   if not f.strip().startswith(tuple(f'File "{path}' for path in ours))).strip()


def _step_class(names):
    """A module's inputs have the names of the parameters of its method."""
    scope = {"_Step": _Step}
    exec("class Step(_Step):\n"  # pylint: disable=exec-used
         f"  def forward(self, {', '.join(names)}):\n"
         f"    return self.run(dict({', '.join(f'{n}={n}' for n in names)}))", scope)
    return scope["Step"]


def _written(program):
    signature = program.graph_signature
    return {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}


# --- Optimizers ---------------------------------------------------------------------------------


def _schedules_of(optimizer, scheduler, steps):
    """By the rate that the file has: a table of rates, as weft run --lr_schedule takes it. Leaves
    scheduler and optimizer as they are."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise CannotExport("scheduler ReduceLROnPlateau: depends on the loss; export without it, "
                           "and run with --lr_schedule reduce_on_plateau{...}")
    if scheduler.optimizer is not optimizer:
        raise CannotExport("the scheduler belongs to another optimizer")
    if type(optimizer) is torch.optim.RMSprop:
        raise CannotExport("scheduler of RMSprop: its rate is a number in the program; expected "
                           "another optimizer, or no scheduler")
    groups = optimizer.param_groups
    others = [{k: v for k, v in group.items() if k != "params"} for group in groups]
    before, rates = copy.deepcopy(scheduler.state_dict()), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of steps without the optimizer's
        for _ in range(steps):
            rates.append([group["lr"] for group in groups])
            try:
                scheduler.step()
            except ValueError:  # of OneCycleLR: there are no more
                break
    changed = {k for group, old in zip(groups, others) for k in old if group[k] != old[k]} - {"lr"}
    for group, old in zip(groups, others):
        group.update(old)
    scheduler.load_state_dict(before)
    if changed:
        raise CannotExport(f"scheduler {type(scheduler).__name__}: changes {', '.join(changed)}; "
                           "expected one that changes rates alone, such as cycle_momentum=False")
    schedules = {}
    for group, values in zip(groups, zip(*rates)):
        text = f"table{{values={':'.join(map(str, values))}}}"
        if schedules.setdefault(group["initial_lr"], text) != text:
            raise CannotExport(f"two groups of parameters begin with rate {group['initial_lr']}, and "
                               "have other schedules; let them begin with rates of their own")
    return schedules


def _updates_of(model, optimizer, is_scheduled):
    """By parameter: a function of value, gradient and states to the new value and states; and the
    states before the first step."""
    kinds = {torch.optim.SGD: _sgd, torch.optim.Adam: _adam, torch.optim.AdamW: _adam,
             torch.optim.RMSprop: _rmsprop, torch.optim.Adagrad: _adagrad}
    make = kinds.get(type(optimizer))
    if make is None:
        raise CannotExport(
            f"optimizer {type(optimizer).__name__}: expected torch.optim's SGD, Adam, AdamW, "
            "RMSprop or Adagrad; write the step as a function, for export_function")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise CannotExport("the optimizer has hooks on its step, which a file cannot have")
    names = {id(p): name for name, p in model.named_parameters()}
    updates, state = {}, {}
    for group in optimizer.param_groups:
        if is_scheduled:  # a warm-up may begin with 0
            group = {**group, "lr": group["initial_lr"]}
        for option in ("maximize", "amsgrad", "dampening", "lr_decay"):
            if group.get(option):
                raise CannotExport(f"optimizer option {option}={group[option]}: expected none; "
                                   "write the step as a function, for export_function")
        if isinstance(group["lr"], torch.Tensor):
            raise CannotExport("optimizer option lr: expected a number, found a tensor; a run sets "
                               "the learning rate by a scheduler, or weft run --lr_schedule")
        if group["lr"] == 0 and group.get("decoupled_weight_decay") and group["weight_decay"]:
            raise CannotExport("optimizer option lr=0: decay of weights cannot be read from a rate "
                               "of 0; export with another, and run with --lr_schedule")
        for param in group["params"]:
            name = names.get(id(param))
            if name is None:
                raise CannotExport("the optimizer has a parameter that the model does not have")
            if param._backward_hooks or param._post_accumulate_grad_hooks:
                raise CannotExport(f"parameter {name}: has hooks on its gradient; do in the model "
                                   "what they do")
            if not param.requires_grad:
                continue
            updates[name] = make(f"optimizer.{name}.", param, group, optimizer.state[param], state)
    if not updates:
        raise CannotExport("the optimizer has no parameter that requires a gradient")
    return updates, state


def _sgd(prefix, param, group, before, state):
    has_momentum = group["momentum"] != 0
    key = prefix + "momentum_buffer"
    if has_momentum:
        buffer = before.get("momentum_buffer")
        # The first step of PyTorch copies the gradient: that of a buffer of zeros is equal.
        state[key] = torch.zeros_like(param) if buffer is None else buffer.detach()

    def update(value, gradient, states):
        new = value.clone()
        buffers = [states[key].clone() if has_momentum else None]
        sgd(
            [new], [gradient], buffers, has_sparse_grad=False, foreach=False, fused=False,
            weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
            dampening=0, nesterov=group["nesterov"], maximize=False)
        return new, {key: buffers[0]} if has_momentum else {}

    return update


def _adam(prefix, param, group, before, state):
    keys = [prefix + key for key in ("exp_avg", "exp_avg_sq", "step")]
    start = [torch.zeros_like(param), torch.zeros_like(param), torch.tensor(0.0)]
    for key, value, name in zip(keys, start, ("exp_avg", "exp_avg_sq", "step")):
        state[key] = torch.as_tensor(before.get(name, value), dtype=value.dtype).detach()

    def update(value, gradient, states):
        new = value.clone()
        mean, square, count = (states[key].clone() for key in keys)
        # Only so does PyTorch count steps by a tensor on the CPU.
        with mock.patch("torch.compiler.is_compiling", lambda: True):
            adam(
                [new], [gradient], [mean], [square], [], [count], foreach=False, fused=False,
                capturable=True, differentiable=False, amsgrad=False, maximize=False,
                beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
                eps=group["eps"], weight_decay=group["weight_decay"],
                decoupled_weight_decay=group.get("decoupled_weight_decay", False))
        return new, dict(zip(keys, (mean, square, count)))

    return update


def _rmsprop(prefix, param, group, before, state):
    names = ["square_avg", *(["grad_avg"] if group["centered"] else []),
             *(["momentum_buffer"] if group["momentum"] else [])]
    for name in names:
        state[prefix + name] = before.get(name, torch.zeros_like(param)).detach()

    def update(value, gradient, states):
        new = value.clone()
        kept = {name: states[prefix + name].clone() for name in names}
        rmsprop(
            [new], [gradient], [kept["square_avg"]],
            *([kept[name]] if name in kept else [] for name in ("grad_avg", "momentum_buffer")),
            [torch.zeros(())], foreach=False, capturable=False, differentiable=False,
            maximize=False, has_complex=False, lr=group["lr"], alpha=group["alpha"],
            eps=group["eps"], weight_decay=group["weight_decay"], momentum=group["momentum"],
            centered=group["centered"])
        return new, {prefix + name: tensor for name, tensor in kept.items()}

    return update


def _adagrad(prefix, param, group, before, state):
    key = prefix + "sum"
    state[key] = before["sum"].detach()  # torch.optim makes it with the optimizer

    def update(value, gradient, states):
        # As torch.optim.adagrad.adagrad, without the number of the step, by which lr_decay counts.
        gradient = gradient.add(value, alpha=group["weight_decay"]) if group["weight_decay"] else gradient
        total = states[key].addcmul(gradient, gradient)
        new = value.addcdiv(gradient, total.sqrt().add(group["eps"]), value=-group["lr"])
        return new, {key: total}

    return update
