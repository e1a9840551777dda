"""Options of the commands: keyword arguments become the values of flags."""
import os

from weft import _native


class Option:
    """A flag: `name`, `type` as help shows it, `default` (text), `help`, `is_flag`, `is_list`."""

    __slots__ = ("name", "type", "default", "help", "is_flag", "is_list")

    def __init__(self, raw):
        self.name = raw.name.decode()
        self.type = raw.type.decode()
        self.default = raw.default_value.decode()
        self.help = raw.help.decode()
        self.is_flag = bool(raw.is_flag)
        self.is_list = bool(raw.is_list)


def options_of(command):
    """The options of "transpile", "verify", "stats", "plan", "view" or "run"."""
    library = _native.lib()
    handle = _native.Handle(_native.new("weft_options_new", command.encode()), "weft_options_free")
    count = library.weft_options_count(handle.value)
    return [Option(library.weft_options_get(handle.value, i)) for i in range(count)]


def _text(name, value):
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's, too
        return "true" if value else "false"
    if isinstance(value, dict):
        return ",".join("%s=%s" % (key, _text(name, one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(_text(name, one) for one in value)
    if isinstance(value, (os.PathLike, bytes)):
        return os.fsdecode(value)
    import numbers  # pylint: disable=import-outside-toplevel
    if isinstance(value, (str, numbers.Number)):
        return str(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # an array of one value
        one = value.item()
        if one is not value:  # as of a variable of Paddle 2
            return _text(name, one)
    raise _native.Error("%s: expected text, a number, a path, or a list of these, found %s" % (
        name, type(value).__name__), "INVALID_ARGUMENT")


def make(command, values):
    """A handle with the options that have a value; those that are None are not given."""
    handle = _native.Handle(_native.new("weft_options_new", command.encode()), "weft_options_free")
    library = _native.lib()
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, dict) and name == "set":
            value = ["%s=%s" % (key, _text(name, one)) for key, one in value.items()]
        texts = [_text(name, one) for one in value] if isinstance(
            value, (list, tuple)) and _is_list(command, name) else [_text(name, value)]
        for text in texts:
            _native.check(library.weft_options_set(
                handle.value, _native.c_text(name), _native.c_text(text)))
    return handle


_lists = {}


def _is_list(command, name):
    if command not in _lists:
        _lists[command] = {option.name for option in options_of(command) if option.is_list}
    return name in _lists[command]
