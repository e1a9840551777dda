"""Libraries that apt installed, as Bazel targets under @system//:NAME.

Headers in /usr/include and /usr/include/x86_64-linux-gnu are found by the compiler
itself.  protobuf, Abseil and GoogleTest are linked statically (the Debian packages ship
the .a files).  A library that is missing fails only the targets that link it, and the
linker's message names the package to install.
"""

_BUILD_HEAD = """
package(default_visibility = ["//visibility:public"])

sh_binary(
    name = "protoc",
    srcs = ["bin/protoc.sh"],
)

proto_lang_toolchain(
    name = "cc_toolchain",
    command_line = "--cpp_out=$(OUT)",
    # libprotobuf already holds the generated code of these.
    blacklisted_protos = [":well_known_protos"],
    runtime = ":protobuf",
)

# google/protobuf/*.proto for proto_library deps (protoc knows them already).
proto_library(
    name = "well_known_protos",
    srcs = glob(["proto_include/google/protobuf/*.proto"]),
    strip_import_prefix = "proto_include",
)
"""

def _lib(name, linkopts, defines = [], hdrs = []):
    parts = ["cc_library(", "    name = \"%s\"," % name]
    if linkopts:
        parts.append("    linkopts = %s," % repr(linkopts))
    if hdrs:
        parts.append("    hdrs = %s," % repr(hdrs))
    if defines:
        parts.append("    defines = %s," % repr(defines))
    parts.append(")")
    return "\n".join(parts) + "\n"

def _impl(rctx):
    lib = "/usr/lib/x86_64-linux-gnu"
    out = [_BUILD_HEAD]

    # --- protobuf -------------------------------------------------------------------
    protoc = rctx.which("protoc")
    if not protoc:
        fail("protoc not found: apt-get install protobuf-compiler libprotobuf-dev")
    rctx.file("bin/protoc.sh", "#!/bin/sh\nexec %s \"$@\"\n" % protoc, executable = True)
    rctx.symlink("/usr/include/google/protobuf", "proto_include/google/protobuf")
    out.append(_lib("protobuf", ["-l:libprotobuf.a", "-lpthread"]))

    # --- Abseil: every archive in one group; the linker takes what it needs ------------
    absl = sorted([p.basename for p in rctx.path(lib).readdir() if p.basename.startswith("libabsl_") and p.basename.endswith(".a")])
    if not absl:
        fail("Abseil not found: apt-get install libabsl-dev")
    out.append(_lib("absl", ["-Wl,--start-group"] + ["-l:" + a for a in absl] + ["-Wl,--end-group", "-lpthread"]))

    # --- GoogleTest, Google Benchmark, rapidcheck ------------------------------------
    out.append(_lib("gtest", ["-l:libgmock.a", "-l:libgtest.a", "-lpthread"]))
    out.append(_lib("gtest_main", ["-l:libgmock_main.a", "-l:libgmock.a", "-l:libgtest.a", "-lpthread"]))
    out.append(_lib("rapidcheck", ["-l:librapidcheck.a"]))
    out.append(_lib("benchmark", ["-lbenchmark", "-lpthread"]))
    out.append(_lib("benchmark_main", ["-l:libbenchmark_main.a", "-lbenchmark", "-lpthread"]))

    # --- oneDNN --------------------------------------------------------------------------
    out.append(_lib("onednn", ["-ldnnl"]))

    # --- Asio: its queues have locks; gcc refuses fences for ThreadSanitizer ------------------
    # A header that is not there fails what includes Asio, before the compiler does.
    missing = [] if rctx.path("/usr/include/asio.hpp").exists else ["missing-install-libasio-dev.h"]
    out.append(_lib("asio", ["-lpthread"], ["ASIO_DISABLE_FENCED_BLOCK"], missing))

    # --- header-only or shared libraries with a plain -l ----------------------------------
    for name, header, linkopts, package in [
        ("cli11", "CLI/CLI.hpp", [], "libcli11-dev"),
        ("eigen", "eigen3/Eigen/Core", [], "libeigen3-dev"),  # included as <eigen3/Eigen/...>
        ("json", "nlohmann/json.hpp", [], "nlohmann-json3-dev"),
        ("sodium", "sodium.h", ["-l:libsodium.a"], "libsodium-dev"),
        ("xxhash", "xxhash.h", [], "libxxhash-dev"),
        ("libzip", "zip.h", ["-lzip"], "libzip-dev"),
        ("libarchive", "archive.h", ["-larchive"], "libarchive-dev"),
        ("zlib", "zlib.h", ["-lz"], "zlib1g-dev"),
    ]:
        if not rctx.path("/usr/include/" + header).exists:
            linkopts = ["-l:missing-install-" + package]
        out.append(_lib(name, linkopts))

    # --- Gloo, of which code needs the headers, and loads libgloo.so.0 when it runs: from a wheel first.
    # Without it, executor/communicators/BUILD takes a source that says so.
    has_gloo = rctx.path("/usr/include/gloo/context.h").exists
    out.append(_lib("gloo", ["-Wl,-rpath,$$ORIGIN/../weft"]))
    rctx.file("defs.bzl", "HAS_GLOO = %s\n" % has_gloo)

    rctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % rctx.name)
    rctx.file("BUILD", "\n".join(out))

system_libraries = repository_rule(
    implementation = _impl,
    environ = ["PATH"],
    local = True,
    configure = True,
)
