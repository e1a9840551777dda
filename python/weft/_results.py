"""Results of transpile and verify."""
from __future__ import annotations

import warnings
from collections import namedtuple

from weft import _native, _options
from weft import _program as programs

TYPE_CHECKING = False  # as of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple


class Warning(UserWarning):  # pylint: disable=redefined-builtin
    """What the commands print after "warning: "."""


class Note(str):
    """What a command says besides its result; `severity` is "note" or "warning"."""

    severity = "note"

    @classmethod
    def of(cls, raw):
        """The Note of a message of the C interface."""
        note = cls(raw.text.decode(errors="replace"))
        note.severity = _native.SEVERITIES[raw.severity]
        return note


def warn(notes, stacklevel):
    """Gives the warnings among notes to Python."""
    for note in notes:
        if note.severity == "warning":
            warnings.warn(note, Warning, stacklevel=stacklevel + 1)


class Transpiled:
    """Rewritten programs.

    main, startup   Program; startup is None if none was given
    server          the program of the parameter servers, or None
    trainers        (main, startup) of every trainer, if rank="all"; else of the one
    notes           what transpile says: a list of Note
    """

    main: programs.Program
    startup: Optional[programs.Program]
    server: Optional[programs.Program]
    trainers: List[Tuple[programs.Program, Optional[programs.Program]]]
    notes: List[Note]

    def __init__(self, handle, original, original_startup):
        library = _native.lib()
        owner = _native.Handle(handle, "weft_transpiled_free")
        of = programs.Program._of  # pylint: disable=protected-access
        self.trainers = [
            (of(library.weft_transpiled_main(handle, i)),
             of(library.weft_transpiled_startup(handle, i)))
            for i in range(library.weft_transpiled_count(handle))]
        self.main, self.startup = self.trainers[0]
        self.server = of(library.weft_transpiled_server(handle))
        self.notes = [Note.of(library.weft_transpiled_message(handle, i))
                      for i in range(library.weft_transpiled_num_messages(handle))]
        self._remarks = library.weft_transpiled_remarks(owner.value, 0)
        self._originals = original, original_startup

    @property
    def remarks(self) -> Any:
        """What was inserted where, and why."""
        import json  # pylint: disable=import-outside-toplevel
        return json.loads(self._remarks)

    def diff(self) -> programs.Diff:
        """What was changed in the main program."""
        return programs.Diff(self._originals[0], self.main)

    def __repr__(self):
        return "<weft.Transpiled: %d ops, startup: %s>" % (
            self.main.num_ops, "none" if self.startup is None else self.startup.num_ops)

    def _repr_html_(self):
        original, original_startup = self._originals
        return programs.folded(repr(self).strip("<>"), programs.page(
            self.main, self.startup, original, original_startup if self.startup else None))


def transpile(main, startup, options, progress):
    """weft.transpile."""
    main, startup = programs.program(main, "main"), programs.optional(startup, "startup")
    made = _options.make("transpile", options)
    if progress is not None and not callable(progress):
        raise _native.Error("progress: expected a function that takes the name of a pass, found %s" %
                            type(progress).__name__, "INVALID_ARGUMENT")
    raised = []

    def call(_, name):
        if raised:
            return
        try:
            progress(name.decode())
        except BaseException as error:  # pylint: disable=broad-except  # C passes none on
            raised.append(error)

    callback = _native.PROGRESS(call)
    if progress is not None:
        _native.lib().weft_options_set_progress(made.value, callback, None)
    handle = _native.new("weft_transpile", made.value, programs.handle_of(main),
                         programs.handle_of(startup))
    result = Transpiled(handle, main, startup)
    if raised:
        raise raised[0]
    warn(result.notes, stacklevel=3)
    return result


