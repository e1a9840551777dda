#!/usr/bin/env python3
"""Checks and measures Weft on a GPU: called by gpu_check.sh, in a folder of pack_gpu_check.sh.

Parts run one after the other. Each has a limit of time and is judged alone. Prints a table and writes it
as JSON. The exit status is 0 if parts passed and none failed, 1 if one did, and 2 if there is nothing
to check or none ran.
"""
import argparse
import array
import contextlib
import ctypes
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

from compare_losses import read_losses
import gpu_check_ops

# What Weft loads when it runs.
LIBRARIES = {"cuBLASLt": "libcublasLt.so.{cuda}", "NCCL": "libnccl.so.2"}
TESTS = ["gpu_kernels_test", "cuda_stream_test", "train_placed_cuda_test", "nccl_communicator_test"]
MAY_SKIP = {"NcclLibraryTest.InterfaceIsThatOfTheHeader"}  # of the build, not of the GPU
# Feeds of models without any: dimensions after the batch, and the type.
IMAGES = {"x": ([3, 224, 224], "f"), "y": ([1], "q")}
TOKENS = {"ids": ([128], "q"), "pos": ([128], "q"), "label": ([128, 1], "q")}
SMALL_IMAGES = {"x": ([3, 32, 32], "f"), "y": ([1], "q")}
# Largest difference of a loss from the CPU's, relative to the loss of the first step. Training of
# resnet18_cifar amplifies rounding: the CPU with other vector instructions differs by 2.5e-3.
TRAINED = {"mlp_adam": 1e-4, "lenet_momentum": 1e-4, "resnet18_cifar": 1e-2, "bert_tiny": 1e-4}
AMP = {"conv_amp_bf16": 2e-2, "conv_amp_fp16": 2e-2}
STEPS = 20
# Model, feeds, batch, program of each precision.
TIMED = [
    ("resnet18", SMALL_IMAGES, 256, {"fp32": "resnet18_cifar", "tf32": "resnet18_cifar"}),
    ("resnet50", IMAGES, 64, {"fp32": "resnet50", "tf32": "resnet50", "bf16": "resnet50_bf16"}),
    ("bert_base", TOKENS, 32, {"fp32": "bert_base", "tf32": "bert_base", "bf16": "bert_base_bf16"}),
]
WARM_UP = 5  # steps that do not count


class Skipped(Exception):
    """A part that cannot run here."""


class Failed(Exception):
    """A part that ran and is not right."""


