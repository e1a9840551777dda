"""Runs with many batches: where they come from, validation, checkpoints and logs."""
from __future__ import annotations

import errno
import itertools
import math
import os
import struct
import warnings
import zlib
from ctypes import byref, c_char_p, c_double, c_int

from weft import _native, _options, _tensor
from weft import _program as programs
from weft._results import Note, Warning, warn  # pylint: disable=redefined-builtin

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

    from weft._run import Fetched, Run

    _Numbers = Dict[str, float]
else:
    _Numbers = dict


def _error(message):
    return _native.Error(message, "INVALID_ARGUMENT")


def _warn(message):
    warnings.warn(message, Warning, stacklevel=4)


# --- Batches --------------------------------------------------------------------------------------


class Batches:
    """Batches of files, as weft.batches makes them: every iteration is an epoch."""

    def __init__(self, files, batch_size, seed, drop_last):
        self._parts = [_open(path) for path in files]
        self._seed, self._epoch = seed, 0
        if drop_last and batch_size is None:
            raise _error("drop_last: expected batch_size=N, found batches of the files")
        first = self._parts[0]
        if batch_size is None:
            self._items = [(part, step) for part in self._parts for step in part.steps()]
        else:
            counts = [part.num_samples() for part in self._parts]
            ends = list(itertools.accumulate(counts))
            self._offsets = [end - count for end, count in zip(ends, counts)]
            self._items = range(0, ends[-1], batch_size)
            if drop_last and ends[-1] % batch_size:
                self._items = self._items[:-1]
            if not self._items:
                raise _error("expected a batch of %d samples, found %d samples" % (
                    batch_size, ends[-1]))
        for part in self._parts:
            if part.variables() != first.variables():
                raise _error("%s: expected arrays of %s, as in %s, found %s" % (
                    part.path, ", ".join(first.variables()), first.path,
                    ", ".join(part.variables())))
            if batch_size is not None and part.types() != first.types():
                raise _error("%s: expected samples like those of %s (%s), found %s" % (
                    part.path, first.path, first.types(), part.types()))
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self):
        more = ", ..." if len(self._parts) > 1 else ""
        return "<weft.batches: %d of %s%s>" % (len(self), self._parts[0].path, more)

    def __iter__(self):
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._epoch_from(epoch, 0)

    def from_step(self, step, epochs):
        """What a run gets that has done so many steps: the rest of its epoch, and further ones."""
        epoch, first = divmod(step, len(self))
        self._epoch = epoch + epochs
        return itertools.chain.from_iterable(
            self._epoch_from(epoch + i, 0 if i else first) for i in range(epochs))

    def _epoch_from(self, epoch, first):
        if self._batch_size is None:
            order = self._order(len(self._items), epoch)[first:]
            return (self._items[i][0].batch(self._items[i][1]) for i in order)
        total = self._offsets[-1] + self._parts[-1].num_samples()
        order = self._order(total, epoch)
        return (self._samples(order[begin:begin + self._batch_size])
                for begin in self._items[first:])

    def _order(self, count, epoch):
        import random  # pylint: disable=import-outside-toplevel

        order = list(range(count))
        if self._seed is not None:
            random.Random("%d/%d" % (self._seed, epoch)).shuffle(order)
        return order

    def _samples(self, numbers):
        import bisect  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel

        where = [bisect.bisect_right(self._offsets, number) - 1 for number in numbers]
        return {name: numpy.stack([self._parts[part].array(name)[number - self._offsets[part]]
                                   for part, number in zip(where, numbers)])
                for name in self._parts[0].variables()}


