"""Writes the programs and data of a Paddle script to files that `weft run` takes.

    import export_program

    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        ...
        optimizer.minimize(loss)
    batches = [{"x": x0, "y": y0}, {"x": x1, "y": y1}]
    export_program.export("exported", main, startup, feeds=batches)

writes to `exported`

    main.pb, startup.pb      the programs; main.json, startup.json if Paddle 3 built them in its own
                             format (PIR)
    feeds.npz                arrays "<step>/<variable>", one step for each batch
    params.npz               parameters and optimizer state, if the startup program has been run

says so, and returns the `weft` command that trains them. For static programs of Paddle 2.0 to 3.3;
in PIR, of Paddle 3.0 to 3.3. One file, so that it can be copied beside a script.

The schedule of the learning rate, if there is one, is in the program, as attribute lr_schedule of its
variable; in main.json, of the first op that reads it. `weft run` follows it, also after `transpile`.
"""
import collections
import contextlib
import copy
import json
import operator
import os
import re
import shlex
import struct
import sys
import tempfile
import warnings
import zipfile

# Numbers of element types in Paddle's VarType, by the `dtype.name` of NumPy. NumPy has no bf16:
# Paddle returns its bits as uint16.
_TYPES = {
    "bool": 0, "int16": 1, "int32": 2, "int64": 3, "float16": 4, "float32": 5, "float64": 6,
    "uint8": 20, "int8": 21, "bfloat16": 22,
}
_NAMES = {number: name for name, number in _TYPES.items()}

# By class of scheduler: the name for --lr_schedule, and its options. Except for learning_rate, they
# have the names of the scheduler's attributes.
_SCHEDULES = {
    "NoamDecay": ("noam", "d_model warmup_steps learning_rate"),
    "PiecewiseDecay": ("piecewise", "boundaries values"),
    "ExponentialDecay": ("exponential", "learning_rate gamma"),
    "NaturalExpDecay": ("natural_exp", "learning_rate gamma"),
    "InverseTimeDecay": ("inverse_time", "learning_rate gamma"),
    "PolynomialDecay": ("polynomial", "learning_rate decay_steps end_lr power cycle"),
    "CosineAnnealingDecay": ("cosine", "learning_rate T_max eta_min"),
    "StepDecay": ("step", "learning_rate step_size gamma"),
    "MultiStepDecay": ("multi_step", "learning_rate milestones gamma"),
    "LinearLR": ("linear", "learning_rate total_steps start_factor end_factor"),
    "CosineAnnealingWarmRestarts": ("cosine_warm_restarts", "learning_rate T_0 T_mult eta_min"),
}


def export(directory, main, startup, feeds=(), params="npz", scope=None, test=None,
           schedule_steps=10000, plateau_steps=None):
    """Writes programs, batches and parameters into `directory`, and creates it if it is missing.

    feeds   one dictionary per step: variable -> array, the batch of all ranks together. Every step
            has the same variables; batches may differ in size.
    params  "npz"; "combine": Paddle's save_combine format, params.combine and params.names, which
            supports bf16 too; or None: not written.
    scope   holds the parameters; default: paddle.static.global_scope(). If it has no values (the
            startup program has not been run), none are written.
    test    the test program: test.pb or test.json, which `weft eval` takes. main.clone(for_test=True)
            before minimize; in PIR, which cannot, build the model again without dropout, under
            paddle.utils.unique_name.guard(), so that parameters have the same names.
    schedule_steps  of a schedule that is a Python function, write the rates of so many steps.
    plateau_steps  the steps between two calls of ReduceOnPlateau.step(loss), such as those of an
            epoch: `weft run` makes them, with the mean of the first fetched variable.

    Steps count from where training stands: a scheduler that has done 100 steps goes on there.

    Returns the command that trains: a list of arguments. Raises ValueError if a batch does not fit
    the program. Files are written atomically.
    """
    if params not in ("npz", "combine", None):
        raise ValueError('params: expected "npz", "combine" or None, found %r' % (params,))
    for name, program in (("main", main), ("startup", startup), ("test", test)):
        if program is not None or name != "test":
            _check_program(name, program)
    batches = _checked_feeds(main, feeds)
    state = {} if params is None else persistables(main, scope)
    bits = sorted(name for name, (number, _) in state.items() if _NAMES[number] == "bfloat16")
    if bits and params == "npz":
        raise ValueError('params: variable %s is bfloat16, which NumPy does not have; use '
                         'params="combine"' % bits[0])
    os.makedirs(directory, exist_ok=True)
    path = lambda name: os.path.join(directory, name)
    scheduler = getattr(main, "lr_scheduler", None)
    schedule = None if scheduler is None else lr_schedule(scheduler, schedule_steps,
                                                               plateau_steps)
    main_path, is_noted = _write_with_schedule(path("main"), main, schedule)
    startup_path = _write_program(path("startup"), startup)
    if test is not None:
        _write_program(path("test"), test)
    command = ["weft", "run", main_path, "--startup", startup_path]
    if state and params == "npz":
        write_npz(path("params.npz"), {name: array for name, (_, array) in state.items()})
        command += ["--params", path("params.npz")]
    elif state:
        write_combine(path("params.combine"), state)
        write_file(path("params.names"), "".join(n + "\n" for n in sorted(state)).encode())
        command += ["--params", path("params.combine"), "--params_names", path("params.names")]
    if batches:
        _write_batches(path("feeds.npz"), batches)
        command += ["--feeds", path("feeds.npz")]
    if schedule is not None and not is_noted:
        if schedule.startswith("table{"):  # too long for a command line
            values = schedule[schedule.index("=") + 1:-1]
            write_file(path("rates.txt"), values.replace(":", "\n").encode())
            schedule = 'table{file="%s"}' % path("rates.txt")
        name = main.lr_name if _is_pir(main) else getattr(main, "lr_var").name
        command += ["--lr_schedule", schedule, "--lr_var", name]
    written = ["main", "startup"] + (["test"] if test is not None else [])
    _say_what_is_written(main, main_path, directory, written, command)
    return command


