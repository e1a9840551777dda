"""A shared library of all that its dependencies link, which exports the functions that a file names."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")

# Debian's archives of these are not position-independent.
_SHARED = ["protobuf", "sodium"]

def _flag(flag, static_from):
    if static_from or not flag.startswith("-l:lib") or not flag.endswith(".a"):
        return flag
    name = flag[len("-l:lib"):-len(".a")]
    return "-l" + name if name in _SHARED or name.startswith("absl_") else flag

def _impl(ctx):
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    own = [dep.label for dep in ctx.attr.deps]
    archives = []
    roots = []
    static_from = ctx.attr._static_from[BuildSettingInfo].value
    flags = ["-L" + static_from] if static_from else []
    for linker_input in info.linking_context.linker_inputs.to_list():
        for flag in linker_input.user_link_flags:
            if _flag(flag, static_from) not in flags:
                flags.append(_flag(flag, static_from))
        for library in linker_input.libraries:
            archive = library.pic_static_library or library.static_library
            if archive:
                whole = library.alwayslink or linker_input.owner in own
                (roots if whole else archives).append(archive)
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.run(
        executable = ctx.executable._link,
        arguments = [out.path, ctx.attr.soname, ctx.file.exports.path] +
                    [file.path for file in roots] + ["--"] +
                    [file.path for file in archives] + ["--"] + flags,
        inputs = archives + roots + [ctx.file.exports],
        outputs = [out],
        mnemonic = "SharedLibrary",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

shared_library = rule(
    implementation = _impl,
    doc = """Links all of `deps`, and of their dependencies what these need. Exports the symbols that lines of
`exports` name, and no others. Expects position-independent objects: a fastbuild, or --force_pic.""",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "exports": attr.label(allow_single_file = True),
        "soname": attr.string(),
        "_static_from": attr.label(default = "//bazel:static_from"),
        "_link": attr.label(
            default = "//bazel:link_shared_library",
            executable = True,
            cfg = "exec",
        ),
    },
)