def write_npz(path, arrays):
    """Writes {name: (dimensions, array.array)} as NumPy does."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (dims, values) in arrays.items():
            kind = {"f": "<f4", "q": "<i8"}[values.typecode]
            header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
                kind, "".join("%d, " % d for d in dims))
            header += " " * (-(len(header) + 11) % 64) + "\n"
            archive.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) +
                             header.encode() + values.tobytes())


def write_feeds(path, feeds, batch):
    """Writes a batch: numbers in [0, 1), and ids below 2, which every table and set of labels has."""
    draws, arrays = random.Random(1), {}
    for name, (dims, kind) in feeds.items():
        size = batch
        for dim in dims:
            size *= dim
        some = min(size, 4096)
        values = array.array(kind, [draws.random() if kind == "f" else draws.randrange(2)
                                    for _ in range(some)])
        arrays["0/" + name] = ([batch] + dims, (values * (size // some + 1))[:size])
    write_npz(path, arrays)


class Machine:
    """What the parts run on, and how."""

    def __init__(self, args, folder, scratch):
        self.device, self.folder, self.scratch = args.device, folder, scratch
        self.begun = time.monotonic()
        self.seconds = args.minutes * 60
        with open(self.path("manifest.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        self.libraries = find_libraries(args.lib_dir, self.manifest["cuda"])
        folders = [folder + "/lib"] + [os.path.dirname(p) for p in self.libraries.values()]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=":".join(dict.fromkeys(
            folders + os.environ.get("LD_LIBRARY_PATH", "").split(":"))).strip(":"))
        self.part_begun = self.part_ends = 0  # of each part
        self.copied = 0  # bytes a second
        self.gpu = None if self.device == "cpu" else find_gpu()

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run(self, command, environment=None):
        """The exit status and the output of a command, which ends with its part's time."""
        with tempfile.TemporaryFile(dir=self.scratch) as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, cwd=self.folder,
                                       env=dict(self.environment, **(environment or {})),
                                       start_new_session=True)
            try:
                is_cut = False
                process.wait(timeout=max(0.1, self.part_ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                is_cut = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if is_cut:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=5)  # what waits in the driver may not end
            output.seek(0)
            text = output.read().decode(errors="replace")
        if is_cut:
            raise Failed("cut off after %.0f s: %s" % (time.monotonic() - self.part_begun,
                                                       last_line(text)))
        return process.returncode, text

    def weft(self, program, *flags, device=None, startup=True):
        """Runs `weft run` on a program of the folder, or at a path, and returns what it printed."""
        device = device or self.device
        main = self.path("programs", program, "main.pb") if "/" not in program else program
        start = main.replace("main.", "startup.")
        status, output = self.run(
            [self.path("bin/weft"), "run", main, "--device", device, "--quiet"] +
            (["--startup", start] if startup else []) + list(flags))
        if status != 0:
            raise Failed(last_line(output, "error") or "exit status %d" % status)
        return output

    def losses(self, program, name, *flags, device=None):
        """The losses and the median time of a training, from its metrics."""
        path = os.path.join(self.scratch, name + ".jsonl")
        self.weft(program, "--steps", str(STEPS), "--metrics", path, *flags, device=device)
        with open(path, encoding="utf-8") as lines:
            times = [record["ms"] for record in map(json.loads, lines)
                     if record["rank"] == 0 and record["step"] >= WARM_UP]
        return read_losses(path), statistics.median(times)

    def feeds(self, program, feeds=None, batch=32):
        """The flag that feeds a model: its own file, or one that is written here."""
        path = self.path("programs", program, "feeds.npz")
        if feeds is not None:
            path = os.path.join(self.scratch, "feeds.npz")
            write_feeds(path, feeds, batch)
        return ["--feeds", path]


def last_line(text, word=""):
    lines = [line for line in text.splitlines() if line.strip() and word in line]
    return lines[-1].strip() if lines else ""


def library_folders():
    """Where libraries of NVIDIA are: toolkits, PyTorch's wheels, the system's."""
    for root in [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
                 *sorted(glob.glob("/usr/local/cuda*"), reverse=True)]:
        yield from [root + "/lib64", root + "/lib"] if root else []
    for packages in (sys.path + glob.glob("/usr/*/lib/python3*/*-packages") +
                     glob.glob("/opt/*/lib/python3*/site-packages")):
        yield from glob.glob(packages + "/nvidia/*/lib")
    yield from ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"]


def find_libraries(lib_dir, cuda):
    """The path of each library that is found, with the version that the build loads."""
    folders = ([lib_dir] if lib_dir else []) + list(library_folders())
    found = {}
    for name, file in LIBRARIES.items():
        paths = [os.path.join(folder, file.format(cuda=cuda)) for folder in folders]
        path = next(filter(os.path.exists, paths), None)
        if path:
            found[name] = os.path.abspath(path)
    return found


def find_gpu():
    """The first GPU, asked of the driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(nothing("no driver: %s" % error))
    device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        sys.exit(nothing("the driver finds no GPU; see nvidia-smi"))
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetName(name, 256, device)
    return {"name": name.value.decode(),
            "driver_cuda": "%d.%d" % (version.value // 1000, version.value % 1000 // 10)}


def nothing(why):
    print("gpu_check.sh: error: %s" % why, file=sys.stderr)
    return 2


# Parts: each takes the machine and returns what to print and what JSON holds besides.


def run_test(machine, name):
    """A test of devices. What skips itself has tested nothing."""
    status, output = machine.run([machine.path("bin", name)], {"TEST_TMPDIR": machine.scratch})
    passed = re.search(r"\[  PASSED  \] (\d+) test", output)
    if status != 0 or not passed:
        raise Failed(last_line(output, "FAILED") or last_line(output) or "exit status %d" % status)
    skipped = re.search(r"\[  SKIPPED \] (\d+) test", output)
    ran, left = int(passed.group(1)), int(skipped.group(1)) if skipped else 0
    if ran == 0:
        raise Failed("all %d tests skipped themselves" % left)
    names = set(re.findall(r"^\[  SKIPPED \] ([\w/]+\.[\w/]+)", output, re.M)) - MAY_SKIP
    if names:
        raise Failed("skipped on this GPU: " + ", ".join(sorted(names)))
    return "%d passed, %d skipped" % (ran, left), {"passed": ran, "skipped": left}


def beside_cpu(machine, program, limit, feeds, ranks="1", backend="local"):
    """Trains on the device and on the CPU, and compares the losses."""
    flags = feeds + ["--ranks", ranks, "--backend"]
    ours, ms = machine.losses(program, "device", *flags, backend)
    cpu, cpu_ms = machine.losses(program, "cpu", *flags, "local", device="cpu")
    if len(ours) != STEPS or len(cpu) != STEPS:
        raise Failed("%d and %d losses, expected %d" % (len(ours), len(cpu), STEPS))
    differences = [abs(a - b) / abs(cpu[0]) for a, b in zip(ours, cpu)]
    for step, difference in enumerate(differences):
        if not difference <= limit:  # so that NaN fails
            raise Failed("step %d: loss %.7g, the CPU's is %.7g; expected a difference of at most %g "
                         "of the first" % (step, ours[step], cpu[step], limit))
    figures = {"difference": max(differences), "limit": limit, "losses": ours, "cpu_losses": cpu,
               "ms": ms, "cpu_ms": cpu_ms}
    return "difference %.1e of %g, %.3f ms a step" % (max(differences), limit, ms), figures


def graphs(machine, program):
    """Graphs change no bit."""
    feeds = machine.feeds(program)
    modes = {}
    for mode in ("off", "auto", "on"):
        modes[mode] = machine.losses(program, mode, *feeds, "--cuda_graph", mode)
        if modes[mode][0] != modes["off"][0]:
            raise Failed("--cuda_graph %s: the losses are not those of off" % mode)
    return (", ".join("%s %.3f ms" % (mode, ms) for mode, (_, ms) in modes.items()),
            {mode: ms for mode, (_, ms) in modes.items()})


def bad_label(machine):
    """A label outside the classes ends the run, with an error that says where."""
    path = os.path.join(machine.scratch, "bad_label.npz")
    write_npz(path, {"0/x": ([4, 784], array.array("f", [0.5] * 3136)),
                     "0/y": ([4, 1], array.array("q", [0, 1, 10, 2]))})
    try:
        machine.weft("mlp_adam", "--feeds", path, "--steps", "2")
    except Failed as failure:
        if not re.search(r"rank 0\b.*\bop \d+ \(softmax_with_cross_entropy\).*\b10\b", str(failure)):
            raise Failed("the error names no rank, op and label: %s" % failure) from failure
        machine.weft("mlp_adam", *machine.feeds("mlp_adam"), "--steps", "2")  # the device lives on
        return str(failure), {}
    raise Failed("label 10 of 10 classes: expected an error, found none")


def compute_sanitizer(machine):
    tools = [shutil.which("compute-sanitizer")] + glob.glob("/usr/local/cuda*/bin/compute-sanitizer")
    tool = next(filter(None, tools), None)
    if tool is None:
        raise Skipped("no compute-sanitizer")
    main = machine.path("programs/lenet_momentum/main.pb")
    status, output = machine.run(
        [tool, "--error-exitcode", "9", machine.path("bin/weft"), "run", main, "--startup",
         main.replace("main.", "startup."), "--device", machine.device, "--steps", "2", "--quiet"] +
        machine.feeds("lenet_momentum"))
    if status != 0 or "ERROR SUMMARY: 0 errors" not in output:
        raise Failed(last_line(output, "=========") or last_line(output) or "no summary")
    return last_line(output, "ERROR SUMMARY").strip("= "), {}


def time_ops(machine, names):
    """Times ops by programs of their own."""
    figures = []
    for case in gpu_check_ops.cases(names, is_small=machine.device == "cpu"):
        main = os.path.join(machine.scratch, "main.prog")
        gpu_check_ops.write(case, main, main.replace("main.", "startup."))
        profile = os.path.join(machine.scratch, "profile.json")
        flags = ["--tf32"] if case.precision == "tf32" and machine.device == "gpu" else []
        machine.weft(main, "--steps", "8", "--fetch", "done", "--profile", profile, *flags)
        with open(profile, encoding="utf-8") as file:
            ops = json.load(file)["ops"]
        for figure in gpu_check_ops.figures(case, ops, machine.gpu["name"] if machine.gpu else "",
                                            machine.copied):
            if figure["name"] == "copy":
                machine.copied = figure["bytes_per_s"]
            figures.append(figure)
    return "\n".join([""] + [gpu_check_ops.text(f) for f in figures]), {"ops": figures}


def time_steps(machine, feeds, batch, program, precision):
    if machine.device == "cpu":
        batch = 2
    flags = machine.feeds(program, feeds, batch)
    if machine.device == "gpu":
        flags += ["--cuda_graph", "auto"] + (["--tf32"] if precision == "tf32" else [])
    _, ms = machine.losses(program, "times", *flags)
    return "%.2f ms a step, batch %d" % (ms, batch), {"ms": ms, "batch": batch}


def time_torch(machine, model, batch):
    """PyTorch's steps, of which those count that came in time."""
    environment = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}  # not what is packed
    status, _ = machine.run(
        ["python3", "-c", "import torch; assert torch.cuda.is_available()"], environment)
    if status != 0:
        raise Skipped("no PyTorch with CUDA in python3")
    path = os.path.join(machine.scratch, "torch.jsonl")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_check_torch.py")
    failure = Failed("no times")
    try:
        status, output = machine.run(["python3", script, model, str(batch), path], environment)
        if status != 0:
            failure = Failed(last_line(output) or "exit status %d" % status)
    except Failed as cut:
        failure = Skipped(str(cut))
    lines = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        os.remove(path)
    if not lines:
        raise failure
    return ", ".join("%(precision)s %(how)s %(ms).2f ms" % line for line in lines), {"torch": lines}


