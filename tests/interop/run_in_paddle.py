#!/usr/bin/env python3
"""Paddle trains with what Weft writes.

usage: run_in_paddle.py TRANSPILE RUNS...

TRANSPILE is the tool; RUNS are folders, or .tar.xz of such, with <model>/main.pb, startup.pb,
feeds.npz, init.params (Paddle's save_combine) and reference.npz. Needs Python with PaddlePaddle
2.6 or 3, and no GPU. Programs of 3.x run in 3.x, with FLAGS_enable_pir_api=0, which the script sets.

Mode none, and program text and back: one process; losses equal, bit for bit, those of the original
program. Other modes: two processes that communicate by Gloo, each with its half of every batch;
losses equal those of the reference (1e-5, relative), which Paddle made without its transpiler. In
Paddle 3, programs are written for the CPU (--device_kind cpu) and run as they are. In Paddle 2.6,
and in the paddle dialect, the ops of GPU_ONLY, which Paddle does not have for the CPU, are left
out: Gloo needs no rings, and on the CPU Paddle has no streams. The startup programs run too, each
rank with other random numbers; then all ranks must have the same parameters, if the programs
broadcast them.

What must fail is in KNOWN, and is a failure if it does not.

Prints a table; "equal" counts the good ones whose losses equal, bit for bit, those of what Paddle's
own transpiler writes: the paddle dialect of modes grad_allreduce and local_sgd, on the same machine.
Exit status 1 if anything failed.
"""
import collections
import hashlib
import multiprocessing
import multiprocessing.connection
import os
import re
import socket
import sys
import tempfile

import written_programs

# Order streams or set rings up.
GPU_ONLY = frozenset([
    "c_comm_init", "c_comm_init_all", "c_comm_init_multitrainer", "c_gen_nccl_id",
    "c_sync_calc_stream", "c_sync_comm_stream", "c_wait_comm", "c_wait_compute"])

# A relative difference of losses that another order of summation makes. RoundingBounds
# (tests/support/rounding.h) measure for these runs of most models, BERT included, 2e-6 to 1e-5. ResNet:
# parameters that differ by 2e-10 after the first step give losses that differ by 1e-3 in the fifth; the
# bound is 3e-2.
TOLERANCE = {"": 1e-5, "resnet18_cifar": 2e-3, "paddle3_resnet18_cifar": 2e-3}

PADDLE = "--dialect paddle " + written_programs.TWO_TRAINERS.replace("--rank 1", "--rank %d")

FOR_CPU = " --device_kind cpu"  # in Paddle 3

# Name, flags with %d for the rank where they need it, which run of the reference has the losses.
DATA_PARALLEL = [
    ("paddle grad_allreduce", "--mode grad_allreduce " + PADDLE, "dp2"),
    ("paddle local_sgd", "--mode local_sgd " + PADDLE, "localsgd2"),
    ("grad_allreduce", "--mode grad_allreduce --nranks 2", "dp2"),
    ("grad_allreduce 2 rings",
     "--mode grad_allreduce --nranks 2 --nrings 2 --buckets count{count=4}", "dp2"),
    ("grad_allreduce dense", "--mode grad_allreduce --nranks 2 --sparse dense", "dp2"),
    ("multi_thread fuse", "--mode multi_thread --nranks 2", "dp2"),
    ("multi_thread gather", "--mode multi_thread --nranks 2 --trans_mode all_gather", "dp2"),
    ("mindspore_reducer", "--mode mindspore_reducer --reduce_method mean --nranks 2", "dp2"),
    ("singa_plain", "--mode singa_plain --nranks 2", "dp2"),
    ("local_sgd", "--mode local_sgd --nranks 2", "localsgd2"),
    ("local_sgd k=4", "--mode local_sgd --nranks 2 --k_steps 4", "localsgd2_k4"),
    ("paddle multi_thread fuse", "--mode multi_thread --devices 0 " + PADDLE, "dp2"),
    ("paddle multi_thread each",
     "--mode multi_thread --trans_mode all_reduce --devices 0 " + PADDLE, "dp2"),
]
# In the paddle dialect, a flag makes rows dense.
DATA_PARALLEL += [(name + " dense", flags + " --sparse dense", reference)
                  for name, flags, reference in DATA_PARALLEL
                  if name.startswith("paddle ") and reference == "dp2"]

