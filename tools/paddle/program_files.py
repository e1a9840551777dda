"""What the scripts share that write programs of Paddle 2.6 for tests: models by name, feeds, files."""
import os

import numpy as np

ROWS, STEPS = 8, 4  # of feeds
draw = np.random.RandomState(0)


class Models(dict):
    """Functions by their names: a decorator."""

    def __call__(self, build):
        self[build.__name__] = build
        return build


def floats(*shape):
    return draw.randn(ROWS, *shape).astype("float32")


def integers(low, high, *shape):
    return draw.randint(low, high, (ROWS,) + shape).astype("int64")


def steps(**make):
    return [{name: of() for name, of in make.items()} for _ in range(STEPS)]


def save(program, path, rename=None):
    """Without the places in scripts that ops come from. `rename` gives variables their names."""
    from paddle.base.proto import framework_pb2

    desc = framework_pb2.ProgramDesc.FromString(program.desc.serialize_to_string())
    for block in desc.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
        if rename is None:
            continue
        for var in block.vars:
            var.name = rename(var.name)
        for op in block.ops:
            for slot in list(op.inputs) + list(op.outputs):
                slot.arguments[:] = [rename(name) for name in slot.arguments]
            for attr in op.attrs:
                attr.strings[:] = [rename(text) for text in attr.strings]
    with open(path, "wb") as file:
        file.write(desc.SerializeToString())


def save_pair(main, startup, directory):
    os.makedirs(directory, exist_ok=True)
    save(main, os.path.join(directory, "main.pb"))
    save(startup, os.path.join(directory, "startup.pb"))


def values(program, scope):
    """Of the tensors that persist."""
    found = {}
    for var in program.list_vars():
        value = scope.find_var(var.name) if var.persistable else None
        if value is not None and value.get_tensor()._is_initialized():
            found[var.name] = np.array(value.get_tensor())
    return found


def train(main, startup, feeds, directory):
    """Writes init.npz (variables before the first step), feeds.npz and paddle.npz (variables after the
    last step)."""
    import paddle

    os.makedirs(directory, exist_ok=True)
    scope = paddle.static.Scope()
    with paddle.static.scope_guard(scope):
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        np.savez(os.path.join(directory, "init.npz"), **values(main, scope))
        for step in feeds:
            executor.run(main, feed=step)
        np.savez(os.path.join(directory, "paddle.npz"), **values(main, scope))
    arrays = {"%d/%s" % (i, name): array
              for i, step in enumerate(feeds) for name, array in step.items()}
    np.savez(os.path.join(directory, "feeds.npz"), **arrays)
