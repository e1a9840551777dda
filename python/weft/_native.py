"""The C interface (c/weft.h), by ctypes. The library is loaded when it is first needed."""
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

VERSION = 2  # WEFT_C_VERSION
CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
SEVERITIES = ("error", "warning", "note")


class Error(Exception):
    """What the commands print after "error: "; `code` says of what kind it is."""

    code: str

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code


def no_names(what, found, expected="", hint=""):
    """The Error of a value that is no arrays by name. `expected` and `hint` say more."""
    return Error("%s: expected name -> array%s, found %s%s" % (
        what, expected, type(found).__name__, hint), "INVALID_ARGUMENT")


class Message(ctypes.Structure):
    _fields_ = [("severity", c_int), ("text", c_char_p)]


class Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_char_p), ("default_value", c_char_p),
                ("help", c_char_p), ("is_flag", c_int), ("is_list", c_int)]


class Finding(ctypes.Structure):
    _fields_ = [("rule", c_char_p), ("severity", c_int), ("rank", c_int), ("in_startup", c_int),
                ("block", c_int), ("op_index", c_int64), ("op_type", c_char_p),
                ("variable", c_char_p), ("message", c_char_p)]


class Plateau(ctypes.Structure):
    _fields_ = [("rate", c_double), ("best", c_double), ("num_bad", c_int64),
                ("cooldown_left", c_int64)]


class Array(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("num_dims", c_int), ("dims", POINTER(c_int64)),
                ("data", c_void_p)]


PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)

