"""A library with its headers, as an archive for projects that do not build with Bazel."""

def _impl(ctx):
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    archives = []
    flags = []
    for linker_input in info.linking_context.linker_inputs.to_list():
        flags += [flag for flag in linker_input.user_link_flags if flag not in flags]
        for library in linker_input.libraries:
            archive = library.pic_static_library or library.static_library
            if archive:
                archives.append(archive)

    # Those of other repositories start with "../".
    headers = [
        header
        for header in info.compilation_context.headers.to_list()
        if header.extension == "h" and not header.short_path.startswith("../")
    ]
    out = ctx.actions.declare_file(ctx.label.name + ".tar")
    lists = ctx.actions.declare_file(ctx.label.name + ".files")
    ctx.actions.write(lists, "".join(
        ["archive %s\n" % file.path for file in archives] +
        ["header %s %s\n" % (file.path, file.short_path) for file in headers] +
        ["flag %s\n" % flag for flag in flags] +
        ["c_header %s\n" % ctx.file.c_header.path, "c_library %s\n" % ctx.file.c_library.path],
    ))
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [lists.path, ctx.file.version.path, ctx.file.license.path, out.path],
        inputs = archives + headers + [
            lists,
            ctx.file.version,
            ctx.file.license,
            ctx.file.c_header,
            ctx.file.c_library,
        ],
        outputs = [out],
        mnemonic = "InstallTree",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

install_tree = rule(
    implementation = _impl,
    doc = """NAME.tar: include/weft with all headers of `deps` in this repository, lib/libweft.a with
all of their archives, the interface for C, and files for CMake and pkg-config. Headers include each other as
"weft/...".""",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "c_header": attr.label(allow_single_file = True),
        "c_library": attr.label(allow_single_file = True),
        "version": attr.label(allow_single_file = True),
        "license": attr.label(allow_single_file = True),
        "_pack": attr.label(
            default = "//bazel:pack_install_tree",
            executable = True,
            cfg = "exec",
        ),
    },
)