def program_bytes(program, name="program", schedule_steps=10000, plateau_steps=None,
                  with_schedule=True):
    """What `export` writes of one program: a serialized ProgramDesc, or PIR as JSON."""
    _check_program(name, program)
    schedule = _schedule_of(program, schedule_steps, plateau_steps) if with_schedule else None
    with tempfile.TemporaryDirectory() as directory:
        path, _ = _write_with_schedule(os.path.join(directory, "program"), program, schedule)
        with open(path, "rb") as file:
            return file.read()


def _write_with_schedule(stem, program, schedule):
    """Writes a program; returns its path, and whether the schedule, which may be None, is in it."""
    with _noted_schedule(program, schedule) as is_noted:
        path = _write_program(stem, program)
    if schedule is not None and _is_pir(program):
        is_noted = _note_in_json(path, program.lr_name, schedule)
    return path, is_noted


# Of the JSON of Paddle 3, as Weft reads it: what Paddle 3.0 to 3.3 write.
_PIR_VERSIONS = range(1, 5)


def _say_what_is_written(main, main_path, directory, programs, command):
    is_pir = _is_pir(main)
    extension = os.path.splitext(main_path)[1]
    files = [name + extension for name in programs]
    files += [os.path.basename(arg) for arg in command[5:] if arg.startswith(directory)]
    paddle = sys.modules.get("paddle")
    print("%s: %s (%s of Paddle %s)" % (
        directory, ", ".join(files), "PIR" if is_pir else "ProgramDesc",
        getattr(paddle, "__version__", "unknown")), file=sys.stderr)
    version = pir_version(main_path) if is_pir else _PIR_VERSIONS[0]
    if version not in _PIR_VERSIONS:
        warnings.warn("%s has version %s of Paddle 3's format; weft reads versions %d to %d, which Paddle "
                      "3.0 to 3.3 write: export there, or set FLAGS_enable_pir_api=0 before "
                      "`import paddle`" % (main_path, version, _PIR_VERSIONS[0], _PIR_VERSIONS[-1]),
                      stacklevel=3)


def pir_version(path):
    """The version of the format of a file that Paddle 3 wrote; None if it has none."""
    with open(path, "rb") as file:
        found = re.search(rb'"version"\s*:\s*(\d+)', file.read(4096))
    return None if found is None else int(found.group(1))


def write_feeds(path, program, feeds):
    """Writes batches to a file that `weft run` and `weft eval` take, such as those of a test set."""
    _check_program("program", program)
    _write_batches(path, _checked_feeds(program, feeds))


def command_line(command):
    """The command, quoted for a shell."""
    return " ".join(shlex.quote(word) for word in command)


def follows_plateau(program):
    """Whether its learning rate does."""
    return type(getattr(program, "lr_scheduler", None)).__name__ == "ReduceOnPlateau"


def _schedule_of(program, steps, plateau_steps):
    """The schedule of its learning rate; None if there is none."""
    scheduler = getattr(program, "lr_scheduler", None)
    if plateau_steps is not None and not follows_plateau(program):
        raise ValueError("plateau_steps: expected a program of Paddle whose learning rate follows "
                         "ReduceOnPlateau, found %s" % (
                             "no scheduler" if scheduler is None else type(scheduler).__name__))
    return None if scheduler is None else lr_schedule(scheduler, steps, plateau_steps)


