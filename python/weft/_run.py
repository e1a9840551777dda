"""Runs."""
import os
from ctypes import POINTER, byref, c_char_p

from weft import _native, _options, _tensor
from weft import _program as programs
from weft._results import Note, Transpiled, warn


class Fetched:
    """What the ranks have of a variable after a step.

    float() is what weft run prints: the mean over the ranks, or the sum if ranks have partial sums;
    of a tensor with several elements, of their means. `ranks` are the tensors, by rank.
    """

    __slots__ = ("name", "_number", "_arrays", "_first", "_count")

    def __init__(self, name, number, arrays, first, count):
        self.name = name
        self._number = number
        self._arrays, self._first, self._count = arrays, first, count

    @property
    def ranks(self):
        """A Tensor for each rank. They keep their values."""
        get = _native.lib().weft_arrays_get
        return [_tensor.Tensor(self._arrays, get(self._arrays.value, self._first + rank))
                for rank in range(self._count)]

    def numpy(self):
        """Of a run on one rank, its tensor as a NumPy array; of others, use `ranks`."""
        if self._count != 1:
            raise _native.Error("%s: %d ranks have a tensor each: expected .ranks[i].numpy()" % (
                self.name, self._count), "FAILED_PRECONDITION")
        return self.ranks[0].numpy()

    def __float__(self):
        return self._number

    def __format__(self, spec):
        return format(self._number, spec)

    def __repr__(self):
        return "<%s %.7g>" % (self.name, self._number)


class Run:  # pylint: disable=too-many-instance-attributes
    __slots__ = ("_notes", "_handle", "_names", "_c_names", "_batch", "_fetch", "_main", "_startup")

    def _begin(self, main, startup, params, options):
        if isinstance(main, Transpiled):
            startup = main.startup if startup is None else startup
            main = main.main
        self._main = programs.program(main, "main")
        self._startup = programs.program(startup, "startup")
        self._notes = []
        self._names = None
        arrays = params if params is not None and not isinstance(params, (str, os.PathLike)) else {}
        if not arrays and params is not None:
            options["params"] = params
        made = _options.make("run", options)
        names = (c_char_p * len(arrays))(*(name.encode() for name in arrays))
        values = (_native.Array * len(arrays))()
        kept = [_tensor.fill(value, one, name)
                for value, (name, one) in zip(values, arrays.items())]
        self._handle = _native.Handle(
            _native.new("weft_run_new", made.value, programs.handle_of(self._main),
                        programs.handle_of(self._startup), names, values, len(arrays)),
            "weft_run_free")
        del kept
        self._take_notes(stacklevel=4)

    def _take_notes(self, stacklevel):
        raw = POINTER(_native.Message)()
        count = _native.lib().weft_run_take_messages(self._handle.value, byref(raw))
        notes = [Note.of(raw[i]) for i in range(count)]
        self._notes += notes
        warn(notes, stacklevel)

    @property
    def notes(self):
        """What weft run says, so far: a list of Note."""
        self._take_notes(stacklevel=3)
        return self._notes

    def step(self, feeds=None):
        """Runs a step with the batch of all ranks, and returns a list of Fetched.

        feeds   variable -> array: NumPy's, one with DLPack (PyTorch, Paddle), or a buffer. Every
                step has the variables of the first. Arrays are read, not kept.

        KeyboardInterrupt comes after the step. The first error ends the run.
        """
        feeds = feeds or {}
        names = tuple(feeds)
        if names != self._names:
            if self._names is not None and set(names) == set(self._names):
                names = self._names
            else:
                self._c_names = (c_char_p * len(names))(*(name.encode() for name in names))
                self._batch = (_native.Array * len(names))()
        library = _native.lib()
        handle, batch = self._handle.value, self._batch
        kept = [_tensor.fill(batch[i], feeds[name], name) for i, name in enumerate(names)]
        status = library.weft_run_step(handle, self._c_names, batch, len(names))
        del kept
        if status:
            self._take_notes(stacklevel=3)
            _native.check(status)
        if self._names is None:
            self._take_notes(stacklevel=3)
            self._fetch = [library.weft_run_fetched_name(handle, i).decode()
                           for i in range(library.weft_run_num_fetched(handle))]
        self._names = names
        arrays = _native.Handle(_native.new("weft_run_take_fetched", handle), "weft_arrays_free")
        number, ranks = library.weft_run_fetched_number, library.weft_run_num_ranks(handle)
        return [Fetched(name, number(handle, i), arrays, i * ranks, ranks)
                for i, name in enumerate(self._fetch)]

    @property
    def next_step(self):
        """The number of the next step: so many are done, with those of the run before a resume."""
        return _native.lib().weft_run_next_step(self._handle.value)

    @property
    def num_ranks(self):
        """The number of ranks."""
        return _native.lib().weft_run_num_ranks(self._handle.value)

    def state_dict(self):
        """Parameters and state of optimizers before the next step: a dictionary of Tensor."""
        handle = _native.new("weft_run_state", self._handle.value)
        arrays = _native.Handle(handle, "weft_arrays_free")
        library = _native.lib()
        return {library.weft_arrays_name(handle, i).decode():
                    _tensor.Tensor(arrays, library.weft_arrays_get(handle, i))
                for i in range(library.weft_arrays_count(handle))}

    def save(self, path):
        """Writes parameters and state: .npz, .safetensors, .pdparams and .pdopt, or a save_combine
        stream (any other extension), as weft run --save does."""
        _native.check(_native.lib().weft_run_save(self._handle.value, os.fsencode(path)))

    def checkpoint(self, path):
        """Writes the state of all ranks, with which option resume goes on, with the same bits."""
        _native.check(_native.lib().weft_run_checkpoint(self._handle.value, os.fsencode(path)))

    def close(self):
        """Ends the run. Later steps are errors, and so are state_dict, save and checkpoint."""
        _native.lib().weft_status_free(_native.lib().weft_run_end(self._handle.value))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return "<weft.Run: %d ranks, before step %d>" % (self.num_ranks, self.next_step)
