"""Programs of the Paddle in this process."""
import os
import tempfile

from weft import _export_program, _native


def program_bytes(program, name, plateau_steps=None, with_schedule=True):
    """The bytes of a static program of Paddle 2.0 to 3.3, with the schedule of its learning rate."""
    if not hasattr(program, "global_block"):
        raise _native.Error(
            "%s: expected a path, bytes, a weft.Program or a static program of Paddle, found %s%s" % (
                name, type(program).__name__, "; its .%s is one" % (
                    "startup" if "startup" in name else "main") if hasattr(program, "main") else ""),
            "INVALID_ARGUMENT")
    try:
        return _export_program.program_bytes(program, name, plateau_steps=plateau_steps,
                                             with_schedule=with_schedule)
    except (AttributeError, ValueError) as error:
        next_step = ("; weft.Program(program, plateau_steps=N) and weft.paddle.Trainer take it"
                     if "expected plateau_steps" in str(error) else "")
        raise _native.Error(str(error) + next_step, "INVALID_ARGUMENT") from error


def program_of(program):
    """A static program of Paddle."""
    import paddle  # pylint: disable=import-outside-toplevel

    data = program.to_bytes()
    if program.format == "pb":
        return paddle.static.Program.parse_from_string(data)
    from paddle.base import core  # pylint: disable=import-outside-toplevel

    made = paddle.static.Program()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "program.json")
        with open(path, "wb") as file:
            file.write(data)
        if not core.deserialize_pir_program(path, made):
            raise _native.Error("%s: Paddle %s does not read it" % (
                program.name, paddle.__version__), "UNIMPLEMENTED")
    return made
