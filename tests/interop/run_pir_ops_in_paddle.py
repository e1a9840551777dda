#!/usr/bin/env python3
"""Paddle 3 trains small programs of its own format, PIR, as Weft rewrites them.

usage: run_pir_ops_in_paddle.py TRANSPILE WEFT OPS.tar.xz...

TRANSPILE and WEFT are the tools. OPS.tar.xz holds <model>/main.json, startup.json, params.npz,
feeds.npz and, in loss, what Paddle has found on one device with the whole batch. Needs Python with
PaddlePaddle 3.3 for the CPU.

Two processes load the rewritten files of each model as they are, and communicate by Gloo, each with its
half of every batch. Of each model, with the default options and with those that make its loss exact:

- The loss of each process is that of the same rank in `weft run` (1e-4, relative), unless an op draws.
- Where `transpile` does not say that ranks compute something else than one device, the mean of both is
  the loss of one device (1e-4).

Prints a table: "exact" counts models of which the second holds, "told" those where `transpile` says that
it need not. Exit status 1 if anything failed, or if nothing ran.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import run_pir_in_paddle as pir

CONFIGURATIONS = [
    ("grad_allreduce", []),
    ("grad_allreduce --exact_loss", ["--exact_loss"]),
]
SECONDS = 120  # that a model may take
# 50 times the bound of a program that multiplies no rounding (tests/support/rounding.h): 16 units in the
# last place of fp32.
TOLERANCE = 1e-4
# What Paddle's CPU kernels of these compute, weft run computes only if told.
QUIRKS = {"hsigmoid", "spectral"}
SKIPPED = {
    # An op has the size of the whole batch.
    "crop", "diag_grad", "draw_integers", "draw_normal", "fold", "meshgrid", "meshgrid_grad", "qkv",
    "regions", "segments",
    "loss_scaling",  # the last gradient of 1 is that of the scaled loss
    "nanmedian",  # Paddle cannot read the file that it has written: key 'D' not found
}


def loss_of(main):
    """The last result whose gradient is 1: gradients of others may be part of it."""
    found = None
    for op in main.global_block().ops:
        if op.name() != "pd_op.full_like" or op.operand_source(0).shape not in ([], [1]):
            continue
        if op.operand_source(1).get_defining_op().attrs().get("value") == 1.0:
            found = op.operand_source(0)
    assert found is not None, "no loss"
    return found


def train(rank, folder):
    """The losses of the steps."""
    import numpy
    import paddle

    main, startup = pir.load(folder, "out.json"), pir.load(folder, "out_startup.json")
    exe, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
    feeds = numpy.load(os.path.join(folder, "feeds.npz"))
    steps = 1 + max(int(name.split("/")[0]) for name in feeds.files)
    found = []
    with paddle.static.scope_guard(scope):
        exe.run(startup)
        params = numpy.load(os.path.join(folder, "params.npz"))
        for name in params.files:
            if scope.find_var(name) is not None:
                scope.var(name).get_tensor().set(params[name], paddle.CPUPlace())
        loss, names = loss_of(main), pir.fed(main)
        for step in range(steps):
            (value,) = exe.run(main, feed=pir.feed_of(feeds, names, step, rank), fetch_list=[loss])
            found.append(float(numpy.asarray(value).reshape(())))
    return found


def serve(rank, port):
    """One of two processes: trains in each folder that it reads. Prints losses, or what failed."""
    import paddle
    from paddle.base import core

    paddle.enable_static()
    store = core.TCPStore("127.0.0.1", port, rank == 0, 2, 60)
    core.CommContextManager.create_gloo_comm_context(store, "0", rank, 2)
    for line in sys.stdin:
        try:
            answer = {"losses": train(rank, line.strip())}
        except Exception as error:  # of any op
            answer = {"error": str(error).strip()[-300:]}
        print(json.dumps(answer), flush=True)


class Ranks:
    """Two processes of Paddle, which live until one fails."""

    def __init__(self):
        self._processes = []
        self._readers = concurrent.futures.ThreadPoolExecutor(4)

    def train(self, folder):
        """[losses of the steps of rank 0, of rank 1]; or a message."""
        if not self._processes:
            port = pir.free_port()
            self._processes = [
                subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", str(rank),
                                  str(port)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True) for rank in range(2)
            ]
        try:
            for process in self._processes:
                process.stdin.write(folder + "\n")
                process.stdin.flush()
            answers = [self._answer(process) for process in self._processes]
        except BrokenPipeError:
            answers = [{"error": "a process is gone"}]
        for answer in answers:
            if "error" in answer:  # the other may wait for it
                self.stop()
                return answer["error"]
        return [answer["losses"] for answer in answers]

    def _answer(self, process):
        line = self._readers.submit(self._next_answer, process)
        try:
            return line.result(timeout=SECONDS)
        except concurrent.futures.TimeoutError:
            return {"error": "no result within %d seconds" % SECONDS}

    @staticmethod
    def _next_answer(process):
        for line in process.stdout:  # ops print, too
            if line.startswith('{"'):
                return json.loads(line)
        return {"error": "the process ended with %d" % process.wait()}

    def stop(self):
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes = []


def weft_losses(weft, folder, options):
    """[losses of the steps of rank 0, of rank 1]; or a message."""
    path = lambda name: os.path.join(folder, name)
    done = subprocess.run(
        [weft, "run", "--ranks", "2", "--startup", path("out_startup.json"), "--params",
         path("params.npz"), "--feeds", path("feeds.npz"), "--metrics", path("metrics.jsonl"),
         path("out.json")] + options, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "weft run: " + done.stderr.strip()[-300:]
    found = [[], []]
    with open(path("metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            ((loss,),) = line["fetch"].values()
            found[line["rank"]].append(loss)
    return found


def worst(found, expected):
    """The largest relative difference."""
    if len(found) != len(expected):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, expected))


def run(transpile, weft, options, folder, model, ranks):
    """"exact", "told: ...", "refused: ..." or "failed: ..."."""
    path = lambda name: os.path.join(folder, name)
    done = subprocess.run(
        [transpile, "--mode", "grad_allreduce", "--device_kind", "cpu", "--nranks", "2"] + options +
        ["--startup_in", path("startup.json"), "--startup_out", path("out_startup.json"),
         path("main.json"), path("out.json")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "refused: " + done.stderr.strip().splitlines()[-1]
    ours = weft_losses(weft, folder, ["--paddle_cpu_quirks"] if model in QUIRKS else [])
    theirs = ranks.train(folder)
    for losses in (ours, theirs):
        if isinstance(losses, str):
            return "failed: " + losses
    told = [line for line in done.stderr.splitlines() if re.match(r"(warning|note): W70", line)]
    draws = any("W705" in line for line in told)  # Paddle draws other numbers than Weft
    difference = max(worst(theirs[rank], ours[rank]) for rank in range(2))
    if not draws and not difference <= TOLERANCE:
        return "failed: Paddle and Weft differ by %g" % difference
    with open(path("loss"), encoding="utf-8") as file:
        expected = [float(word) for word in file.read().split()]
    difference = worst([(a + b) / 2 for a, b in zip(*theirs)], expected)
    if told:
        return "told: %s (differs by %g)" % (told[0], difference)
    if not difference <= TOLERANCE:
        return "failed: differs from one device by %g" % difference
    return "exact"


def main():
    transpile, weft, *archives = map(os.path.abspath, sys.argv[1:])
    ranks, details, failed, ran = Ranks(), [], False, 0
    with tempfile.TemporaryDirectory() as directory:
        for archive in archives:
            with tarfile.open(archive) as file:
                file.extractall(directory)
        names = sorted(name for name in os.listdir(directory)
                       if os.path.exists(os.path.join(directory, name, "loss")))
        names = [name for name in names if name not in SKIPPED]
        print("%-30s %6s %6s %6s %6s" % ("of %d models" % len(names), "exact", "told", "failed",
                                         "refused"))
        for title, options in CONFIGURATIONS:
            count = dict.fromkeys(("exact", "told", "failed", "refused"), 0)
            for name in names:
                outcome = run(transpile, weft, options, os.path.join(directory, name), name,
                              ranks)
                count[outcome.split(":")[0]] += 1
                if outcome != "exact":
                    details.append("%s, %s: %s" % (title, name, outcome))
            print("%-30s %6d %6d %6d %6d" % (title, count["exact"], count["told"],
                                             count["failed"], count["refused"]), flush=True)
            failed = failed or count["failed"] > 0
            ran += count["exact"] + count["told"]
    ranks.stop()
    print("\n".join(details))
    return 1 if failed or ran == 0 else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
