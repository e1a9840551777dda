#!/usr/bin/env python3
"""Makes one call of the C library fail, for each call that a command makes, and looks at how the command ends.

    fault_sweep.py INJECT TRANSPILE WEFT PROGRAMS [--all] [--smallest] [--command NAME] [--call CALL] [--error ERROR]
                   [--draws N]

INJECT is the library of inject.cc; PROGRAMS a folder with main.pb, startup.pb, init.params and feeds.npz. Without
--all, at most N calls of each function are drawn, the same ones every time. --smallest: the commands get a program of one
op. A command must end as without the fault, or
with its exit status of errors, a line that names the cause, outputs that are all old or all new, and nothing left behind.
"""
import argparse
import collections
import errno
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ERRORS = {
    "accept": ["EMFILE", "ECONNABORTED", "EINTR"],
    "close": ["EIO", "ENOSPC"],
    "connect": ["ECONNREFUSED", "ETIMEDOUT", "EINTR"],
    "fsync": ["EIO", "ENOSPC"],
    "ftruncate": ["ENOSPC", "EIO"],
    "malloc": ["ENOMEM"],
    "memfd_create": ["EMFILE", "ENOMEM"],
    "mmap": ["ENOMEM"],
    "open": ["EACCES", "EMFILE", "ENOMEM", "EIO"],
    "poll": ["EINTR", "ENOMEM"],
    "pwrite": ["ENOSPC", "EIO", "EINTR", "SHORT"],
    "read": ["EIO", "EINTR", "SHORT"],
    "rename": ["EACCES", "EIO", "ENOSPC"],
    "socket": ["EMFILE", "ENOMEM"],
    "stat": ["EIO", "EACCES"],
    "sys_close": ["EIO"],
    "sys_open": ["EACCES", "EMFILE", "ENOENT"],
    "sys_read": ["EIO", "EINTR", "SHORT"],
    "sys_stat": ["EIO", "EACCES"],
    "sys_write": ["ENOSPC", "EIO", "EINTR", "SHORT"],
    "thread": ["EAGAIN"],
    "write": ["ENOSPC", "EIO", "EDQUOT", "EINTR", "SHORT"],
}
# What setrlimit leaves to the whole command; the loader of the system may end it with 127.
LIMITS = {
    "NOFILE": list(range(3, 40)),
    "AS": [mib << 20 for mib in range(30, 600, 10)],
    "FSIZE": [0, 1, 100, 1000, 10000, 100000],
}
LIMITED = ["Too many open files", "out of memory", "Cannot allocate memory", "File too large", "cannot start a thread",
           "Resource temporarily unavailable", "Malloc failure", "error while loading shared libraries",
           "the limit of files (ulimit -f)"]
# Come before a call of one of these functions. SIGKILL may leave a temporary file, which the next run removes.
SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]
SIGNALLED = ["close", "fsync", "malloc", "open", "poll", "read", "rename", "write"]
# Beside the system's words for the error number. The last two are libzip's.
CAUSES = ["out of memory", "cannot start a thread", "Malloc failure", "Not a zip archive"]
OLD = b"what was here before"
TIMES = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")


