#!/usr/bin/env python3
"""Paddle 3 trains small programs of its own format, PIR, as Weft rewrites them, one for each op.

usage: run_pir_ops_in_paddle.py TRANSPILE WEFT OPS.tar.xz...

TRANSPILE and WEFT are the tools. OPS.tar.xz holds <model>/main.json, startup.json, params.npz,
feeds.npz and, in loss, what Paddle has found on one device with the whole batch. Needs Python with
PaddlePaddle 3.3 for the CPU.

Two processes load the rewritten files of each model as they are, and communicate by Gloo, each with its
half of every batch. Of each model, with the default options and with those that make its loss exact:

- The loss of each process is that of the same rank in `weft run` (1e-5, relative).
- Where `transpile` warns of nothing, the mean of both is the loss of one device (1e-4).

Prints a table; "exact" counts models of which the second holds, too. Exit status 1 if anything failed,
or if nothing ran.
"""
import json
import os
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


def losses_of(main):
    """What a gradient starts from: results whose gradient is 1."""
    found = []
    for op in main.global_block().ops:
        if op.name() != "pd_op.full_like" or op.operand_source(0).shape not in ([], [1]):
            continue
        if op.operand_source(1).get_defining_op().attrs().get("value") == 1.0:
            found.append(op.operand_source(0))
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
        losses, names = losses_of(main), pir.fed(main)
        assert losses, "no loss"
        for step in range(steps):
            values = exe.run(main, feed=pir.feed_of(feeds, names, step, rank), fetch_list=losses)
            found.append([float(numpy.asarray(value).reshape(())) for value in values])
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

    @staticmethod
    def _answer(process):
        import select

        while True:
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            if not ready:
                return {"error": "no result within %d seconds" % SECONDS}
            line = process.stdout.readline()
            if not line:
                return {"error": "the process ended with %d" % process.wait()}
            if line.startswith("{"):
                return json.loads(line)

    def stop(self):
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes = []


def weft_losses(weft, folder):
    """[losses of the steps of rank 0, of rank 1]; or a message."""
    path = lambda name: os.path.join(folder, name)
    done = subprocess.run(
        [weft, "run", "--ranks", "2", "--startup", path("out_startup.json"), "--params",
         path("params.npz"), "--feeds", path("feeds.npz"), "--metrics", path("metrics.jsonl"),
         path("out.json")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "weft run: " + done.stderr.strip()[-300:]
    found = [[], []]
    with open(path("metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            found[line["rank"]].append([v for values in line["fetch"].values() for v in values])
    return found


def worst(found, expected):
    """The largest relative difference."""
    if len(found) != len(expected):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, expected))


def run(transpile, weft, options, folder, ranks):
    """"passed", "exact", "warned", "refused: ..." or "failed: ..."."""
    path = lambda name: os.path.join(folder, name)
    done = subprocess.run(
        [transpile, "--mode", "grad_allreduce", "--device_kind", "cpu", "--nranks", "2"] + options +
        ["--startup_in", path("startup.json"), "--startup_out", path("out_startup.json"),
         path("main.json"), path("out.json")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "refused: " + done.stderr.strip().splitlines()[-1]
    ours, theirs = weft_losses(weft, folder), ranks.train(folder)
    for losses in (ours, theirs):
        if isinstance(losses, str):
            return "failed: " + losses
    difference = max(worst([v for step in theirs[rank] for v in step],
                           [v for step in ours[rank] for v in step]) for rank in range(2))
    if not difference <= 1e-5:
        return "failed: Paddle and Weft differ by %g" % difference
    with open(path("loss"), encoding="utf-8") as file:
        expected = [float(word) for word in file.read().split()]
    means = [(a[0] + b[0]) / 2 for a, b in zip(*theirs)]
    difference = worst(means, expected)
    warnings = [line for line in done.stderr.splitlines() if "warning: W" in line]
    if warnings:
        return "warned: %s (differs by %g)" % (warnings[0], difference)
    if not difference <= 1e-4:
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
        print("%-30s %6s %6s %6s %6s" % ("of %d models" % len(names), "exact", "warned", "failed",
                                         "refused"))
        for title, options in CONFIGURATIONS:
            count = dict.fromkeys(("exact", "warned", "failed", "refused"), 0)
            for name in names:
                outcome = run(transpile, weft, options, os.path.join(directory, name), ranks)
                count[outcome.split(":")[0]] += 1
                if outcome != "exact":
                    details.append("%s, %s: %s" % (title, name, outcome))
            print("%-30s %6d %6d %6d %6d" % (title, count["exact"], count["warned"],
                                             count["failed"], count["refused"]), flush=True)
            failed = failed or count["failed"] > 0
            ran += count["exact"] + count["warned"]
    ranks.stop()
    print("\n".join(details))
    return 1 if failed or ran == 0 else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