# What cannot be as the reference, and why. Numbers are those of docs/paddle_dialect.md.
ROWS = "Paddle's collective ops take dense tensors only (defect 21)"
DEFECTS = [
    ("paddle grad_allreduce", "mlp_gradient_merge", "defect 25"),
    ("paddle multi_thread each", "mlp_gradient_merge", "defect 25"),
    ("paddle multi_thread fuse", "mlp_gradient_merge", "defect 25"),
    ("paddle multi_thread fuse", "two_losses", "defect 26"),
]
KNOWN, KNOWN3 = ({(_mode + _flag, _prefix + _model): _why for _mode, _model, _why in DEFECTS
                  for _flag in ("", " dense")} for _prefix in ("", "paddle3_"))
for _mode in ("grad_allreduce", "grad_allreduce 2 rings", "multi_thread fuse",
              "multi_thread gather", "mindspore_reducer", "singa_plain", "paddle grad_allreduce",
              "paddle multi_thread fuse", "paddle multi_thread each"):
    for _model in ("word2vec_sparse_sgd", "word2vec_sparse_adam"):
        KNOWN[_mode, _model] = ROWS

# In Paddle 3, rows are made dense for the CPU, but in the paddle dialect.
for _mode in ("paddle grad_allreduce", "paddle multi_thread each", "paddle multi_thread fuse"):
    KNOWN3[_mode, "paddle3_word2vec_sparse_sgd"] = ROWS

# What one process trains. `leave_out` has types of ops.
Job = collections.namedtuple("Job", "main startup folder nranks rank steps leave_out")


def import_paddle():
    os.environ["FLAGS_enable_pir_api"] = "0"  # Paddle 3: programs as messages
    try:
        import paddle  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        sys.exit("run_in_paddle.py: error: PaddlePaddle is not there (%s). Install it, for "
                 "instance in a virtual environment: pip install paddlepaddle==3.3.1" % error)
    return paddle


def is_paddle3(paddle):
    return paddle.__version__.startswith("3.")


def connect(paddle, rank, port):
    """Rings 0 to 3 of two processes. Returns what must live as long as they do."""
    if not is_paddle3(paddle):
        paddle.distributed.gloo_init_parallel_env(rank, 2, "127.0.0.1:%d" % port)
        return None
    core = paddle.base.core
    store = core.TCPStore("127.0.0.1", port, rank == 0, 2, 60)
    for ring in range(4):
        core.CommContextManager.create_gloo_comm_context(store, str(ring), rank, 2)
    return store


# --- A rank ---------------------------------------------------------------------------------------


def parse(paddle, path, leave_out):
    with open(path, "rb") as file:
        program = paddle.static.Program.parse_from_string(file.read())
    for block in program.blocks:
        for i in reversed(range(len(block.ops))):
            if block.ops[i].type in leave_out:
                block._remove_op(i)
    return program


def loss_names(program):
    """Outputs of forward ops that compute a loss, by role."""
    forward_loss = 0x100
    return [op.output_arg_names[0] for op in program.global_block().ops
            if op.attr("op_role") == forward_loss]


def load_parameters(paddle, exe, program, folder):
    """init.params holds all persistable variables of the original program, sorted by name."""
    original = parse(paddle, os.path.join(folder, "main.pb"), ())
    names = sorted(v.name for v in original.list_vars() if v.persistable)
    loader = paddle.static.Program()
    for name in names:
        old = original.global_block().var(name)
        loader.global_block().create_var(name=name, shape=old.shape, dtype=old.dtype,
                                         persistable=True)
    loader.global_block().append_op(
        type="load_combine", inputs={}, outputs={"Out": names},
        attrs={"file_path": os.path.join(folder, "init.params")})
    exe.run(loader)
    # What Paddle's LocalSGD compares with: the startup program made it of its own parameters.
    scope = paddle.static.global_scope()
    for var in program.list_vars():
        if var.name.endswith("@SNAPSHOT"):
            value = scope.find_var(var.name[:-len("@SNAPSHOT")]).get_tensor()
            scope.find_var(var.name).get_tensor().set(value.__array__(), paddle.CPUPlace())


