#!/usr/bin/env python3
"""Paddle 3 trains what Weft writes in Paddle's own format, PIR.

usage: run_pir_in_paddle.py TRANSPILE PIR.tar.xz MODELS.tar.xz

TRANSPILE is the tool. PIR.tar.xz holds <model>/main.json, startup.json and meta.json; MODELS.tar.xz
holds paddle3_<model>/feeds.npz, init.params, persistables.txt and reference.npz of the same models.
Needs Python with PaddlePaddle 3.3 for the CPU.

Two processes load the rewritten files as they are, and communicate by Gloo, each with its half of
every batch. Losses equal those of the reference (1e-5, relative), which Paddle made without its
transpiler. Where parameters are averaged on some steps only, another process of Paddle makes the
reference: it trains the original program for each rank, in a scope of its own, and averages with NumPy.
Both processes start from parameters of their own, which the startup program makes equal.

Prints a table; "equal" counts losses that equal the reference bit for bit. Exit status 1 if anything
failed, if no model was found, if nothing ran of a configuration for which some model has a reference,
or if Weft refuses a model that REFUSED does not name, or rewrites one that it does.
"""
import json
import os
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile

STEPS = 3
AVERAGED = "averaged"  # a reference that is made here
AVERAGED_STEPS = 5
TOLERANCE = {"": 1e-5, "resnet18_cifar": 2e-3}  # where from: run_in_paddle.py
CONFIGURATIONS = [
    ("grad_allreduce", "--mode grad_allreduce", "dp2"),
    ("grad_allreduce one by one", "--mode grad_allreduce --buckets none", "dp2"),
    ("grad_allreduce 2 rings",
     "--mode grad_allreduce --nrings 2 --buckets count{count=2}", "dp2"),
    ("grad_allreduce for CUDA", "--mode grad_allreduce --device_kind cuda", "dp2"),
    ("multi_thread", "--mode multi_thread", "dp2"),
    ("single_process_multi_thread", "--mode single_process_multi_thread", "dp2"),
    ("multi_thread gathered", "--mode multi_thread --trans_mode all_gather", "dp2"),
    ("singa_plain", "--mode singa_plain", "dp2"),
    ("mindspore_reducer", "--mode mindspore_reducer --reduce_method mean", "dp2"),
    ("megengine", "--mode megengine --reduce_method mean", "dp2"),
    ("megengine, broadcast each step",
     "--mode megengine --reduce_method mean --bcast_period 1", "dp2"),
    ("megengine, broadcast at times",
     "--mode megengine --reduce_method mean --bcast_period 2", "dp2"),
    ("local_sgd", "--mode local_sgd", "localsgd2"),
    ("local_sgd, every 2 steps", "--mode local_sgd --k_steps 2", AVERAGED),
    ("local_sgd, from step 3 on", "--mode local_sgd --k_steps 2 --first_average 3", AVERAGED),
    ("local_sgd, all until step 3", "--mode local_sgd --k_steps 2 --begin_step 3", AVERAGED),
    ("singa_partial", "--mode singa_partial", "localsgd2"),
    ("singa_partial in turn", "--mode singa_partial --threshold 1000", AVERAGED),
]
# By configuration and model: what Weft says why it has no such program.
REFUSED = {}


def results(op):
    made = op.get("O", [])
    return made if isinstance(made, list) else [made]


def ops_of(path):
    with open(path) as file:
        return json.load(file)["program"]["regions"][0]["blocks"][0]["ops"]


def losses_in(original, rewritten, losses):
    """[op, result] of the losses in the rewritten file: values keep their ids."""
    where = {r["%"]: (i, k) for i, op in enumerate(ops_of(rewritten))
             for k, r in enumerate(results(op))}
    before = ops_of(original)
    return [where[results(before[op])[result]["%"]] for op, result in losses]


def read_combine(path, names):
    """Paddle's save_combine format."""
    import numpy

    dtypes = {0: "bool", 2: "int32", 3: "int64", 5: "float32", 6: "float64"}
    arrays = {}
    with open(path, "rb") as file:
        for name in names:
            _, levels, _, size = struct.unpack("<IQIi", file.read(20))
            assert levels == 0, name
            desc, dims, i = file.read(size), [], 0
            dtype = None
            while i < len(desc):
                tag, value, shift = desc[i], 0, 0
                i += 1
                while True:
                    value |= (desc[i] & 0x7f) << shift
                    shift += 7
                    i += 1
                    if desc[i - 1] < 0x80:
                        break
                if tag == 0x08:
                    dtype = dtypes[value]
                else:
                    dims.append(value)
            count = int(numpy.prod(dims, dtype=int))
            data = file.read(count * numpy.dtype(dtype).itemsize)
            arrays[name] = numpy.frombuffer(data, dtype).reshape(dims)
    return arrays