def parts(device):
    """Name, limit in seconds of nine minutes, needed libraries, function."""
    products, on_gpu = ["cuBLASLt"], device == "gpu"
    for name in TESTS if on_gpu else ():
        needed = {"cuda_stream_test": [], "nccl_communicator_test": ["NCCL"]}.get(name, products)
        yield "test " + name, 30, needed, lambda m, n=name: run_test(m, n)
    for model, limit in TRAINED.items():
        yield "losses " + model, 30, products, (
            lambda m, p=model, l=limit: beside_cpu(m, p, l, m.feeds(p)))
    for model in ("mlp_adam", "lenet_momentum") if on_gpu else ():
        yield "graphs " + model, 20, products, lambda m, p=model: graphs(m, p)
    for ranks in ("2", "4"):
        yield "ranks %s on one device" % ranks, 20, products, (
            lambda m, r=ranks: beside_cpu(m, "mlp_adam_ranks", 1e-4, m.feeds("mlp_adam"), ranks=r))
    if on_gpu:
        yield "NCCL, one rank", 20, products + ["NCCL"], (
            lambda m: beside_cpu(m, "mlp_adam_ranks", 1e-4, m.feeds("mlp_adam"),
                                 backend="nccl"))
    small = {"x": ([3, 8, 8], "f"), "y": ([1], "q")}
    for model, limit in AMP.items():
        yield "AMP " + model, 20, products, (
            lambda m, p=model, l=limit: beside_cpu(m, p, l, m.feeds(p, small)))
    yield "bad label", 15, products, bad_label
    if on_gpu:
        yield "compute-sanitizer", 40, products, compute_sanitizer
    for title, needed, names in gpu_check_ops.GROUPS:
        yield title, 40, needed, lambda m, n=names: time_ops(m, n)
    for model, feeds, batch, programs in TIMED if on_gpu else TIMED[:1]:
        for precision, program in programs.items():
            yield "step %s %s" % (model, precision), 25, products, (
                lambda m, f=feeds, b=batch, p=program, r=precision: time_steps(m, f, b, p, r))
    for model, _, batch, _ in TIMED[1:] if on_gpu else ():
        yield "PyTorch " + model, 60, [], lambda m, n=model, b=batch: time_torch(m, n, b)