# By function: the type of its result, "status" for one that can fail, and those of its arguments.
_FUNCTIONS = {
    "weft_c_version": (c_int,),
    "weft_version": (c_char_p,),
    "weft_status_code": (c_int, c_void_p),
    "weft_status_message": (c_char_p, c_void_p),
    "weft_status_free": (None, c_void_p),
    "weft_text_data": (c_void_p, c_void_p),
    "weft_text_size": (c_size_t, c_void_p),
    "weft_text_free": (None, c_void_p),
    "weft_options_new": ("status", c_char_p, POINTER(c_void_p)),
    "weft_options_set": ("status", c_void_p, c_char_p, c_char_p),
    "weft_options_count": (c_size_t, c_void_p),
    "weft_options_get": (Option, c_void_p, c_size_t),
    "weft_options_set_progress": (None, c_void_p, PROGRESS, c_void_p),
    "weft_options_free": (None, c_void_p),
    "weft_program_read": ("status", c_char_p, POINTER(c_void_p)),
    "weft_program_parse": ("status", c_char_p, c_size_t, c_int, c_char_p, POINTER(c_void_p)),
    "weft_program_write": ("status", c_void_p, c_char_p),
    "weft_program_serialize": ("status", c_void_p, c_int, POINTER(c_void_p)),
    "weft_program_format": (c_int, c_void_p),
    "weft_program_archive": ("status", c_void_p, POINTER(c_void_p)),
    "weft_program_with_archive": ("status", c_void_p, c_char_p, c_size_t, POINTER(c_void_p)),
    "weft_program_name": (c_char_p, c_void_p),
    "weft_program_num_ops": (c_size_t, c_void_p),
    "weft_program_free": (None, c_void_p),
    "weft_diff": ("status", c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_stats": ("status", c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_plan": ("status", c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_view": ("status", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_transpile": ("status", c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_transpiled_count": (c_size_t, c_void_p),
    "weft_transpiled_main": (c_void_p, c_void_p, c_size_t),
    "weft_transpiled_startup": (c_void_p, c_void_p, c_size_t),
    "weft_transpiled_server": (c_void_p, c_void_p),
    "weft_transpiled_num_messages": (c_size_t, c_void_p),
    "weft_transpiled_message": (Message, c_void_p, c_size_t),
    "weft_transpiled_remarks": (c_char_p, c_void_p, c_size_t),
    "weft_transpiled_free": (None, c_void_p),
    "weft_verify": ("status", c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_void_p), c_size_t,
                    c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "weft_report_ok": (c_int, c_void_p),
    "weft_report_num_findings": (c_size_t, c_void_p),
    "weft_report_finding": (Finding, c_void_p, c_size_t),
    "weft_report_text": (c_char_p, c_void_p),
    "weft_report_json": (c_char_p, c_void_p),
    "weft_report_free": (None, c_void_p),
    "weft_arrays_count": (c_size_t, c_void_p),
    "weft_arrays_name": (c_char_p, c_void_p, c_size_t),
    "weft_arrays_get": (Array, c_void_p, c_size_t),
    "weft_arrays_free": (None, c_void_p),
    "weft_run_new": ("status", c_void_p, c_void_p, c_void_p, POINTER(c_char_p), POINTER(Array),
                     c_size_t, POINTER(c_void_p)),
    "weft_run_step": ("status", c_void_p, POINTER(c_char_p), POINTER(Array), c_size_t),
    "weft_run_num_ranks": (c_int, c_void_p),
    "weft_run_process": (c_int, c_void_p),
    "weft_run_num_processes": (c_int, c_void_p),
    "weft_run_next_step": (c_int64, c_void_p),
    "weft_run_num_fetched": (c_size_t, c_void_p),
    "weft_run_fetched_name": (c_char_p, c_void_p, c_size_t),
    "weft_run_fetched_number": (c_double, c_void_p, c_size_t),
    "weft_run_fetched": (Array, c_void_p, c_size_t, c_int),
    "weft_run_take_fetched": ("status", c_void_p, POINTER(c_void_p)),
    "weft_run_state": ("status", c_void_p, POINTER(c_void_p)),
    "weft_run_set_state": ("status", c_void_p, POINTER(c_char_p), POINTER(Array), c_size_t),
    "weft_evaluation_new": ("status", c_void_p, c_void_p, c_void_p, POINTER(c_char_p),
                            POINTER(Array), c_size_t, POINTER(c_void_p)),
    "weft_evaluation_restart": ("status", c_void_p, POINTER(c_char_p), POINTER(Array), c_size_t),
    "weft_evaluation_totals": ("status", c_void_p, POINTER(c_void_p)),
    "weft_run_is_best": ("status", c_void_p, c_void_p, c_char_p, POINTER(c_char_p),
                         POINTER(c_double), c_size_t, POINTER(c_int)),
    "weft_run_plateau": (c_int, c_void_p, POINTER(Plateau)),
    "weft_run_save": ("status", c_void_p, c_char_p),
    "weft_run_checkpoint": ("status", c_void_p, c_char_p),
    "weft_run_take_messages": (c_size_t, c_void_p, POINTER(POINTER(Message))),
    "weft_run_end": ("status", c_void_p),
    "weft_run_free": (None, c_void_p),
}


def c_text(value):
    """The bytes of a name or an option, which end with the first NUL in C."""
    return _without_nul(value, value.encode("utf-8", "surrogateescape"))  # it may be a path


def c_path(path):
    """The same of a path."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise Error("expected a path, found %s" % type(path).__name__, "INVALID_ARGUMENT")
    return _without_nul(path, os.fsencode(path))


def _without_nul(value, data):
    if b"\0" in data:
        raise Error("%r: expected no character NUL" % (value,), "INVALID_ARGUMENT")
    return data


def check(status):
    """Raises the error that a function has returned."""
    if not status:
        return
    library = lib()
    code = library.weft_status_code(status)
    message = library.weft_status_message(status).decode(errors="replace")
    library.weft_status_free(status)
    raise Error(message, CODES[code] if code < len(CODES) else "UNKNOWN")


def _path():
    """The library: as WEFT_C_LIBRARY says, beside this file, or where the system finds it."""
    given = os.environ.get("WEFT_C_LIBRARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libweft_c.so")
    return given or (beside if os.path.exists(beside) else "libweft_c.so.1")


_lib = None


def lib():
    """The library, whose functions return and take what _FUNCTIONS says."""
    global _lib  # pylint: disable=global-statement
    if _lib is not None:
        return _lib
    path = _path()
    try:
        loaded = ctypes.CDLL(path)
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype = c_void_p if result == "status" else result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ImportError("%s: cannot be loaded: %s; WEFT_C_LIBRARY names another one" % (
            path, error)) from error
    if loaded.weft_c_version() < VERSION:
        raise ImportError("%s: expected version %d of the C interface or later, found %d" % (
            path, VERSION, loaded.weft_c_version()))
    _lib = loaded
    return loaded


def new(function, *arguments):
    """The handle that the last argument of a function receives."""
    raise_late()
    handle = c_void_p()
    check(getattr(lib(), function)(*arguments, byref(handle)))
    return handle.value


def text(function, *arguments):
    """The bytes that a function makes."""
    library = lib()
    handle = new(function, *arguments)
    try:
        return ctypes.string_at(library.weft_text_data(handle), library.weft_text_size(handle))
    finally:
        library.weft_text_free(handle)


# What handlers of signals, which run in the main thread, raised where Python ignores it, such as
# KeyboardInterrupt.
late = []


def raise_late():
    """Raises it now."""
    if late:
        import threading  # pylint: disable=import-outside-toplevel
        if threading.current_thread() is threading.main_thread():
            raise late.pop(0)


class Handle:
    """Frees what it holds when it goes; a child of a fork leaves it to its parent."""

    __slots__ = ("value", "_free", "_process")

    def __init__(self, value, free):
        self.value = value
        self._free = getattr(lib(), free)
        self._process = os.getpid()

    def __reduce__(self):
        raise TypeError("what it stands for is in the memory of this process")

    def __del__(self, getpid=os.getpid, late=late):  # at the end of Python, names may be gone
        value, self.value = self.value, None
        try:
            if value and self._process == getpid():
                self._free(value)
        except Exception:  # pylint: disable=try-except-raise
            raise  # Python reports it
        except BaseException as error:  # pylint: disable=broad-exception-caught
            late.append(error)
