"""Programs, and what is said of them."""
from __future__ import annotations

import os
from ctypes import c_void_p

from weft import _native, _options

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Optional, Union

_BINARY, _PROTO_TEXT, _PROGRAM_TEXT, _PIR, _PT2 = range(5)
_FORMATS = {"pb": _BINARY, "pbtxt": _PROTO_TEXT, "prog": _PROGRAM_TEXT, "json": _PIR, "pt2": _PT2}


class Program:
    """A program of Paddle 1.8 to 3.3, or a training step of PyTorch (.pt2). It does not change.

    `source` is the path of a file, whose extension tells the format; bytes of a .pb, .json or .pt2
    file; or a static program of Paddle, in either of its formats. `name` stands for it in messages.
    `plateau_steps`, of a program of Paddle whose learning rate follows ReduceOnPlateau: the steps
    between two calls of its step(), such as those of an epoch. The run makes these calls, with the
    mean of the first fetched variable.

    Equal programs have the same bytes, and come from the same .pt2 file, if from one. A pickle has
    the values in that file.
    """

    def __init__(self, source: Any, name: str = "main",
                 plateau_steps: Optional[int] = None) -> None:
        if plateau_steps is not None and not hasattr(source, "global_block"):
            raise _native.Error("plateau_steps: expected a program of Paddle whose learning rate "
                                "follows ReduceOnPlateau, found %s" % type(source).__name__,
                                "INVALID_ARGUMENT")
        if isinstance(source, Program):
            self._handle = source._handle
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self._parse(bytes(source), _BINARY, name)
        elif isinstance(source, (str, os.PathLike)):
            self._take(_native.new("weft_program_read", _native.c_path(source)))
        else:
            from weft import _paddle  # pylint: disable=import-outside-toplevel
            if source is None:
                raise _native.Error("%s: expected a program, found None" % name,
                                    "INVALID_ARGUMENT")
            self._parse(_paddle.program_bytes(source, name, plateau_steps), _BINARY, name)

    @classmethod
    def from_text(cls, text: str, name: str = "main") -> Program:
        """Reads program text, as str() prints it."""
        if not isinstance(text, str):
            raise _native.Error("%s: expected program text, a str, found %s; weft.Program takes paths, "
                                "and bytes of files" % (name, type(text).__name__),
                                "INVALID_ARGUMENT")
        program = cls.__new__(cls)
        program._parse(text.encode(), _PROGRAM_TEXT, name)
        return program

    @classmethod
    def _of(cls, handle):
        """Takes a handle; None for none."""
        if not handle:
            return None
        program = cls.__new__(cls)
        program._take(handle)
        return program

    def _take(self, handle):
        self._handle = _native.Handle(handle, "weft_program_free")

    def _parse(self, data, kind, name):
        self._take(_native.new("weft_program_parse", data, len(data), kind, _native.c_text(name)))

    @property
    def name(self) -> str:
        """The path that it was read from, or its name in messages."""
        return os.fsdecode(_native.lib().weft_program_name(self._handle.value))

    @property
    def format(self) -> str:
        """"pb", or "json" for a program of Paddle 3 (PIR)."""
        kind = _native.lib().weft_program_format(self._handle.value)
        return next(name for name, number in _FORMATS.items() if number == kind)

    @property
    def num_ops(self) -> int:
        """The number of ops in all blocks."""
        return _native.lib().weft_program_num_ops(self._handle.value)

    def to_bytes(self, format: Optional[str] = None) -> bytes:  # pylint: disable=redefined-builtin
        """The bytes of a file: "pb", "pbtxt", "prog", "json" or "pt2"; default: `format`.

        "pt2", of a step that came in that, has its values, which other formats lack.
        """
        kind = format or self.format
        if kind not in _FORMATS:
            raise _native.Error("format: expected %s, found %s" % (", ".join(_FORMATS), kind),
                                "INVALID_ARGUMENT")
        return _native.text("weft_program_serialize", self._handle.value, _FORMATS[kind])

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes a file, whose extension tells the format: all of it, or none."""
        _native.check(_native.lib().weft_program_write(self._handle.value, _native.c_path(path)))

    def to_paddle(self) -> Any:
        """A program of the Paddle that is installed, in the same format."""
        from weft import _paddle  # pylint: disable=import-outside-toplevel
        return _paddle.program_of(self)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _of_bytes, (self.to_bytes(), self.name, self._archive())

    def _archive(self):
        return _native.text("weft_program_archive", self._handle.value)

    def __str__(self):
        return self.to_bytes("prog").decode(errors="replace")

    def __repr__(self):
        return "<weft.Program %s: %d ops>" % (self.name, self.num_ops)

    def __eq__(self, other):
        if not isinstance(other, Program):
            return NotImplemented
        return self._handle is other._handle or (
            self.to_bytes() == other.to_bytes() and self._archive() == other._archive())

    def __hash__(self):
        return hash(self.to_bytes())

    def _repr_html_(self):
        return folded("%s: %d ops" % (self.name, self.num_ops), page(self))


def _of_bytes(data, name, archive):
    """What a pickle has."""
    made = Program(data, name)
    if archive:
        made._take(_native.new("weft_program_with_archive", handle_of(made), archive, len(archive)))
    return made


def program(source, name):
    """The Program of whatever Program takes."""
    return source if isinstance(source, Program) else Program(source, name)


def optional(source, name):
    """The same, or None."""
    return None if source is None else program(source, name)


def handle_of(one):
    """The handle of a Program, or None."""
    return None if one is None else one._handle.value  # pylint: disable=protected-access


def handles_of(programs):
    """An array of handles."""
    return (c_void_p * len(programs))(*map(handle_of, programs))


def page(main, startup=None, original=None, original_startup=None, options=None):
    """The page of weft view."""
    made = _options.make("view", options or {})
    return _native.text("weft_view", made.value, handle_of(main), handle_of(startup),
                        handle_of(original), handle_of(original_startup)).decode()


def folded(summary, content):
    """A page inside of a notebook, which opens it when it is asked for."""
    import html  # pylint: disable=import-outside-toplevel

    return ('<details><summary>%s</summary><iframe srcdoc="%s" loading="lazy" '
            'style="width: 100%%; height: 600px; border: 0"></iframe></details>' % (
                html.escape(summary), html.escape(content)))


class Diff:
    """The differences of two programs: str() is what weft diff prints, true if there are any."""

    def __init__(self, a, b):
        self.a, self.b = a, b
        self._text = _native.text("weft_diff", handle_of(a), handle_of(b)).decode()

    def __bool__(self):
        return bool(self._text)

    def __str__(self):
        return self._text

    def __repr__(self):
        lines = self._text.count("\n")
        return "<weft.Diff %s, %s: %s>" % (self.a.name, self.b.name,
                                           "%d lines" % lines if lines else "equal")

    def _repr_html_(self):
        return folded("%s, and what changes it to %s" % (self.a.name, self.b.name),
                      page(self.b, original=self.a))
