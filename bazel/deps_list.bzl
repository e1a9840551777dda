"""deps_list: a file that names everything that a target depends on, one label a line."""

_DepsInfo = provider(fields = ["labels"])

def _deps_aspect_impl(target, ctx):
    inherited = [
        dep[_DepsInfo].labels
        for dep in getattr(ctx.rule.attr, "deps", [])
        if _DepsInfo in dep
    ]
    return [_DepsInfo(labels = depset([str(target.label)], transitive = inherited))]

_deps_aspect = aspect(
    implementation = _deps_aspect_impl,
    attr_aspects = ["deps"],
)

def _deps_list_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    labels = sorted(ctx.attr.target[_DepsInfo].labels.to_list())
    ctx.actions.write(out, "\n".join(labels) + "\n")
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

deps_list = rule(
    implementation = _deps_list_impl,
    attrs = {"target": attr.label(aspects = [_deps_aspect])},
)