def train(paddle, job):
    """Returns the losses, and a digest of the parameters after the startup program."""
    import numpy  # pylint: disable=import-outside-toplevel

    main, startup = (parse(paddle, path, job.leave_out) for path in (job.main, job.startup))
    paddle.seed(1 + job.rank)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    scope = paddle.static.global_scope()
    digest = hashlib.sha256()
    for var in sorted(main.all_parameters(), key=lambda v: v.name):
        digest.update(numpy.array(scope.find_var(var.name).get_tensor()).tobytes())
    load_parameters(paddle, exe, main, job.folder)

    names = loss_names(main)
    feeds = numpy.load(os.path.join(job.folder, "feeds.npz"))
    batches = 1 + max(int(key.split("/")[0]) for key in feeds.files)
    losses = []
    for step in range(job.steps):
        feed = {}
        for key in feeds.files:
            batch, name = key.split("/")
            if int(batch) != step % batches:
                continue
            data = main.global_block().var(name).desc.need_check_feed()
            feed[name] = numpy.split(feeds[key], job.nranks)[job.rank] if data else feeds[key]
        losses.append([float(v) for v in exe.run(main, feed=feed, fetch_list=names)])
    return losses, digest.hexdigest()


def work(rank, port, jobs, results):
    """A process: does the jobs that arrive, and answers each. Gloo starts with the first job for
    two ranks."""
    # Ranks must communicate in the same order.
    os.environ["FLAGS_new_executor_sequential_run"] = "1"
    os.environ["GLOG_minloglevel"] = "2"
    paddle = import_paddle()
    paddle.enable_static()
    store = connect(paddle, rank, port)
    while True:
        job = jobs.recv()
        if job is None:
            del store
            return
        try:
            with paddle.static.scope_guard(paddle.static.Scope()):
                results.send((train(paddle, job), ""))
        except Exception as error:  # whatever Paddle throws
            found = re.search(r"^\s*(\(\w+\) .*)$", str(error), re.MULTILINE)
            results.send((None, found.group(1) if found else repr(error)[-300:]))


class Ranks:
    """Two processes. A failure ends both: the other one may wait for ever."""

    def __init__(self):
        self._context = multiprocessing.get_context("spawn")
        self._processes = []

    def _start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._pipes = []
        for rank in range(2):
            (job, send_job), (result, send_result) = (self._context.Pipe(False) for _ in range(2))
            process = self._context.Process(target=work, args=(rank, port, job, send_result))
            process.start()
            for end in (job, send_result):  # so that the end of the process is seen
                end.close()
            self._processes.append(process)
            self._pipes.append((send_job, result))

    def stop(self):
        for process in self._processes:
            process.kill()
            process.join()
        self._processes = []

    def run(self, jobs, timeout_s=300):
        """Returns what train() returns for each job, and an error."""
        if not self._processes:
            self._start()
        for (send, _), job in zip(self._pipes, jobs):
            send.send(job)
        waiting = {pipe[1]: rank for rank, (pipe, _) in enumerate(zip(self._pipes, jobs))}
        answers = [None] * len(waiting)
        error = ""
        while waiting and not error:
            ready = multiprocessing.connection.wait(list(waiting), timeout_s)
            if not ready:
                error = "no answer within %d s" % timeout_s
            for pipe in ready:
                try:
                    answers[waiting.pop(pipe)], failure = pipe.recv()
                except EOFError:
                    failure = "the process of a rank died"
                error = error or failure
        if error:
            self.stop()
        return answers, error


# --- What is expected -----------------------------------------------------------------------------


def reference_losses(folder, run, nranks):
    """For each rank, for each step, each loss. None: there is no such run."""
    import numpy  # pylint: disable=import-outside-toplevel

    reference = numpy.load(os.path.join(folder, "reference.npz"))
    ranks = []
    for rank in range(nranks):
        suffix = "_rank%d" % rank if nranks > 1 else ""
        keys = [run + "/loss" + suffix, run + "/loss1" + suffix]
        ranks.append([list(step) for step in
                      zip(*(reference[key].tolist() for key in keys if key in reference.files))])
    return ranks if all(ranks) else None


def difference(found, expected):
    """The largest relative difference of two lists of the losses of steps."""
    return max(abs(a - b) / max(abs(b), 1e-30)
               for f, e in zip(found, expected) for a, b in zip(f, e))


# --- Models by modes ------------------------------------------------------------------------------