def load(folder, name):
    import paddle
    from paddle.base import core

    program = paddle.static.Program()
    assert core.deserialize_pir_program(os.path.join(folder, name), program)
    return program


def set_parameters(data, scope):
    import paddle

    with open(os.path.join(data, "persistables.txt")) as file:
        init = read_combine(os.path.join(data, "init.params"), file.read().split())
    for name, array in init.items():
        scope.var(name).get_tensor().set(array, paddle.CPUPlace())


def feed_of(feeds, names, step, rank):
    """The rank's half of a batch."""
    import numpy

    feed = {}
    for name in names:
        array = feeds["%d/%s" % (step, name)]
        half = len(array) // 2
        feed[name] = numpy.ascontiguousarray(array[half * rank:half * (rank + 1)])
    return feed


def fed(main):
    return [op.attrs()["name"] for op in main.global_block().ops
            if op.name() == "pd_op.data" and not op.result(0).persistable]


def run_step(exe, main, feed, losses):
    import numpy

    ops = main.global_block().ops
    fetched = [ops[op].result(result) for op, result in losses]
    values = exe.run(main, feed=feed, fetch_list=fetched)
    return [float(numpy.asarray(value).reshape(())) for value in values]


def rings_of(path):
    """Of all blocks."""
    with open(path) as file:
        text = file.read()
    rings = set()

    def visit(node):
        if isinstance(node, list):
            for element in node:
                visit(element)
        elif isinstance(node, dict):
            if node.get("N") == "ring_id":
                rings.add(node["AT"]["D"])
            for element in node.values():
                visit(element)

    visit(json.loads(text))
    return rings


def train(rank, port, folder, data, losses, steps):
    """One of two processes. Prints the losses of the steps as JSON."""
    import numpy
    import paddle
    from paddle.base import core

    paddle.enable_static()
    paddle.seed(7 + rank)
    main, startup = load(folder, "out.json"), load(folder, "out_startup.json")
    ops = main.global_block().ops
    rings = set.union(*(rings_of(os.path.join(folder, name))
                        for name in ("out.json", "out_startup.json")))
    store = core.TCPStore("127.0.0.1", port, rank == 0, 2, 60)
    for ring in sorted(rings):
        core.CommContextManager.create_gloo_comm_context(store, str(ring), rank, 2)
    exe, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.global_scope()
    exe.run(startup)
    state = [op.attrs()["parameter_name"] for op in ops if op.name() == "builtin.parameter"]
    made = [float(numpy.array(scope.find_var(n).get_tensor()).astype("float64").sum())
            for n in state]
    set_parameters(data, scope)
    feeds = numpy.load(os.path.join(data, "feeds.npz"))
    found = [run_step(exe, main, feed_of(feeds, fed(main), step, rank), losses)
             for step in range(steps)]
    print(json.dumps({"losses": found, "made": made}))


def average(folder, data, losses, schedule):
    """Trains the original program for two ranks. Prints the losses of the steps as JSON.

    schedule    (names, period, remainder, first, begin): of the steps, from 1 on, after which the
                variables are averaged; before step `begin`, all.
    """
    import numpy
    import paddle

    paddle.enable_static()
    main, startup = load(folder, "main.json"), load(folder, "startup.json")
    exe, scopes = paddle.static.Executor(paddle.CPUPlace()), []
    for _ in range(2):
        scopes.append(paddle.static.Scope())
        with paddle.static.scope_guard(scopes[-1]):
            exe.run(startup)
            set_parameters(data, scopes[-1])
    feeds = numpy.load(os.path.join(data, "feeds.npz"))
    found = [[], []]
    for step in range(AVERAGED_STEPS):
        for rank, scope in enumerate(scopes):
            with paddle.static.scope_guard(scope):
                found[rank].append(
                    run_step(exe, main, feed_of(feeds, fed(main), step, rank), losses))
        for names, period, remainder, first, begin in schedule:
            is_due = step + 1 < begin or (step + 1) % period == remainder
            if step + 1 < first or not is_due:
                continue
            for name in names:
                tensors = [scope.find_var(name).get_tensor() for scope in scopes]
                mean = (numpy.array(tensors[0]) + numpy.array(tensors[1])) * numpy.float32(0.5)
                for tensor in tensors:
                    tensor.set(mean, paddle.CPUPlace())
    print(json.dumps(found))


def schedule_of(flags, explained):
    """When which variables are averaged: by the flags, and by the partitions that Weft has chosen."""
    options = dict(zip(flags.split()[::2], flags.split()[1::2]))
    partitions = {}
    for note in explained["notes"]:
        if note["what"] == "averaged":
            partitions.setdefault(note.get("partition"), []).append(note["subject"])
    if options["--mode"] == "local_sgd":
        (names,) = partitions.values()
        first, begin = (int(options.get(flag, 1)) for flag in ("--first_average", "--begin_step"))
        return [[names, int(options["--k_steps"]), 0, first, begin]]
    schedule = []
    for partition, names in partitions.items():
        number, count = (int(word) for word in partition.split(" of "))
        assert count == len(partitions), partition
        schedule.append([names, count, number % count, number, 1])
    return schedule


