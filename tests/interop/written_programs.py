"""What Weft writes: every mode in both dialects, over all programs of a folder or an archive.

For the checks beside this file, which give the result to other readers of Paddle's programs.
"""
import collections
import os
import re
import subprocess
import tarfile

TWO_TRAINERS = "--endpoints 127.0.0.1:6170,127.0.0.1:6171 --rank 1"

# name: how a table names it; flags: those of `transpile`; new_ops: types of ops that it may write
# although the CPU build of Paddle 2.6.2 does not have them, or not in that form.
Configuration = collections.namedtuple("Configuration", "name flags new_ops")

# Of a program: `op_types` holds a list for each block. An error instead, where transpile refused.
Written = collections.namedtuple("Written", "configuration model part path op_types refused")


def _weft(name, flags, new_ops=()):
    return Configuration(name, flags.split(), frozenset(new_ops))


def _paddle(name, flags, new_ops=()):
    return _weft("paddle " + name, "%s --dialect paddle %s" % (flags, TWO_TRAINERS), new_ops)


AVG = ["c_allreduce_avg"]
NCCL = ["c_gen_nccl_id"]  # only CUDA builds have it
XSUM = ["c_allreduce_xsum"]  # only a fork of Paddle has it
TOPK = ["densify", "sparsify_topk"]  # Weft's own
THRESHOLD = ["densify", "sparsify_threshold"]
# Paddle's memcpy ops need dst_place_type.
TWO_DEVICES = ["memcpy_d2h", "memcpy_h2d", "stream_wait"]
# It writes programs of workers and servers for parameters that a file names; only Weft runs them.
MODES_WITHOUT_CONFIGURATION = {"parameter_server"}

CONFIGURATIONS = [
    _weft("none", "--mode none"),
    _weft("grad_allreduce", "--mode grad_allreduce", AVG),
    _weft("grad_allreduce 2 ranks", "--mode grad_allreduce --nranks 2"),
    _weft("grad_allreduce 2 rings",
          "--mode grad_allreduce --nranks 2 --nrings 2 --buckets count{count=4}"),
    _weft("grad_allreduce rows", "--mode grad_allreduce --nranks 2 --sparse rows"),
    _weft("grad_allreduce dense", "--mode grad_allreduce --nranks 2 --sparse dense"),
    _weft("zero", "--mode zero --nranks 2"),
    _weft("zero 3", "--mode zero --nranks 2 --nrings 2 --stage 3"),
    _weft("power_sgd", "--mode power_sgd --nranks 2 --start_step 3"),
    _weft("local_sgd", "--mode local_sgd", AVG),
    _weft("local_sgd k=4", "--mode local_sgd --nranks 2 --k_steps 4 --begin_step 2"),
    _weft("local_sgd averaged",
          "--mode local_sgd --nranks 2 --k_steps 4 --statistics true --state average"),
    _weft("local_sgd outer",
          "--mode local_sgd --nranks 2 --k_steps 4 --outer nesterov --fragments 2"),
    _weft("local_sgd delayed",
          "--mode local_sgd --nranks 2 --k_steps 4 --outer slowmo --delay 2 --mix 0.5"),
    _weft("local_sgd rounded",
          "--mode local_sgd --nranks 2 --k_steps 4 --outer nesterov --comm_dtype bf16 --delay 1"),
    _weft("local_sgd reset", "--mode local_sgd --nranks 2 --k_steps 4 --state reset"),
    _weft("single_process", "--mode single_process_multi_thread --nranks 2"),
    _weft("single_process fuse 0", "--mode single_process_multi_thread --nranks 2 --fuse 0"),
    _weft("multi_thread fuse", "--mode multi_thread --nranks 2"),
    _weft("multi_thread gather", "--mode multi_thread --nranks 2 --trans_mode all_gather"),
    _weft("multi_thread each", "--mode multi_thread --nranks 2 --trans_mode all_reduce"),
    _weft("mindspore_reducer", "--mode mindspore_reducer --reduce_method mean --nranks 2"),
    _weft("singa_plain", "--mode singa_plain --nranks 2"),
    _weft("singa_plain group", "--mode singa_plain --nranks 2 --lowering group", XSUM),
    _weft("singa_half", "--mode singa_half --nranks 2 --clip 100"),
    _weft("singa_partial", "--mode singa_partial --nranks 2 --threshold 1000"),
    _weft("singa_sparse_topk", "--mode singa_sparse_topk --nranks 2", TOPK),
    _weft("singa_sparse_threshold", "--mode singa_sparse_threshold --nranks 2", THRESHOLD),
    _weft("megengine", "--mode megengine --reduce_method mean --nranks 2 --bcast_period 2", AVG),
    _weft("optimizer_offload", "--mode optimizer_offload --nranks 2", TWO_DEVICES),
    _weft("embedding_offload", "--mode embedding_offload --nranks 2", TWO_DEVICES),
    _weft("paddle none", "--mode none --dialect paddle"),
    _paddle("grad_allreduce", "--mode grad_allreduce", NCCL),
    _paddle("grad_allreduce xpu", "--mode grad_allreduce --device_kind xpu", ["c_gen_bkcl_id"]),
    _paddle("grad_allreduce custom", "--mode grad_allreduce --device_kind custom"),
    _paddle("local_sgd", "--mode local_sgd", NCCL),
    _paddle("single_process fuse 0", "--mode single_process_multi_thread --fuse 0"),
    _paddle("single_process fuse 1", "--mode single_process_multi_thread --fuse 1"),
    _paddle("single_process fuse 2", "--mode single_process_multi_thread --fuse 2", XSUM),
    _paddle("multi_thread fuse", "--mode multi_thread", NCCL),
    _paddle("multi_thread gather", "--mode multi_thread --trans_mode all_gather", NCCL),
    _paddle("multi_thread each", "--mode multi_thread --trans_mode all_reduce", NCCL),
    _paddle("multi_thread xpu",
            "--mode multi_thread --trans_mode all_reduce_xpu --devices 0,1", NCCL),
]