class Check:
    """Trains one model in one configuration. The result is a word for the table, and a failure."""

    def __init__(self, transpile, folder, paddle3):
        self._transpile = transpile
        self._paddle3 = paddle3
        self._folder = folder
        self._ranks = Ranks()
        self._originals = {}
        self._of_paddle = {}  # losses of what Paddle's transpiler writes, by model and reference

    def stop(self):
        self._ranks.stop()

    def _write(self, flags, model_folder, name, suffix=".pb"):
        out = os.path.join(self._folder, name)
        error = written_programs.rewrite(self._transpile, flags, model_folder, out, suffix)
        return out, error

    def one_process(self, model, model_folder, through_text):
        """Mode none: the same losses, bit for bit, as those of the original."""
        single = reference_losses(model_folder, "single", 1)

        def run(folder):
            job = Job(folder + "/main.pb", folder + "/startup.pb", model_folder, 1, 0,
                      len(single[0]), ())
            return self._ranks.run([job])

        if model not in self._originals:
            self._originals[model] = run(model_folder)
        original, error = self._originals[model]
        if error:
            return "failed", "the original: " + error
        none = ["--mode", "none"]
        if through_text:
            out, error = self._write(none, model_folder, "text", ".prog")
            if not error:
                error = written_programs.rewrite(self._transpile, none, out, out, ".pb", ".prog")
        else:
            out, error = self._write(none, model_folder, "none")
        if error:
            return "failed", error
        found, error = run(out)
        if error:
            return "failed", error
        if found != original:
            return "failed", "other losses or initial parameters than the original's"
        return "good", ""

    def two_processes(self, model, model_folder, flags, reference):
        """The losses of each rank are those of the reference."""
        expected = reference_losses(model_folder, reference, 2)
        if not expected:
            return "no reference", ""
        leave_out = GPU_ONLY
        if self._paddle3:
            flags += FOR_CPU
            leave_out = GPU_ONLY if "--dialect paddle" in flags else ()
        jobs = []
        for rank in range(2):
            of_rank = (flags % rank if "%d" in flags else flags).split()
            out, error = self._write(of_rank, model_folder, "rank%d" % rank)
            if error:
                return "refused", ""
            jobs.append(Job(out + "/main.pb", out + "/startup.pb", model_folder, 2, rank,
                            len(expected[0]), leave_out))
        broadcasts = any(name in block for name in ("broadcast", "c_broadcast")
                         for block in written_programs.op_types(jobs[0].startup))
        found, error = self._ranks.run(jobs)
        if error:
            return "failed", error
        if broadcasts and found[0][1] != found[1][1]:
            return "failed", "the ranks begin with different parameters"
        worst = max(difference(f[0], e) for f, e in zip(found, expected))
        if not worst <= TOLERANCE.get(model, TOLERANCE[""]):
            return "failed", "losses differ by %.2g" % worst
        losses = [f[0] for f in found]
        if "--dialect paddle" in flags:
            self._of_paddle.setdefault((model, reference), losses)
        is_equal = losses == self._of_paddle.get((model, reference))
        return "equal" if is_equal else "good", ""


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    paddle = import_paddle()
    rows, failures = collections.OrderedDict(), []
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for i, runs in enumerate(sys.argv[2:]):
            models.update(written_programs.unpack(runs, "%s/runs%d" % (folder, i)))
        models = {model: path for model, path in sorted(models.items())
                  if all(os.path.isfile(os.path.join(path, name))
                         for name in ("feeds.npz", "init.params", "reference.npz"))}
        check = Check(sys.argv[1], folder, is_paddle3(paddle))

        def add(name, model, result):
            word, failure = result
            known = (KNOWN3 if is_paddle3(paddle) else KNOWN).get((name, model))
            if word == "equal":
                rows.setdefault(name, collections.Counter())["equal"] += 1
                word = "good"
            if known and word == "failed":
                print("known: %s: %s: %s: %s" % (name, model, known, failure), flush=True)
                word, failure = "known", ""
            elif known and word == "good":
                word, failure = "failed", "works, against what is said here: " + known
            rows.setdefault(name, collections.Counter())[word] += 1
            if failure:
                failures.append("%s: %s: %s" % (name, model, failure))
                print("FAILED: " + failures[-1], flush=True)

        try:
            for model, path in models.items():
                add("none", model, check.one_process(model, path, False))
                add("none, through program text", model, check.one_process(model, path, True))
            for name, flags, reference in DATA_PARALLEL:
                for model, path in models.items():
                    add(name, model, check.two_processes(model, path, flags, reference))
        finally:
            check.stop()
    print("Paddle %s, %d models" % (paddle.__version__, len(models)))
    columns = ("good", "equal", "failed", "known", "refused", "no reference")
    print("%-30s" % "mode" + "".join("%14s" % column for column in columns))
    for name, row in rows.items():
        print("%-30s" % name + "".join("%14d" % row[column] for column in columns))
    empty = [name for name, row in rows.items() if not row["good"] and set(row) != {"no reference"}]
    for name in empty:
        print("FAILED: %s: nothing ran" % name)
    return 1 if failures or empty or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