class Finding(namedtuple(
        "Finding", "rule severity rank in_startup block op_index op_type variable message")):
    """A violation of a rule. `rank` is None if one program is for all ranks; `op_type` and
    `op_index` are None if it is about the program as a whole."""

    __slots__ = ()

    rule: str
    severity: str
    rank: Optional[int]
    in_startup: bool
    block: int
    op_index: Optional[int]
    op_type: Optional[str]
    variable: str
    message: str

    @classmethod
    def of(cls, raw):
        """The Finding of one of the C interface."""
        has_op = raw.op_type is not None
        return cls(raw.rule.decode(), _native.SEVERITIES[raw.severity],
                   None if raw.rank < 0 else raw.rank, bool(raw.in_startup), raw.block,
                   raw.op_index if has_op else None, raw.op_type.decode() if has_op else None,
                   raw.variable.decode(errors="replace"), raw.message.decode(errors="replace"))

    def __str__(self):
        return "%s: %s: %s" % (self.severity, self.rule, self.message)


class Report:
    """What the verifier says: true if nothing is wrong.

    ok         whether nothing is wrong
    findings   a list of Finding
    """

    ok: bool
    findings: List[Finding]

    def __init__(self, handle):
        library = _native.lib()
        owner = _native.Handle(handle, "weft_report_free")
        self.ok = bool(library.weft_report_ok(handle))
        self.findings = [Finding.of(library.weft_report_finding(handle, i))
                         for i in range(library.weft_report_num_findings(handle))]
        self._text = library.weft_report_text(owner.value).decode(errors="replace")
        self._json = library.weft_report_json(owner.value)

    @property
    def data(self) -> Dict[str, Any]:
        """What weft verify --format json prints: a dictionary."""
        import json  # pylint: disable=import-outside-toplevel
        return json.loads(self._json)

    @property
    def notes(self) -> List[str]:
        """What the verdict takes for granted: a list of str."""
        return self.data["assumed"]

    def raise_if_wrong(self) -> None:
        """Raises Error with the first error, if there is one."""
        if self.ok:
            return
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if not errors:
            raise _native.Error(self._text.strip().splitlines()[-1], "FAILED_PRECONDITION")
        more = " (and %d more)" % (len(errors) - 1) if len(errors) > 1 else ""
        raise _native.Error("%s: %s%s" % (errors[0].rule, errors[0].message, more),
                            "FAILED_PRECONDITION")

    def __bool__(self):
        return self.ok

    def __str__(self):
        return self._text

    def __repr__(self):
        return "<weft.Report: %s>" % self._text.strip().splitlines()[-1]

    def _repr_html_(self):
        import html  # pylint: disable=import-outside-toplevel
        lines = self._text.strip().splitlines()
        return "<details%s><summary>%s</summary><pre>%s</pre></details>" % (
            "" if self.ok else " open", html.escape(lines[-1]), html.escape("\n".join(lines)))


def _list(given, name):
    if given is None:
        return []
    return [programs.program(one, name)
            for one in (given if isinstance(given, (list, tuple)) else [given])]


def verify(main, startup, original, original_startup, server, options):
    """weft.verify."""
    if isinstance(main, Transpiled):
        startup = main.startup if startup is None else startup
        server = main.server if server is None else server
        main = main.main
    mains, startups = _list(main, "main"), _list(startup, "startup")
    if not mains:
        raise _native.Error("main: expected a program, or one for each rank, found none",
                            "INVALID_ARGUMENT")
    others = [programs.optional(one, name) for one, name in (
        (original, "original"), (original_startup, "original_startup"), (server, "server"))]
    made = _options.make("verify", options)
    return Report(_native.new(
        "weft_verify", made.value, programs.handles_of(mains), len(mains),
        programs.handles_of(startups), len(startups), *map(programs.handle_of, others)))


class Text(str):
    """What a command prints; a notebook shows its lines."""

    def _repr_html_(self):
        import html  # pylint: disable=import-outside-toplevel
        return "<pre>%s</pre>" % html.escape(self)


def text_of(function, command, one, options):
    """What a command prints of a program."""
    program = programs.program(one, "main")
    made = _options.make(command, options)
    return Text(_native.text(function, made.value, programs.handle_of(program)).decode())
