#!/usr/bin/env python3
"""The Python package in one process with another library of C++: it rewrites, verifies and trains on
two ranks, the other library computes, and both go on. Losses are those of a process without it.

usage: WEFT_C_LIBRARY=libweft_c.so package_beside.py torch|paddle|protobuf...

protobuf: the C++ implementation of protobuf's Python, of 3.20 or of Debian's python3-protobuf.
"""
import array
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATA = os.path.join(ROOT, "tests", "data", "fit_a_line")
sys.path.insert(0, os.path.join(ROOT, "python"))


def torch():
    """A gradient, by several threads."""
    import torch as library  # pylint: disable=import-error

    def compute():
        x = library.ones(300, 300, requires_grad=True)
        (x @ x).sum().backward()
        assert x.grad[0, 0] == 600, x.grad
    return library.__version__, compute


def paddle():
    """A training step of a static program, in libpaddle."""
    import numpy as np
    import paddle as library  # pylint: disable=import-error

    def compute():
        library.enable_static()
        main, startup = library.static.Program(), library.static.Program()
        with library.static.program_guard(main, startup):
            x = library.static.data("x", [-1, 300])
            loss = library.mean(library.static.nn.fc(x, 300))
            library.optimizer.Adam(0.01).minimize(loss)
        executor = library.static.Executor(library.CPUPlace())
        executor.run(startup)
        value, = executor.run(main, feed={"x": np.ones((8, 300), "float32")}, fetch_list=[loss])
        assert np.isfinite(value).all(), value
    return library.__version__, compute


def protobuf():
    """A message there and back, with a descriptor that is made here."""
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "cpp"
    import google.protobuf as library
    from google.protobuf import descriptor_pb2, struct_pb2
    from google.protobuf.internal import api_implementation
    from google.protobuf.pyext import _message  # pylint: disable=import-error,unused-import
    assert api_implementation.Type() == "cpp", api_implementation.Type()

    def compute():
        struct = struct_pb2.Struct()
        struct.update({"a": 1.5, "b": ["c", {"d": None}]})
        assert struct_pb2.Struct.FromString(struct.SerializeToString()) == struct
        assert descriptor_pb2.FileDescriptorProto.FromString(
            descriptor_pb2.DESCRIPTOR.serialized_pb).message_type
    return library.__version__, compute


def train(weft, compute):
    """The losses of steps on two ranks, with `compute` between them."""
    main, startup = (os.path.join(DATA, name) for name in ("main.pb", "startup.pb"))
    compute()
    out = weft.transpile(main, startup, mode="grad_allreduce")
    weft.verify(out, original=main).raise_if_wrong()
    batch = {name: memoryview(array.array("f", [i % 7 / 7 for i in range(20 * width)])).cast(
        "B").cast("f", [20, width]) for name, width in (("x", 13), ("y", 1))}
    losses = []
    with weft.Run(out, ranks=2, threads=2) as run:
        for _ in range(3):
            losses.append(float(run.step(batch)[0]))
            compute()
    try:
        weft.Program(b"\x0a\xff")  # an error of the parser, too
    except weft.Error:
        compute()
    return losses


def in_this_process(name, is_first):
    """Prints version and losses."""
    compute = lambda: None  # pylint: disable=unnecessary-lambda-assignment
    version = ""
    if is_first and name:
        version, compute = globals()[name]()
        compute()
    import weft  # pylint: disable=import-outside-toplevel
    weft.version()  # loads the library
    if not is_first:
        version, compute = globals()[name]()
    print(version, train(weft, compute), sep="\n")


def losses_of(name, is_first):
    """Of a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--here", name, str(int(is_first))], check=False,
                          stdout=subprocess.PIPE, timeout=600)
    if done.returncode != 0:
        sys.exit("%s: a process ended with %d" % (name, done.returncode))
    return done.stdout.decode().splitlines()[-2:]


def main():
    """Compares the orders of import."""
    _, alone = losses_of("", True)
    for name in sys.argv[1:]:
        for is_first in (True, False):
            version, losses = losses_of(name, is_first)
            order = "%s before Weft" % name if is_first else "Weft before %s" % name
            if losses != alone:
                sys.exit("%s: expected the losses %s, found %s" % (order, alone, losses))
            print("%s %s: losses are those of a process without it" % (order, version))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        in_this_process(sys.argv[2], sys.argv[3] == "1")
    elif len(sys.argv) > 1:
        main()
    else:
        sys.exit(__doc__)
