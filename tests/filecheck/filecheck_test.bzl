"""filecheck_test: what transpile makes of a model, as FileCheck lines."""

def filecheck_test(name, model, flags):
    """Transpiles a model and checks the text of the result.

    Args:
      name: the lines are in NAME.check (see filecheck_test.sh).
      model: name of the model; MODEL/main.pb and MODEL/startup.pb are targets of this package, or,
        for fit_a_line, of //tests/data.
      flags: of transpile.
    """
    package = "//tests/data:" if model == "fit_a_line" else ":"
    files = [
        "//tools:transpile",
        name + ".check",
        package + model + "/main.pb",
        package + model + "/startup.pb",
    ]
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["filecheck_test.sh"],
        args = ["$(rootpath %s)" % file for file in files] + flags,
        data = files,
    )