def lr_schedule(scheduler, steps=10000, plateau_steps=None):
    """The value of --lr_schedule for a scheduler, from the step on that it has reached.

    One that is a Python function becomes a table of the rates of so many steps.
    """
    if type(scheduler).__name__ == "ReduceOnPlateau":
        return _plateau(scheduler, plateau_steps)
    done = getattr(scheduler, "last_epoch", 0)
    begin = "start_at{step=%d}," % done if done > 0 else ""
    try:
        return begin + _formula(scheduler)
    except KeyError:
        return _table(scheduler, steps)


def _formula(scheduler):
    """The schedule from its step 0 on. KeyError if weft run has no formula for it."""
    name = type(scheduler).__name__
    if name == "LinearWarmup":
        options = {key: getattr(scheduler, key) for key in ("warmup_steps", "start_lr", "end_lr")}
        after = scheduler.learning_rate
        if isinstance(after, (int, float)):
            return _schedule_text("linear_warmup", dict(options, learning_rate=after))
        return _schedule_text("linear_warmup", options) + "," + _formula(after)
    if name == "CyclicLR":
        return _cyclic(scheduler)
    schedule, options = _SCHEDULES[name]
    return _schedule_text(schedule, {
        key: getattr(scheduler, "base_lr" if key == "learning_rate" else key)
        for key in options.split()})


def _cyclic(scheduler):
    function = getattr(scheduler.scale_fn, "__name__", "")
    if not function.startswith("_%s_scale" % scheduler.mode):
        raise KeyError(function)  # one of the user
    up = round(scheduler.step_up_pct * scheduler.cycle_size)
    return _schedule_text("cyclic", {
        "base_learning_rate": scheduler.base_lr, "max_learning_rate": scheduler.max_lr,
        "step_size_up": up, "step_size_down": round(scheduler.cycle_size) - up,
        "mode": scheduler.mode, "exp_gamma": scheduler.gamma})


def _plateau(scheduler, every):
    if every is None:
        raise ValueError("scheduler ReduceOnPlateau: after how many steps does it look at the loss? "
                         "expected plateau_steps=N")
    try:
        steps = 0 if isinstance(every, bool) else operator.index(every)
    except TypeError:
        steps = 0
    if steps < 1:
        raise ValueError("scheduler ReduceOnPlateau: plateau_steps: expected a number of steps, found "
                         "%r" % (every,))
    options = {"learning_rate": scheduler.last_lr, "every": steps}
    for key in "mode factor patience threshold threshold_mode cooldown min_lr epsilon".split():
        options[key] = getattr(scheduler, key)
    if scheduler.best is not None:
        options["best"] = float(scheduler.best)
    options.update(num_bad=scheduler.num_bad_epochs, cooldown_left=scheduler.cooldown_counter)
    return _schedule_text("reduce_on_plateau", options)


def _table(scheduler, steps):
    """The rates of so many steps, or of fewer if the scheduler ends."""
    scheduler = copy.deepcopy(scheduler)
    rates = [float(scheduler())]
    try:
        while len(rates) < steps:
            scheduler.step()
            rates.append(float(scheduler()))
    except ValueError:  # OneCycleLR, after total_steps
        pass
    return _schedule_text("table", {"values": rates})


@contextlib.contextmanager
def _noted_schedule(main, schedule):
    """The program with the schedule in it, meanwhile; False if this Paddle cannot note it."""
    desc = getattr(getattr(main, "lr_var", None), "desc", None)
    if schedule is None or not hasattr(desc, "_set_attr"):
        yield False
        return
    desc._set_attr("lr_schedule", schedule)
    try:
        yield True
    finally:
        desc.remove_attr("lr_schedule")


def _note_in_json(path, name, schedule):
    """Adds the schedule to the first op that reads the parameter; False if there is none.

    Paddle loads such a file, and ignores the attribute.
    """
    with open(path, encoding="utf-8") as file:
        program = json.load(file)
    ops = program["program"]["regions"][0]["blocks"][0]["ops"]
    rates = [op["O"]["%"] for op in ops if op["#"] == "p" and op["A"][3] == name]
    for op in ops:
        if any(operand["%"] in rates for operand in op.get("I", ())):
            op["A"].append({"AT": {"#": "0.a_str", "D": "%s=%s" % (name, schedule)},
                            "N": "lr_schedule"})
            text = json.dumps(program, separators=(",", ":"), ensure_ascii=False)
            write_file(path, text.encode())
            return True
    return False


