"""Libraries with their headers, as an archive for projects that do not build with Bazel."""

def _parts(deps, archives, flags):
    """The archives, flags and headers of `deps` that others do not have."""
    info = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in deps])
    own_archives = []
    own_flags = []
    for linker_input in info.linking_context.linker_inputs.to_list():
        for flag in linker_input.user_link_flags:
            if flag not in flags and flag not in own_flags:
                own_flags.append(flag)
        for library in linker_input.libraries:
            archive = library.pic_static_library or library.static_library
            if archive and archive not in archives:
                own_archives.append(archive)

    # Those of other repositories start with "../".
    headers = [
        header
        for header in info.compilation_context.headers.to_list()
        if header.extension == "h" and not header.short_path.startswith("../")
    ]
    return own_archives, own_flags, headers

def _impl(ctx):
    archives = []
    flags = []
    headers = {}
    lines = []
    inputs = []
    for name, deps in [
        ("weft", ctx.attr.deps),
        ("weft_executor", ctx.attr.executor),
        ("weft_testing", ctx.attr.testing),
    ]:
        own_archives, own_flags, own_headers = _parts(deps, archives, flags)
        lines += ["archive %s %s" % (name, file.path) for file in own_archives]
        lines += ["flag %s %s" % (name, flag) for flag in own_flags]
        headers.update({header: None for header in own_headers})
        inputs += own_archives
        if name == "weft":  # which the others link, too
            archives = own_archives
            flags = own_flags
    out = ctx.actions.declare_file(ctx.label.name + ".tar")
    lists = ctx.actions.declare_file(ctx.label.name + ".files")
    lines += ["header %s %s" % (file.path, file.short_path) for file in headers]
    lines += ["c_header " + ctx.file.c_header.path, "c_library " + ctx.file.c_library.path]
    ctx.actions.write(lists, "\n".join(lines) + "\n")
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [lists.path, ctx.file.version.path, ctx.file.license.path, out.path],
        inputs = inputs + headers.keys() + [
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
    doc = """NAME.tar: include/weft with all headers in this repository, lib/libweft.a with all archives of
`deps`, lib/libweft_executor.a and lib/libweft_testing.a with those that the others need besides, the
interface for C, and files for CMake and pkg-config. Headers include each other as "weft/...".""",
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "executor": attr.label_list(providers = [CcInfo]),
        "testing": attr.label_list(providers = [CcInfo]),
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