def as_expected(outcome, refusal):
    """The outcome; "failed: ..." if it is a refusal and `refusal` is no part of it, or the reverse."""
    is_refused = outcome.startswith("refused: ")
    if is_refused and (refusal is None or refusal not in outcome):
        return "failed: " + outcome
    if refusal is not None and not is_refused:
        return "failed: works, against what is said here: " + refusal
    return outcome


def is_empty(count):
    """Whether nothing ran, although some model has a reference."""
    tried = {kind for kind, models in count.items() if models > 0}
    return count["passed"] == 0 and tried != {"no reference"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def in_paddle(what, arguments):
    """A process that runs a function of this file."""
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), what, json.dumps(arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(transpile, flags, folder, data, model, reference):
    """Returns "equal", "passed", "refused: ..." or "failed: ..."."""
    import numpy

    path = lambda name: os.path.join(folder, name)
    command = [transpile] + flags.split()
    if "--device_kind" not in flags:
        command += ["--device_kind", "cpu"]
    command += ["--nranks", "2", "--explain", path("explain.json"),
                "--startup_in", path("startup.json"), "--startup_out",
                path("out_startup.json"), path("main.json"), path("out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "refused: " + done.stderr.strip().splitlines()[-1]
    with open(path("meta.json")) as file:
        before = json.load(file)["loss"]
    losses = losses_in(path("main.json"), path("out.json"), before)
    port, steps = free_port(), AVERAGED_STEPS if reference == AVERAGED else STEPS
    processes = [in_paddle("--train", [rank, port, folder, data, losses, steps])
                 for rank in range(2)]
    if reference == AVERAGED:
        with open(path("explain.json")) as file:
            schedule = schedule_of(flags, json.load(file))
        processes.append(in_paddle("--average", [folder, data, before, schedule]))
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
            process.communicate()
        return "failed: no result within 300 seconds"
    for process, (_, error) in zip(processes, outputs):
        if process.returncode != 0:
            return "failed: " + error.strip()[-300:]
    found = [json.loads(output.strip().splitlines()[-1]) for output, _ in outputs]
    if found[0]["made"] != found[1]["made"]:
        return "failed: the startup programs left other parameters on the ranks"
    known = numpy.load(os.path.join(data, "reference.npz"))
    worst = 0.0
    for rank in range(2):
        for k in range(len(losses)):
            name = "%s/loss%s_rank%d" % (reference, k or "", rank)
            if reference == AVERAGED:
                expected = numpy.array([step[k] for step in found[2][rank]])
            elif name in known.files:
                expected = known[name][:STEPS].astype("float64")
            else:
                return "no reference"
            ours = numpy.array([step[k] for step in found[rank]["losses"]])
            worst = max(worst, float(numpy.max(numpy.abs(ours - expected) / numpy.abs(expected))))
    if worst > TOLERANCE.get(model, TOLERANCE[""]):
        return "failed: losses differ by %g" % worst
    return "equal" if worst == 0 else "passed"


def main():
    transpile, pir, models = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for archive in (pir, models):
            with tarfile.open(archive) as file:
                file.extractall(directory)
        names = sorted(name for name in os.listdir(directory)
                       if os.path.isdir(os.path.join(directory, "paddle3_" + name)))
        print("%-30s %6s %6s %6s %6s %6s" % ("of %d models" % len(names), "passed", "equal",
                                             "failed", "refused", "no ref."))
        details = []
        for title, flags, reference in CONFIGURATIONS:
            count = dict.fromkeys(("passed", "equal", "failed", "refused", "no reference"), 0)
            for model in names:
                outcome = run(os.path.abspath(transpile), flags, os.path.join(directory, model),
                              os.path.join(directory, "paddle3_" + model), model, reference)
                outcome = as_expected(outcome, REFUSED.get((title, model)))
                kind = outcome.split(":")[0]
                count[kind] += 1
                count["passed"] += kind == "equal"
                if ":" in outcome:
                    details.append("%s, %s: %s" % (title, model, outcome))
            if is_empty(count):
                details.append("%s: nothing ran" % title)
            failed = failed or count["failed"] > 0 or is_empty(count)
            print("%-30s %6d %6d %6d %6d %6d" % (title, count["passed"], count["equal"],
                                                 count["failed"], count["refused"],
                                                 count["no reference"]), flush=True)
        print("\n".join(details))
    return 1 if failed or not names else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(*json.loads(sys.argv[2]))
    elif sys.argv[1:2] == ["--average"]:
        average(*json.loads(sys.argv[2]))
    else:
        sys.exit(main())