def run_part(machine, name, limit, needed, function):
    """What became of a part."""
    begun = machine.part_begun = time.monotonic()
    left = machine.begun + machine.seconds - begun
    limit *= machine.seconds / 540
    machine.part_ends = begun + min(limit, left)
    missing = [library for library in needed if library not in machine.libraries]
    result = {"part": name, "result": "passed"}
    try:
        if missing and machine.device == "gpu":
            raise Skipped("no " + ", ".join(missing))
        if left < 1:
            raise Skipped("no time left")
        result["text"], figures = function(machine)
        result.update(figures)
    except Skipped as skipped:
        result.update(result="skipped", text=str(skipped))
    except Failed as failed:
        result.update(result="failed", text=str(failed))
        if left < limit and time.monotonic() >= machine.part_ends:  # it had less time than it may take
            result.update(result="skipped", text="no time left")
    except (OSError, ValueError, KeyError) as error:
        result.update(result="failed", text="%s: %s" % (type(error).__name__, error))
    result["seconds"] = round(time.monotonic() - begun, 2)
    return result


def unpack(folder):
    """The folder of what is packed beside this script, unpacked the first time; None if nothing is."""
    unpacked = os.path.join(folder, "unpacked")
    packed = os.path.join(folder, "files.tar.xz")
    if not os.path.exists(unpacked) and os.path.exists(packed):
        with tempfile.TemporaryDirectory(dir=folder) as new:
            with tarfile.open(packed) as archive:
                safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                archive.extractall(new + "/files", **safe)
            os.rename(new + "/files", unpacked)
    return unpacked if os.path.exists(unpacked) else None