def _schedule_text(name, options):
    def text(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return value
        if hasattr(value, "tolist"):  # NumPy's scalars and arrays, whose repr names their type
            return text(value.tolist())
        if isinstance(value, (list, tuple)):
            return ":".join(text(element) for element in value)
        return repr(value)
    return "%s{%s}" % (name, ",".join("%s=%s" % (key, text(v)) for key, v in options.items()))


# --- Feeds and parameters -------------------------------------------------------------------------


def check_feed(step, name, dtype, shape, declared_dtype, declared_shape):
    """Raises ValueError if an array does not fit a variable; dimensions of -1 take any size."""
    fits = len(shape) == len(declared_shape) and all(
        expected < 0 or found == expected for found, expected in zip(shape, declared_shape))
    if dtype != declared_dtype or not fits:
        raise ValueError("step %d: feed %s: expected %s%s, found %s%s" % (
            step, name, declared_dtype, list(declared_shape), dtype, list(shape)))


def check_has_no_lengths(step, name, value):
    """Raises ValueError for a LoDTensor of sequences: an array does not hold their lengths."""
    lengths = getattr(value, "recursive_sequence_lengths", list)()
    if lengths:
        raise ValueError("step %d: feed %s: expected an array, found a LoDTensor of sequences of "
                         "lengths %s; pad the sequences" % (step, name, lengths))


def check_feed_names(feeds, data_names):
    """Raises ValueError if a step lacks a data variable, or differs from the first in variables."""
    for step, batch in enumerate(feeds):
        missing = sorted((set(feeds[0]) | set(data_names)) - set(batch))
        if missing:
            raise ValueError("step %d: feed %s: missing" % (step, missing[0]))
        new = sorted(set(batch) - set(feeds[0]))
        if new:
            raise ValueError("step %d: feed %s: step 0 does not have it" % (step, new[0]))


def _checked_feeds(main, feeds):
    import numpy  # pylint: disable=import-outside-toplevel

    feeds = list(feeds)
    declared = _declared(main)
    data = [name for name, variable in declared.items() if variable.is_data]
    check_feed_names(feeds, data)
    batches = []
    for step, batch in enumerate(feeds):
        arrays = {}
        for name, value in batch.items():
            if name not in declared:
                raise ValueError("step %d: feed %s: the program has no such variable; its data "
                                 "variables: %s" % (step, name, ", ".join(sorted(data))))
            check_has_no_lengths(step, name, value)
            arrays[name] = numpy.ascontiguousarray(value).reshape(numpy.shape(value))
            check_feed(step, name, arrays[name].dtype.name, arrays[name].shape,
                       declared[name].dtype, declared[name].shape)
        batches.append(arrays)
    return batches


def _write_batches(path, batches):
    write_npz(path, {"%d/%s" % (step, name): array
                     for step, batch in enumerate(batches) for name, array in batch.items()})


def _check_program(name, program):
    """Raises ValueError for what is no static program, or one that Paddle cannot write."""
    if hasattr(program, "desc"):
        return
    if _is_pir(program):
        _check_gradients_of_blocks(name, program.global_block())
        return
    found = None if program is None else "%s.%s" % (type(program).__module__, type(program).__name__)
    raise ValueError("%s: expected a static program (paddle.static.Program), found %s" % (name, found))


# Of what reads in its block what the forward pass has left: Paddle's writer aborts the process.
_GRADIENTS_OF_BLOCKS = {
    "pd_op.while": "set FLAGS_enable_pir_api=0 in the environment before Python starts",
    "pd_op.if": "use paddle.where, or export in Paddle 2.6",
}


def _check_gradients_of_blocks(name, block):
    """Raises ValueError for the gradient of a loop or a branch of PIR, which Paddle cannot save."""
    for op in block.ops:
        for inner in op.blocks():
            if op.name() in _GRADIENTS_OF_BLOCKS and any(
                    other.name() == "cf.tuple_pop" for other in inner.ops):
                raise ValueError("%s: %s computes a gradient, which Paddle 3 cannot save in PIR; %s" % (
                    name, op.name(), _GRADIENTS_OF_BLOCKS[op.name()]))
            _check_gradients_of_blocks(name, inner)


def _is_pir(program):
    """Whether Paddle 3 built the program in its own format."""
    return not hasattr(program, "desc") and hasattr(program, "global_block")


def _write_program(stem, program):
    """Writes STEM.pb or STEM.json; returns the path."""
    if not _is_pir(program):
        write_file(stem + ".pb", program.desc.serialize_to_string())
        return stem + ".pb"
    from paddle.base import core  # pylint: disable=import-outside-toplevel

    with tempfile.TemporaryDirectory(dir=os.path.dirname(stem) or ".") as directory:
        temporary = os.path.join(directory, "program.json")
        # Overwrites, without white space, with what training needs.
        core.serialize_pir_program(program, temporary, True, False, True)
        with open(temporary, "rb") as file:
            write_file(stem + ".json", file.read())
    return stem + ".json"


# dtype: as NumPy names it. is_data: a feed.
_Declared = collections.namedtuple("_Declared", "dtype shape is_data persistable")


def _declared(program):
    """variable -> _Declared, for dense tensors of block 0 that have a name in the scope."""
    if _is_pir(program):
        return _declared_in_pir(program)
    return {name: _Declared(_NAMES[_type_number(var)], var.shape, var.desc.need_check_feed(),
                            var.persistable)
            for name, var in program.global_block().vars.items() if _is_dense(var)}


def _declared_in_pir(program):
    declared = {}
    for op in program.global_block().ops:
        if op.name() not in ("pd_op.data", "builtin.parameter"):
            continue
        value = op.result(0)
        name = op.attrs()["name" if op.name() == "pd_op.data" else "parameter_name"]
        persistable = bool(value.persistable)
        declared[name] = _Declared(dtype_name(value.dtype), tuple(value.shape), not persistable,
                                   persistable)
    return declared


def dtype_name(dtype):
    """NumPy's name of an element type of Paddle: paddle.float32, VarType.FP32."""
    name = str(dtype).rsplit(".", 1)[-1].lower()
    short = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
    return short.get(name, name)


def _is_dense(var):
    return int(getattr(var.type, "value", var.type)) == _LOD_TENSOR


def check_param(name, dtype, declared_dtype):
    """Raises ValueError if a value has another element type than its variable."""
    if dtype != declared_dtype:
        raise ValueError(
            "params: variable %s: the program declares %s, but the scope holds %s; after the "
            "startup program has run, call optimizer.amp_init(place), and then export" % (
                name, declared_dtype, dtype))


def _type_number(var):
    """The number of the element type in VarType."""
    number = var.dtype
    return int(getattr(number, "value", number))


def persistables(main, scope):
    """variable -> (element type, array) for dense tensors."""
    import numpy  # pylint: disable=import-outside-toplevel
    import paddle  # pylint: disable=import-outside-toplevel

    scope = scope or paddle.static.global_scope()
    state = {}
    for name, variable in declared_everywhere(main).items():
        held = scope.find_var(name) if variable.persistable else None
        if held is None or not held.get_tensor()._is_initialized():
            continue
        tensor = held.get_tensor()
        dtype = dtype_name(tensor._dtype())
        check_param(name, dtype, variable.dtype)
        state[name] = (_TYPES[dtype], numpy.array(tensor))
    return state


def declared_everywhere(program):
    """As _declared, of all blocks."""
    if _is_pir(program):
        return _declared_in_pir(program)
    return {var.name: _Declared(_NAMES[_type_number(var)], var.shape, False, True)
            for var in program.list_vars() if var.persistable and _is_dense(var)}


_LOD_TENSOR = 7  # in VarType


# --- Files ----------------------------------------------------------------------------------------
# Arrays have `dtype.str`, `shape` and `tobytes()`, like those of NumPy.


@contextlib.contextmanager
def _atomic(path):
    """A file that replaces `path` when it is complete."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".",
                                         prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_file(path, data):
    """Writes a file atomically."""
    with _atomic(path) as file:
        file.write(data)


def write_npz(path, arrays):
    """Writes arrays like numpy.savez, in order of their names. Equal arrays give equal bytes."""
    with _atomic(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted(arrays):
            archive.writestr(zipfile.ZipInfo(name + ".npy"), npy_bytes(arrays[name]))


def npy_bytes(array):
    """An array in row-major order as a .npy file, version 1."""
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (
        array.dtype.str, tuple(map(int, array.shape)))
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + array.tobytes()


def write_combine(path, state):
    """Writes variable -> (element type in VarType, array) in Paddle's save_combine format, in order
    of the names: for each version 0, no LoD, version 0, a TensorDesc and the elements."""
    parts = []
    for name in sorted(state):
        number, array = state[name]
        # TensorDesc: data_type = 1, dims = 2.
        desc = b"\x08" + _varint(number) + b"".join(b"\x10" + _varint(d) for d in array.shape)
        parts += [struct.pack("<IQIi", 0, 0, 0, len(desc)), desc, array.tobytes()]
    write_file(path, b"".join(parts))


def _varint(value):
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