def unpack(programs, folder):
    """Returns {model: folder with main.pb and startup.pb}. `programs` is a folder of such folders,
    or a .tar.xz of one, which is unpacked in `folder`."""
    if os.path.isfile(programs):
        with tarfile.open(programs) as archive:
            archive.extractall(folder)
        programs = folder
    models = {
        model: os.path.join(programs, model)
        for model in sorted(os.listdir(programs))
        if all(os.path.isfile(os.path.join(programs, model, part + ".pb"))
               for part in ("main", "startup"))
    }
    if not models:
        raise SystemExit("error: %s: no folder with main.pb and startup.pb" % programs)
    return models


def check_modes(transpile):
    """Ends the program unless CONFIGURATIONS has every mode of `transpile`."""
    listed = subprocess.run([transpile, "--list_modes"], check=True, stdout=subprocess.PIPE,
                            universal_newlines=True).stdout
    modes = {line.split()[0] for line in listed.splitlines() if re.match(r"  \S", line)}
    known = {c.flags[c.flags.index("--mode") + 1] for c in CONFIGURATIONS}
    known |= MODES_WITHOUT_CONFIGURATION
    if modes != known:
        raise SystemExit("error: CONFIGURATIONS of tests/interop/written_programs.py: expected all "
                         "modes, found a difference in %s" % ", ".join(sorted(modes ^ known)))


def rewrite(transpile, flags, model_folder, out, suffix, in_suffix=".pb"):
    """Writes out/{main,startup}<suffix>. Returns the error of `transpile`; empty: none."""
    os.makedirs(out, exist_ok=True)
    done = subprocess.run(
        [transpile, *flags, "--startup_in", os.path.join(model_folder, "startup" + in_suffix),
         "--startup_out", os.path.join(out, "startup" + suffix),
         os.path.join(model_folder, "main" + in_suffix), os.path.join(out, "main" + suffix)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode == 0:
        return ""
    if done.returncode != 1:
        raise SystemExit("error: transpile %s: exit status %d\n%s" %
                         (" ".join(flags), done.returncode, done.stderr))
    return done.stderr.splitlines()[0]


def write_all(transpile, models, folder, suffix=".pb"):
    """Yields a Written for the main and the startup program of every model and configuration."""
    check_modes(transpile)
    for configuration in CONFIGURATIONS:
        for model, model_folder in models.items():
            out = os.path.join(folder, configuration.name.replace(" ", "_"), model)
            refused = rewrite(transpile, configuration.flags, model_folder, out, suffix)
            for part in ("main", "startup"):
                path = os.path.join(out, part + suffix)
                types = None if refused else op_types(path)
                yield Written(configuration, model, part, path, types, refused)


# --- What is in a file, read without Paddle, Netron or Weft ---------------------------------------


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _messages(data, number):
    """Yields the fields of that number, all of length-delimited type, of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, at = _varint(data, at)
            if key >> 3 == number:
                yield data[at:at + size]
            at += size
        else:
            raise ValueError("wire type %d" % kind)


def op_types(path):
    """The types of the ops of a binary program: a list for each block."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    # ProgramDesc.blocks = 1, BlockDesc.ops = 4, OpDesc.type = 3.
    return [[next(bytes(t).decode() for t in _messages(op, 3)) for op in _messages(block, 4)]
            for block in _messages(data, 1)]


# --- The table ------------------------------------------------------------------------------------


class Table:
    """Counts of each configuration, and every failure and refusal."""

    def __init__(self):
        self._rows = collections.OrderedDict()
        self._refused = collections.defaultdict(list)
        self._failures = []

    def add(self, written, failure):
        """`failure` is empty where the program is as it should be."""
        row = self._rows.setdefault(written.configuration.name, collections.Counter())
        if written.refused:
            row["refused"] += 1
            if written.part == "main":
                error = written.refused.split("main.pb: ")[-1]
                self._refused[written.configuration.name].append((written.model, error))
        elif failure:
            row["failed"] += 1
            self._failures.append("%s: %s/%s: %s" % (written.configuration.name, written.model,
                                                     written.part, failure))
        else:
            row["good"] += 1

    def print(self):
        """Prints it. Returns the exit status: 1 if anything failed, or if nothing was checked in
        some configuration."""
        print("%-30s %8s %8s %8s" % ("mode", "good", "failed", "refused"))
        for name, row in self._rows.items():
            print("%-30s %8d %8d %8d" % (name, row["good"], row["failed"], row["refused"]))
        total = sum(self._rows.values(), collections.Counter())
        print("%-30s %8d %8d %8d" % ("all", total["good"], total["failed"], total["refused"]))
        for name, refusals in self._refused.items():
            for model, error in refusals:
                print("refused: %s: %s: %s" % (name, model, error))
        for failure in self._failures:
            print("FAILED: " + failure)
        empty = [name for name, row in self._rows.items() if not row["good"]]
        for name in empty:
            print("FAILED: %s: no program was checked" % name)
        return 1 if self._failures or empty or not self._rows else 0
