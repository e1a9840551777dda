"""cc_library, cc_binary and cc_test as this workspace builds them.

tools/build_rules/prelude_bazel loads these into every BUILD file. Compared with Bazel's own:

- Every source includes precompiled headers first (bazel/precompiled.bzl).
- In a fastbuild, libraries are compiled with -O1: tests run several times as fast, for a fifth more
  time of compilation. Kernels (ops/cpu), which would take twice as long, tests and binaries are not.
- Libraries are linked statically only: nobody needs a shared one besides.
"""

# gcc 12 takes the inline storage of absl::InlinedVector for uninitialized when it optimizes.
OPTIMIZED_LIBRARY = select({
    "//bazel:fastbuild": ["-O1", "-Wno-uninitialized"],
    "//conditions:default": [],
})

# The tests are a fastbuild, where warnings are errors. In an optimized build, which is a user's,
# other false warnings appear, and with other compilers more: none of them ends it.
OPTIMIZED_BUILD = select({
    "//bazel:fastbuild": [],
    "//conditions:default": ["-Wno-error", "-Wno-uninitialized"],
})

def _with_headers(headers, copts, deps):
    return {
        "copts": ["-include", "bazel/%s.h" % headers] + OPTIMIZED_BUILD + copts,
        "deps": deps + ["//bazel:" + headers],
    }

def cc_library(name, srcs = [], testonly = False, copts = [], deps = [], linkstatic = True, **kwargs):
    if not srcs:
        kwargs.update(copts = copts, deps = deps)
    elif testonly:
        kwargs.update(_with_headers("test_headers", copts, deps))
    elif native.package_name().startswith("ops/cpu"):
        kwargs.update(_with_headers("kernel_headers", copts, deps))
    else:
        kwargs.update(_with_headers("library_headers", OPTIMIZED_LIBRARY + copts, deps))
    native.cc_library(name = name, srcs = srcs, testonly = testonly, linkstatic = linkstatic, **kwargs)

def cc_binary(name, testonly = False, copts = [], deps = [], **kwargs):
    kwargs.update(_with_headers("test_headers" if testonly else "kernel_headers", copts, deps))
    native.cc_binary(name = name, testonly = testonly, **kwargs)

def cc_test(name, copts = [], deps = [], **kwargs):
    kwargs.update(_with_headers("test_headers", copts, deps))
    native.cc_test(name = name, **kwargs)