def main(folder):
    parser = argparse.ArgumentParser(prog="gpu_check.sh")
    parser.add_argument("--minutes", type=float, default=9, help="the time of all parts (9)")
    parser.add_argument("--lib_dir", help="a folder of cuBLASLt and NCCL")
    parser.add_argument("--json", default="gpu_check.json", help="where the results go (gpu_check.json)")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu",
                        help="cpu: to test this script where there is no GPU")
    args = parser.parse_args()
    folder = unpack(folder)
    if folder is None:
        return nothing("no files.tar.xz here; scripts/pack_gpu_check.sh FOLDER makes a folder to run in")
    with tempfile.TemporaryDirectory(prefix="gpu_check") as scratch:
        machine = Machine(args, folder, scratch)
        results = []
        print("%s; %s" % (json.dumps(machine.gpu), ", ".join(
            "%s %s" % (n, machine.libraries.get(n, "missing")) for n in LIBRARIES)))
        for part in parts(args.device):
            results.append(run_part(machine, *part))
            print("%-8s %-28s %6.1f s  %s" % (results[-1]["result"], results[-1]["part"],
                                              results[-1]["seconds"], results[-1]["text"]), flush=True)
        count = {r: sum(p["result"] == r for p in results) for r in ("passed", "failed", "skipped")}
        report = {"device": args.device, "gpu": machine.gpu, "build": machine.manifest["build"],
                  "libraries": machine.libraries, "seconds": time.monotonic() - machine.begun,
                  "parts": results}
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % count)
    return 1 if count["failed"] else 0 if count["passed"] else 2


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__))))