class _Npz:
    """Arrays of a .npz file, each read when it is first needed."""

    def __init__(self, path):
        import numpy  # pylint: disable=import-outside-toplevel
        import zipfile  # pylint: disable=import-outside-toplevel
        self._errors = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
        self.path = path
        try:
            self._file = numpy.load(path)
        except self._errors as error:
            raise _error("%s: %s" % (path, error)) from error
        if not hasattr(self._file, "files"):
            raise _error("%s: expected a .npz file, found one array" % path)
        self.names = list(self._file.files)
        self._read = {}

    def read(self, name):
        try:
            return self._file[name]
        except self._errors as error:
            raise _error("%s: %s: %s" % (self.path, name, error)) from error

    def _indexed(self):
        if all(name.partition("/")[0].isdigit() and "/" in name for name in self.names):
            return sorted({int(name.partition("/")[0]) for name in self.names})
        return None

    def steps(self):
        """The numbers of the batches."""
        steps = self._indexed()
        if not steps:
            raise _error("%s: expected arrays named <step>/<variable>, found %s; batch_size=N makes "
                         "batches of the samples of arrays" % (
                             self.path, self.names[0] if self.names else "none"))
        return steps

    def variables(self):
        """Sorted names."""
        if self._indexed() is None:
            return sorted(self.names)
        return sorted({name.partition("/")[2] for name in self.names})

    def batch(self, step):
        """Variable -> array."""
        prefix = "%d/" % step
        return {name[len(prefix):]: self.read(name) for name in self.names
                if name.startswith(prefix)}

    def array(self, name):
        """The samples of a variable."""
        if name not in self._read:
            self._read[name] = self.read(name)
        return self._read[name]

    def types(self):
        """What a sample is."""
        return ", ".join("%s: %s%s" % (name, self.array(name).dtype, list(self.array(name).shape[1:]))
                         for name in self.variables())

    def num_samples(self):
        """Of all arrays."""
        if self._indexed():
            raise _error("%s: its arrays are named <step>/<variable>: they are batches already; "
                         "leave batch_size out" % self.path)
        for name in self.variables():
            if not self.array(name).ndim:
                raise _error("%s: %s: expected samples along the first axis, found a number" % (
                    self.path, name))
        counts = {name: len(self.array(name)) for name in self.variables()}
        if len(set(counts.values())) != 1:
            raise _error("%s: expected as many samples in each array, found %s" % (
                self.path, ", ".join("%d of %s" % (n, name) for name, n in sorted(counts.items()))
                or "none"))
        return next(iter(counts.values()))