def is_alive(group):
    """Whether any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True



class Command:
    """A command line in a folder of its own, and what it writes there.

    Outputs of one group are replaced together. `printed`: standard output is the same every time. `when_stopped`:
    outputs that a command writes also when a signal stops it, with what there is. `logs`: outputs to which it adds lines
    while it runs.
    """

    def __init__(self, name, argv, groups=(), statuses=(1,), printed=True, inputs=(), rank=None,
                 when_stopped=(), logs=()):
        self.name, self.argv, self.groups, self.statuses = name, argv, groups, statuses
        self.printed, self.inputs, self.rank, self.when_stopped = printed, inputs, rank, when_stopped
        self.logs = logs


class Outcome:
    def __init__(self, status, stdout, stderr, files, counts):
        self.status, self.stdout, self.stderr, self.files, self.counts = status, stdout, stderr, files, counts


class Sweep:
    def __init__(self, inject, scratch):
        self.inject, self.scratch, self.runs = inject, scratch, 0

    def run(self, command, fault=None):
        folder = os.path.join(self.scratch, "run")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for path in command.inputs:
            shutil.copy(path, folder)
        for path in [path for group in command.groups for path in group] + list(command.logs):
            with open(os.path.join(folder, path), "wb") as f:
                f.write(OLD)
        counts_path = os.path.join(self.scratch, "counts")
        if os.path.exists(counts_path):
            os.remove(counts_path)
        environment = dict(os.environ, LD_PRELOAD=self.inject, FAULT_COUNTS=counts_path)
        limit = None
        if command.rank is None:
            environment["FAULT_SYSTEM"] = "1"
        else:
            environment["FAULT_RANK"] = command.rank
        if fault is not None:
            call, at, error = fault
            environment.update(FAULT_CALL=call, FAULT_AT=str(at))
            if error == "limit":
                limit = lambda: resource.setrlimit(getattr(resource, "RLIMIT_" + call), (at, at))
            elif error in SIGNALS:
                environment["FAULT_SIGNAL"] = str(int(getattr(signal, error)))
            else:
                environment["FAULT_ERROR"] = error if error == "SHORT" else str(getattr(errno, error))
        self.runs += 1
        process = subprocess.Popen(command.argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=limit)
        try:
            stdout, stderr = process.communicate(timeout=60)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            status = "no end within 60 s"
        # Ranks of a launcher that a fault has ended see that its link is gone, and end, too.
        deadline = time.monotonic() + 2
        while is_alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        counts = collections.Counter()
        if os.path.exists(counts_path):
            with open(counts_path) as f:
                for line in f:
                    words = line.split()
                    if len(words) == 2:  # a limit may cut the file
                        counts[words[0]] += int(words[1])
        files = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as f:
                files[name] = f.read()
                if name.endswith((".json", ".jsonl")):
                    files[name] = TIMES.sub(b"0", files[name])
        return Outcome(status, stdout, stderr.decode(errors="replace"), files, counts)

    def complaint(self, command, good, fault, found):
        """Returns what is wrong with how the command ended, or None."""
        call, _, error = fault
        groups = command.groups
        if error in SIGNALS:
            groups = [group for group in groups if not set(group) & set(command.when_stopped)]
        if error == "SIGKILL":
            # Nothing can be done between two names.
            groups = [group for group in groups if len(group) == 1]
            found.files = {name: text for name, text in found.files.items() if not name.endswith(".tmp")}
        if set(found.files) != set(good.files):
            extra, lost = set(found.files) - set(good.files), set(good.files) - set(found.files)
            return f"left behind: {sorted(extra)}, gone: {sorted(lost)}"
        for path in map(os.path.basename, command.inputs):
            if found.files[path] != good.files[path]:
                return f"{path}: the input is changed"
        for group in groups:
            is_old = [found.files[path] == OLD for path in group]
            is_new = [found.files[path] == good.files[path] for path in group]
            if not all(old or new for old, new in zip(is_old, is_new)):
                return f"{group}: neither old nor new"
            if not all(is_old) and not all(is_new):
                return f"{group}: some are old and some new"
            if found.status == good.status and not all(is_new):
                return f"{group}: success is reported, but nothing is written"
        for path in command.logs:
            lines = found.files[path].splitlines(keepends=True)
            is_begun = lines == good.files[path].splitlines(keepends=True)[:len(lines)]
            if not is_begun and found.files[path] != OLD:
                return f"{path}: a line is missing, cut or wrong"
            if found.status == good.status and found.files[path] != good.files[path]:
                return f"{path}: success is reported, but lines are missing"
        if found.status == good.status:
            # weft stats prints the memory of a run, or that it cannot be estimated.
            if command.printed and found.stdout != good.stdout and b"out of memory" not in found.stdout:
                return "success is reported, but something else is printed"
            return None
        if error in SIGNALS:
            number = int(getattr(signal, error))
            # SIGHUP ends weft launch like SIGTERM.
            expected = [-number, 128 + number] + [128 + signal.SIGTERM] * (error == "SIGHUP")
            return None if found.status in expected else f"exit status {found.status}"
        lines = [line for line in found.stderr.splitlines() if "error:" in line or "error while" in line]
        if error == "limit":
            if found.status not in (*command.statuses, 127):
                return f"exit status {found.status}"
            return None if any(cause in line for cause in LIMITED for line in lines) else "no line with the cause"
        if found.status not in command.statuses:
            return f"exit status {found.status}"
        if not lines:
            return "no line with an error"
        if error != "SHORT":
            causes = CAUSES + [os.strerror(getattr(errno, error))]
            if not any(cause in line for cause in causes for line in lines):
                return "the error does not say the cause"
        return None

    def sweep(self, command, calls, only, draws):
        good = self.run(command)
        if not good.counts:
            raise SystemExit(f"{command.name}: the library was not loaded\n{good.stderr}")
        complaints = []
        tried = collections.Counter()
        chooser = random.Random(7)
        errors = {call: [error for error in ERRORS[call] + (SIGNALS if call in SIGNALLED else [])
                         if only is None or error in only] for call in ERRORS}
        for call in sorted(ERRORS) if calls is None else [call for call in calls if call in ERRORS]:
            numbers = range(1, good.counts[call] + 1)
            if draws is not None and len(numbers) > draws:  # the first is the least prepared for
                numbers = sorted({1, *chooser.sample(numbers, draws)})
            for at in numbers:
                for error in errors[call]:
                    fault = (call, at, error)
                    found = self.run(command, fault)
                    tried[call] += 1
                    complaint = self.complaint(command, good, fault, found)
                    if complaint is not None:
                        complaints.append(f"{command.name}: {call} {at} {error}: {complaint}")
                        print(complaints[-1], *found.stderr.splitlines()[-4:], sep="\n    ", flush=True)
        for resource_name, values in LIMITS.items() if calls is None or "limits" in calls else ():
            if resource_name == "AS":  # the kernel maps the program before it has a way to say that it cannot
                values = [value for value in values if value > os.path.getsize(command.argv[0]) + (20 << 20)]
            for value in values if draws is None else sorted(chooser.sample(values, min(draws, len(values)))):
                fault = (resource_name, value, "limit")
                found = self.run(command, fault)
                tried[resource_name] += 1
                complaint = self.complaint(command, good, fault, found)
                if complaint is not None:
                    complaints.append(f"{command.name}: {resource_name} {value}: {complaint}")
                    print(complaints[-1], *found.stderr.splitlines()[-4:], sep="\n    ", flush=True)
        print(f"{command.name}: {sum(tried.values())} faults, {len(complaints)} complaints;",
              ", ".join(f"{call} {tried[call]} (of {good.counts[call]} calls)" for call in sorted(tried)), flush=True)
        return complaints


def commands(transpile, weft, programs, scratch):
    main, startup, params, feeds = (os.path.join(programs, name)
                                    for name in ("main.pb", "startup.pb", "init.params", "feeds.npz"))
    out, out_startup = os.path.join(scratch, "out.pb"), os.path.join(scratch, "out_startup.pb")
    checkpoint = os.path.join(scratch, "resumed.ckpt")
    rewrite = [transpile, "--mode", "grad_allreduce", "--nranks", "2", "--startup_in", startup]
    run = [weft, "run", out, "--startup", out_startup, "--params", params, "--feeds", feeds]
    launch = [weft, "launch", "-n", "2", "--grace_s", "5", "--"] + run + ["--steps", "2", "--save", "saved.npz"]
    subprocess.run(rewrite + ["--startup_out", out_startup, main, out], check=True)
    subprocess.run(run + ["--ranks", "2", "--steps", "1", "--checkpoint", checkpoint], check=True,
                   stdout=subprocess.DEVNULL)
    return [
        Command("transpile", rewrite + ["--startup_out", "startup.pb", main, "main.pb"],
                groups=[["startup.pb", "main.pb"]]),
        Command("show", [weft, "show", out]),
        Command("verify", [weft, "verify", out, "--startup", out_startup, "--original", main]),
        Command("diff", [weft, "diff", main, main], statuses=(2,)),
        Command("stats", [weft, "stats", out]),
        Command("view", [weft, "view", out, "-o", "view.html"], groups=[["view.html"]]),
        Command("run", run + ["--ranks", "2", "--steps", "2", "--save", "saved.npz", "--checkpoint", "kept.ckpt"],
                groups=[["saved.npz"], ["kept.ckpt"]], printed=False, when_stopped=["kept.ckpt"]),
        Command("resume", run + ["--ranks", "2", "--steps", "2", "--resume", "resumed.ckpt",
                               "--save", "saved.pdparams"],
                groups=[["saved.pdparams", "saved.pdopt"]], printed=False, inputs=[checkpoint]),
        Command("files", run + ["--ranks", "2", "--steps", "2", "--fetch", "fc_0.tmp_0", "--fetch_npz", "fetched.npz",
                                "--trace", "trace.json", "--profile", "profile.json", "--metrics", "metrics.jsonl"],
                groups=[["fetched.npz"], ["trace.json"], ["profile.json"]], printed=False, logs=["metrics.jsonl"]),
        # The faults are those of the launcher, and of the process of each rank. 126: cannot start the command.
        Command("launch", launch, groups=[["saved.npz"]], statuses=(1, 126), printed=False, rank="launcher"),
        Command("launched_0", launch, groups=[["saved.npz"]], printed=False, rank="0"),
        Command("launched_1", launch, groups=[["saved.npz"]], printed=False, rank="1"),
    ]


SMALLEST = """program {
  block 0 parent=-1 {
    var out : fp32[2]
    Out=[out] = fill_constant() role=forward {dtype=5, shape=longs[2], value=0.5f}
  }
}
"""


def smallest_commands(transpile, weft, scratch):
    main = os.path.join(scratch, "smallest.prog")
    with open(main, "w", encoding="utf-8") as file:
        file.write(SMALLEST)
    return [
        Command("show", [weft, "show", main]),
        Command("verify", [weft, "verify", main]),
        Command("run", [weft, "run", main, "--steps", "1", "--fetch", "out"], printed=False),
    ]


def main():
    parser = argparse.ArgumentParser()
    for name in ("inject", "transpile", "weft", "programs"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--smallest", action="store_true")
    parser.add_argument("--command", action="append")
    parser.add_argument("--call", action="append")
    parser.add_argument("--error", action="append")
    parser.add_argument("--draws", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sweep = Sweep(arguments.inject, scratch)
        complaints = []
        tools = (arguments.transpile, arguments.weft)
        for command in (smallest_commands(*tools, scratch) if arguments.smallest else
                        commands(*tools, arguments.programs, scratch)):
            if arguments.command is None or command.name in arguments.command:
                complaints += sweep.sweep(command, arguments.call, arguments.error, None if arguments.all else arguments.draws)
        print(f"{sweep.runs} runs, {len(complaints)} complaints")
        return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
