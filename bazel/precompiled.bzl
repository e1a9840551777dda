"""precompiled_headers: an empty header beside which the compiler finds its precompiled contents.

Reading the headers of the standard library, Abseil, protobuf and GoogleTest takes two thirds of
the time of an unoptimized compilation. bazel/cc.bzl makes every source include the result first.
GCC ignores it where it was made with other flags of some kinds: the header itself is empty, so a
source still names what it uses. It does not notice -fno-math-errno: the flags must be the same.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompile(ctx, cc_toolchain, included, output):
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        source_file = ctx.file.contents.path,
        output_file = output.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        quote_include_directories = included.quote_includes,
        use_pic = ctx.var["COMPILATION_MODE"] != "opt",  # as Bazel does for binaries
    )
    action = ACTION_NAMES.cpp_compile
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = action),
        arguments = ["-x", "c++-header"] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset([ctx.file.contents], transitive = [cc_toolchain.all_files, included.headers]),
        outputs = [output],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.contents.short_path,
    )

def _precompiled_headers_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "// The contents are in %s.gch.\n" % header.basename)
    headers = [header]
    if cc_toolchain.compiler_executable.endswith("gcc"):
        precompiled = ctx.actions.declare_file(header.basename + ".gch")
        included = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
        _precompile(ctx, cc_toolchain, included.compilation_context, precompiled)
        headers.append(precompiled)
    return [
        DefaultInfo(files = depset(headers)),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(headers))),
    ]

precompiled_headers = rule(
    implementation = _precompiled_headers_impl,
    attrs = {
        "contents": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    fragments = ["cpp"],
)