class _Safetensors(_Npz):
    """Arrays of a .safetensors file, in mapped memory."""

    def __init__(self, path):  # pylint: disable=super-init-not-called
        import json  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel
        try:
            self._bytes = numpy.memmap(path, dtype="u1", mode="r")
            size, = struct.unpack("<Q", self._bytes[:8].tobytes())
            self._header = json.loads(self._bytes[8:8 + size].tobytes())
        except (OSError, ValueError, struct.error) as error:
            raise _error("%s: %s" % (path, error)) from error
        if not isinstance(self._header, dict):
            raise _error("%s: expected a header that is an object, found %s" % (
                path, type(self._header).__name__))
        self._header.pop("__metadata__", None)
        self._begin = 8 + size
        self.path = path
        self.names = sorted(self._header)
        self._read = {}

    _TYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
              "F16": "<f2", "F32": "<f4", "F64": "<f8", "U16": "<u2", "U32": "<u4", "U64": "<u8"}

    def read(self, name):
        try:
            entry = self._header[name]
            if entry["dtype"] not in self._TYPES:
                raise _error("%s: %s: NumPy has no element type %s" % (
                    self.path, name, entry["dtype"]))
            begin, end = entry["data_offsets"]
            part = self._bytes[self._begin + begin:self._begin + end]
            return part.view(self._TYPES[entry["dtype"]]).reshape(entry["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise _error("%s: %s: %s" % (self.path, name, error)) from error


def _open(path):
    path = os.fspath(path)
    kinds = {".npz": _Npz, ".safetensors": _Safetensors}
    kind = kinds.get(os.path.splitext(path)[1])
    if kind is None:
        raise _error("%s: expected a .npz or .safetensors file" % path)
    try:
        return kind(path)
    except ModuleNotFoundError as error:
        raise _error("%s: expected NumPy, which reads such files; pip install numpy" % path) from error


def batches_of(files, batch_size, seed, drop_last):
    """weft.batches."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    if not hasattr(files, "__iter__") and files is not None:
        raise _error("expected the path of a file, or several, found %s" % type(files).__name__)
    if not files:
        raise _error("expected a file, found none")
    if batch_size is not None and not (_is_whole(batch_size) and batch_size >= 1):
        raise _error("batch_size: expected 1 or more, found %r" % (batch_size,))
    if seed is False:
        seed = None
    if seed is not None and not _is_whole(seed):
        raise _error("shuffle: expected a seed, a number, found %r" % (seed,))
    return Batches(list(files), batch_size, seed, drop_last)


def _names(names):
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def named(batch, names):
    """A batch by name: tuples and lists take `names`."""
    if hasattr(batch, "keys"):
        return batch
    if isinstance(batch, (list, tuple)) and len(batch) == 1 and hasattr(batch[0], "keys"):
        return batch[0]  # of Paddle's DataLoader, for its one device
    if names is None:
        raise _native.no_names("batch", batch, hint="; names=[...] names its parts")
    if not hasattr(batch, "__len__"):
        raise _error("batch: expected %d parts (%s), found %s" % (
            len(names), ", ".join(names), type(batch).__name__))
    if len(batch) != len(names):
        raise _error("batch: expected %d parts (%s), found %d" % (
            len(names), ", ".join(names), len(batch)))
    return dict(zip(names, batch))


# --- Evaluation -----------------------------------------------------------------------------------


class Evaluated(_Numbers):
    """Metrics of a test program: name -> number.

    batches, samples   how many they are of
    """

    def __init__(self, text):
        import json  # pylint: disable=import-outside-toplevel
        data = json.loads(text)
        super().__init__({name: float("nan") if value is None else float(value)
                          for name, value in data["metrics"].items()})
        self.batches, self.samples = data["batches"], data["samples"]


class Evaluator:
    """A test program, which is evaluated again and again."""

    def __init__(self, program, startup, params, options):
        test, begin = programs.program(program, "test"), programs.optional(startup, "startup")
        made = _options.make("eval", options)
        names, values, _kept = _tensor.fill_all(params)
        self._handle = _native.Handle(
            _native.new("weft_evaluation_new", made.value, programs.handle_of(test),
                        programs.handle_of(begin), names, values, len(params)), "weft_run_free")

    def notes(self):
        """What is said of the program, since the last call."""
        raw = _native.POINTER(_native.Message)()
        count = _native.lib().weft_run_take_messages(self._handle.value, _native.byref(raw))
        return [Note.of(raw[i]) for i in range(count)]

    def restart(self, params):
        """Begins anew, with other values."""
        names, values, _kept = _tensor.fill_all(params)
        _native.check(_native.lib().weft_evaluation_restart(
            self._handle.value, names, values, len(params)))

    @property
    def handle(self):
        """Of the library."""
        return self._handle.value

    def run(self, batches, names):
        """The metrics of the batches."""
        library = _native.lib()
        for batch in batches:
            feeds = named(batch, names)
            feed_names, values, _kept = _tensor.fill_all(feeds)
            _native.check(library.weft_run_step(self._handle.value, feed_names, values, len(feeds)))
        return Evaluated(_native.text("weft_evaluation_totals", self._handle.value))


def evaluate(program, batches, params, startup, names, options):
    """weft.evaluate."""
    if hasattr(params, "state_dict"):
        params = params.state_dict()
    if params is not None and not hasattr(params, "items"):
        raise _error("params: expected a weft.Run, or name -> array, found %s" %
                     type(params).__name__)
    _check_batches(batches)
    evaluator = Evaluator(program, startup, dict(params or {}), options)
    warn(evaluator.notes(), stacklevel=3)
    return evaluator.run(batches, _names(names))


def _is_best(run, evaluator, choice, numbers):
    """Whether the numbers are the best that the run has had; it keeps them."""
    count = len(numbers)
    found = c_int()
    _native.check(_native.lib().weft_run_is_best(
        run._handle.value, evaluator and evaluator.handle, choice.encode(),
        (c_char_p * count)(*(name.encode() for name in numbers)),
        (c_double * count)(*numbers.values()), count, byref(found)))
    run.notes  # pylint: disable=pointless-statement  # warns
    return bool(found.value)


# --- Logs -----------------------------------------------------------------------------------------


def _lines_before(path, begin, step_of):
    """The lines of a log that a run keeps, which begins with this step."""
    if begin == 0 or not os.path.exists(path):
        return []
    kept = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                step = step_of(line)
            except (ValueError, KeyError, TypeError) as error:
                raise _error("log: %s: expected a log of fit, found %s" % (
                    path, line.strip()[:80])) from error
            if step < begin and line.endswith("\n"):
                kept.append(line)
    return kept


class _Jsonl:
    def __init__(self, path, begin):
        import json  # pylint: disable=import-outside-toplevel
        self._dumps = json.dumps
        lines = _lines_before(path, begin, lambda line: json.loads(line)["step"])
        self._file = open(path, "w", encoding="utf-8")
        self._file.writelines(lines)

    def __call__(self, step, numbers):
        numbers = {name: number if math.isfinite(number) else None  # as JSON has no other
                   for name, number in numbers.items()}
        self._file.write(self._dumps(dict(numbers, step=step)) + "\n")
        self._file.flush()

    def close(self):
        self._file.close()


class _Csv:
    """One line for each step, and none for validations, which have other columns."""

    def __init__(self, path, begin):
        import csv  # pylint: disable=import-outside-toplevel
        lines = _lines_before(path, begin, lambda line: -1 if line.startswith("step") else
                              int(line.partition(",")[0]))
        self._file = open(path, "w", encoding="utf-8", newline="")
        self._file.writelines(lines)
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._path = path
        self._before = next(csv.reader(lines[:1]))[1:] if lines else None
        self._names = None

    def __call__(self, step, numbers):
        if any(name.startswith("valid/") for name in numbers):
            return
        if self._names is None:
            self._names = list(numbers)
            if self._before not in (None, self._names):
                raise _error("log: %s: expected the columns %s of this run, found %s of an earlier "
                             "one; name another file" % (
                                 self._path, ", ".join(self._names), ", ".join(self._before)))
        if self._before is None:
            self._before = self._names
            self._writer.writerow(["step"] + self._names)
        self._writer.writerow([step] + [numbers[name] for name in self._names])
        self._file.flush()

    def close(self):
        self._file.close()


class _Board:
    def __init__(self, folder, _begin):
        try:
            from tensorboardX import SummaryWriter  # pylint: disable=import-outside-toplevel
        except ImportError:
            try:
                from torch.utils.tensorboard import SummaryWriter  # pylint: disable=import-outside-toplevel
            except ImportError as error:
                raise _native.Error(
                    "log: %s: files for TensorBoard need tensorboardX, or PyTorch with tensorboard; "
                    "pip install tensorboardX" % folder, "FAILED_PRECONDITION") from error
        self._writer = SummaryWriter(folder)

    def __call__(self, step, numbers):
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
        self._writer.flush()

    def close(self):
        self._writer.close()


def _logger(log, begin):
    """(function of (step, numbers), function that ends it)."""
    if log is None:
        return None, lambda: None
    if callable(log):
        return log, lambda: None
    if not isinstance(log, (str, os.PathLike)):
        raise _error("log: expected a function or a path, found %s" % type(log).__name__)
    path = os.fspath(log)
    kinds = {".jsonl": _Jsonl, ".csv": _Csv, "": _Board}
    is_folder = os.path.isdir(path) or path.endswith(os.sep)
    ending = "" if is_folder else os.path.splitext(path)[1]
    if ending not in kinds:
        raise _error("log: %s: expected a function, a .jsonl or .csv file, or a folder (a new one whose "
                     "name has a dot ends with %s)" % (path, os.sep))
    try:
        made = kinds[ending](path, begin)
    except OSError as error:
        raise _error("log: %s" % error) from error
    return made, made.close


class Bar:
    """A progress bar: tqdm's, or a line on standard error."""

    def __init__(self, total):
        try:
            import tqdm  # pylint: disable=import-outside-toplevel
            self._bar = tqdm.tqdm(total=total)
        except ImportError:
            self._bar = None
        self._done, self._total = 0, total

    def step(self, numbers):
        """One more, with name -> number."""
        what = ", ".join("%s %.5g" % one for one in numbers.items())
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(what, refresh=False)
            self._bar.update()
            return
        import sys  # pylint: disable=import-outside-toplevel
        of = "" if self._total is None else "/%d" % self._total
        sys.stderr.write("\rstep %d%s  %s\x1b[K" % (self._done, of, what))

    def close(self):
        """Ends its line."""
        if self._bar is not None:
            self._bar.close()
        elif self._done:
            import sys  # pylint: disable=import-outside-toplevel
            sys.stderr.write("\n")


# --- Fit ------------------------------------------------------------------------------------------


class Fitted:
    """What Run.fit has done.

    steps       how many steps
    losses      name -> number, of the last step
    valid       [(number of steps done, name -> number)], of the validations
    best        that of keep_best, or None
    """

    steps: int
    losses: Dict[str, float]
    valid: List[Tuple[int, Dict[str, float]]]
    best: Optional[Tuple[int, Dict[str, float]]]

    def __init__(self):
        self.steps, self.losses, self.valid, self.best = 0, {}, [], None

    def __repr__(self):
        numbers = ", ".join("%s %.7g" % one for one in self.losses.items())
        return "<weft.Fitted: %d steps%s%s>" % (self.steps, ": " if numbers else "", numbers)


class _Validation:
    """Of `valid`: a function, or a test program and its batches."""

    def __init__(self, run, valid, names, options):
        self._run, self._names = run, names
        self._function = valid if callable(valid) else None
        self._evaluator, self._options = None, options
        if self._function is not None:
            return
        if not isinstance(valid, (tuple, list)) or len(valid) != 2:
            raise _error("valid: expected (test program, batches), or a function, found %s" %
                         type(valid).__name__)
        self._program, self._batches = valid
        _check_batches(self._batches)
        self._program = programs.program(self._program, "test")

    def check(self, keep_best):
        """Compares the test program, and keep_best with its metrics, before the model is trained."""
        if self._function is not None:
            return
        self._evaluator = Evaluator(self._program, None, self._run.state_dict(), self._options)
        warn(self._evaluator.notes(), stacklevel=5)
        if keep_best is not None:
            _is_best(self._run, self._evaluator, keep_best, {})

    def numbers(self):
        """Name -> number."""
        if self._function is not None:
            found = self._function(self._run)
            if not hasattr(found, "items") or not found:
                raise _error("valid: expected that the function returns name -> number, found %r" %
                             (found,))
            try:
                return {name: float(number) for name, number in found.items()}
            except (TypeError, ValueError) as error:
                raise _error("valid: expected that the function returns name -> number: %s" %
                             error) from error
        self._evaluator.restart(self._run.state_dict())
        return dict(self._evaluator.run(self._batches, self._names))

    def is_best(self, keep_best, numbers):
        """Whether these are the best so far."""
        return _is_best(self._run, self._evaluator, keep_best, numbers)

    def is_once(self):
        """Whether the batches can be gone through once alone."""
        return self._function is None and hasattr(self._batches, "__next__")


def _is_whole(number):
    return hasattr(number, "__index__") and not isinstance(number, bool)


def _check_folder(path):
    """Raises Error if no file can be made there, before anything is trained that it would keep."""
    path = os.fsdecode(_native.c_path(path))
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise _error("%s: expected a file, found a folder" % path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        found = errno.EACCES if os.path.isdir(folder) else errno.ENOENT
        raise _error("%s: cannot create a file in %s: %s" % (
            path, folder, os.strerror(found)))


def _check_batches(batches):
    if hasattr(batches, "keys"):
        raise _error("batches: expected an iterable of batches, found one, name -> array; [batch] is "
                     "a list of it")
    if isinstance(batches, (str, bytes, os.PathLike)):
        raise _error("batches: expected an iterable of batches, found a path; weft.batches reads "
                     "files")
    if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
        raise _error("batches: expected an iterable of batches, found %s" % type(batches).__name__)


def _check_calls(batches, steps, epochs, valid, ema, log, log_every, numbers):
    _check_batches(batches)
    for name, number in numbers:
        if number is not None and not (_is_whole(number) and number >= 1):
            raise _error("%s: expected 1 or more, found %r" % (name, number))
    if steps is not None and not (_is_whole(steps) and steps >= 0):
        raise _error("steps: expected 0 or more, found %r" % (steps,))
    if ema and callable(valid):
        raise _error("ema: expected valid=(test program, batches), found a function")
    if log_every is not None and log is None:
        raise _error("log_every: expected log=")
    if epochs > 1 and hasattr(batches, "__next__"):
        raise _error("batches: expected some that can be gone through %d times, found %s" % (
            epochs, type(batches).__name__))


def fit(run, batches, names, steps, epochs, valid, every, ema, checkpoint, save_every, keep_best,
        log, log_every, progress):
    """weft.Run.fit."""
    # pylint: disable=too-many-locals, too-many-arguments
    if keep_best is not None and (checkpoint is None or valid is None):
        raise _error("keep_best: expected valid=, and checkpoint=FILE, beside which it keeps "
                     "FILE.best")
    if (every is not None or ema) and valid is None:
        raise _error("%s: expected valid=" % ("every" if every is not None else "ema"))
    if save_every is not None and checkpoint is None:
        raise _error("save_every: expected checkpoint=FILE")
    _check_calls(batches, steps, epochs, valid, ema, log, log_every, (
        ("every", every), ("save_every", save_every), ("log_every", log_every),
        ("epochs", 0 if epochs is None else epochs)))
    names, log_every = _names(names), log_every or 1
    if checkpoint is not None and run.process == 0:
        _check_folder(checkpoint)
    validation = None if valid is None else _Validation(run, valid, names,
                                                        {"ema": True} if ema else {})
    if every is not None and validation.is_once():
        raise _error("valid: expected batches that can be gone through again, found %s" %
                     type(valid[1]).__name__)
    best = None if keep_best is None else os.fsdecode(checkpoint) + ".best"
    begin = run.next_step
    is_first = run.process == 0  # which writes files
    write, end = _logger(log if is_first or callable(log) else None, begin)
    goes_on = isinstance(batches, Batches)
    step = begin - run._first_step_of(batches) if goes_on else 0
    total = steps
    if total is None and hasattr(batches, "__len__"):
        total = len(batches) * epochs - (step % len(batches) if step else 0)
    bar = Bar(total) if progress and is_first and run._bar is None else None
    fitted = Fitted()
    validated = None

    def check(step):
        numbers = validation.numbers()
        fitted.valid.append((step, numbers))
        if write is not None:
            write(step - 1, {"valid/" + name: number for name, number in numbers.items()})
        if best is not None and validation.is_best(keep_best, numbers):
            fitted.best = step, numbers
            run.checkpoint(best)

    try:
        source = batches.from_step(step, epochs) if goes_on else (
            itertools.chain.from_iterable(itertools.repeat(batches, epochs)))
        for batch in source if steps is None else itertools.islice(source, steps):
            fetched = run.step(named(batch, names))
            fitted.steps += 1
            if fitted.steps == 1:
                if best is not None and is_first and begin == 0 and os.path.exists(best):
                    os.remove(best)  # that of another run
                if validation is not None:
                    validation.check(keep_best)
            fitted.losses = {one.name: float(one) for one in fetched}
            done = run.next_step
            if write is not None and (done - 1) % log_every == 0:
                write(done - 1, fitted.losses)
            if bar is not None:
                bar.step(fitted.losses)
            if every is not None and done % every == 0:
                check(done)
                validated = done
            if save_every is not None and done % save_every == 0:
                run.checkpoint(checkpoint)
        if fitted.steps == 0 and steps != 0:
            raise _error("batches: expected a batch, found none")
        if validation is not None and validated != run.next_step:
            if fitted.steps == 0:
                validation.check(keep_best)
            check(run.next_step)
    except BaseException:
        # What is trained stays, unless other processes, which may go on, must help. After an error of
        # a step, this raises it again.
        if checkpoint is not None and run.next_step > begin and run.num_processes == 1:
            run.checkpoint(checkpoint)
        raise
    finally:
        end()
        if bar is not None:
            bar.close()
    if steps is not None and fitted.steps < steps:
        _warn("steps %d: the batches ended after %d" % (steps, fitted.steps))
    if best is not None and is_first and begin == 0 and not os.path.exists(best):
        _warn("keep_best %s: no validation has found a number, so there is no %s" % (
            keep_best, best))
    if checkpoint is not None and not (save_every and run.next_step % save_every == 0):
        run.checkpoint(checkpoint)
    return fitted


class Turns:
    """Runs that train in turn, with common variables: the two programs of a GAN.

        with weft.Run(d) as critic, weft.Run(g) as maker:
            turns = weft.Turns(critic, maker)
            for real, noise in batches:
                turns.step(critic, {"real": real, "noise": noise})
                turns.step(maker, {"noise": noise})

    Before a step of a run, it gets the values that the run before has left of the variables that
    both have; the others are its own. Common variables begin as the first run has them. This copies
    the state of a run at each turn. Common variables of which ranks have values of their own are
    errors, as of Run.load_state_dict.
    """

    def __init__(self, *runs: Run) -> None:
        if len(runs) < 2:
            raise _error("Turns: expected two runs or more, found %d" % len(runs))
        for run in runs:
            if not hasattr(run, "state_dict"):
                raise _error("Turns: expected runs, found %s" % type(run).__name__)
        self._runs = runs
        self._names = [set(run.state_dict()) for run in runs]
        self._last = 0

    def _give(self, to):
        """Gives a run the newest values."""
        if self._last == to:
            return
        state = self._runs[self._last].state_dict()
        for i, run in enumerate(self._runs):
            common = {name: value for name, value in state.items() if name in self._names[i]}
            if i != self._last and common:
                run.load_state_dict(common, strict=False)
        self._last = to

    def step(self, run: Run, feeds: Optional[Mapping[str, Any]] = None) -> List[Fetched]:
        """A step of one of the runs; returns what Run.step does."""
        index = next((i for i, one in enumerate(self._runs) if one is run), None)
        if index is None:
            raise _error("Turns: expected one of its runs, found %r" % run)
        self._give(index)
        return run.step(feeds)

    def state_dict(self) -> Dict[str, Any]:
        """Parameters and state of all runs."""
        self._give((self._last + 1) % len(self._runs))
        state = {}
        for run in self._runs:
            state.update(run.state_dict())
        return state
