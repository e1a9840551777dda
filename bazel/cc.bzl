"""cc_library, cc_binary and cc_test as this workspace builds them.

tools/build_rules/prelude_bazel loads these into every BUILD file. Compared with Bazel's own:

- Every source includes precompiled headers first (bazel/precompiled.bzl).
- In a fastbuild, libraries are compiled with -O1: tests run several times as fast, for a fifth more
  time of compilation. Kernels (ops/cpu), which would take twice as long, tests and binaries are not,
  nor is anything with AddressSanitizer, whose tests are few.
- Libraries are linked statically only: nobody needs a shared one besides.
- Tests of many small sources, and libraries, compile several as one unit, in half the time
  (tests_per_unit, sources_per_unit).
"""

# gcc 12 takes the inline storage of absl::InlinedVector for uninitialized when it optimizes.
OPTIMIZED_LIBRARY = select({
    "//bazel:sanitized": ["-Wno-uninitialized"],
    "//bazel:fastbuild": ["-O1", "-Wno-uninitialized"],
    "//conditions:default": [],
})

# The tests are a fastbuild, where warnings are errors. In an optimized build, which is a user's,
# other false warnings appear, and with other compilers more: none of them ends it.
OPTIMIZED_BUILD = select({
    "//bazel:fastbuild": [],
    "//conditions:default": ["-Wno-error", "-Wno-uninitialized"],
})

# Loops become vector loops: ops/vectorize.h. The precompiled headers need the same flags: gcc accepts
# those made with others without a warning, and then std::sqrt and its kin set errno in the loops that
# inline them, which stay scalar. Neither errno nor floating-point exceptions are read
# anywhere. Without peeling, where an array lies does not decide which elements make a vector.
VECTOR_LOOPS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "--param=vect-max-peeling-for-alignment=0",
]
OPTIMIZED_KERNELS = select({
    "//bazel:fastbuild": [],
    "//conditions:default": VECTOR_LOOPS,
})

def _with_headers(headers, copts, deps):
    return {
        "copts": ["-include", "bazel/%s.h" % headers] + OPTIMIZED_BUILD + copts,
        "deps": deps + ["//bazel:" + headers],
    }

def cc_library(
        name,
        srcs = [],
        testonly = False,
        copts = [],
        deps = [],
        linkstatic = True,
        sources_per_unit = 1,
        **kwargs):
    if sources_per_unit > 1:
        native.cc_library(name = name + "_srcs", textual_hdrs = srcs)
        deps = deps + [":%s_srcs" % name]
        srcs = _units(name, srcs, sources_per_unit, testonly)
    if not srcs:
        kwargs.update(copts = copts, deps = deps)
    elif testonly:
        kwargs.update(_with_headers("test_headers", copts, deps))
    elif native.package_name().startswith("ops/cpu"):
        kwargs.update(_with_headers("kernel_headers", OPTIMIZED_KERNELS + copts, deps))
    else:
        kwargs.update(_with_headers("library_headers", OPTIMIZED_LIBRARY + copts, deps))
    native.cc_library(name = name, srcs = srcs, testonly = testonly, linkstatic = linkstatic, **kwargs)

def cc_binary(name, testonly = False, copts = [], deps = [], **kwargs):
    kwargs.update(_with_headers("test_headers" if testonly else "binary_headers", copts, deps))
    native.cc_binary(name = name, testonly = testonly, **kwargs)

def _units(name, srcs, size, testonly):
    """Sources that include `size` of `srcs` each; global names must not clash.

    Tests may define the same names, in anonymous namespaces that hold all of a test.
    """
    units = []
    for first in range(0, len(srcs), size):
        unit = "%s_unit%d" % (name, len(units))
        include = "echo \"#include \\\"$$src\\\"\""
        if testonly:
            include = "; ".join([
                "stem=$$(basename $$src .cc)",
                "echo \"#line 1 \\\"$$src\\\"\"",
                "sed \"s:^namespace {$$:namespace { namespace in_$$stem {:; " +
                "s:^}  // namespace$$:}}  // namespace:\" $$src",
            ])
        native.genrule(
            name = unit,
            testonly = testonly,
            srcs = srcs[first:first + size],
            outs = [unit + ".cc"],
            cmd = "for src in $(SRCS); do %s; done > $@" % include,
        )
        units.append(unit)
    return units

def cc_test(name, srcs = [], copts = [], deps = [], tests_per_unit = 1, **kwargs):
    if tests_per_unit > 1:
        srcs = _units(name, srcs, tests_per_unit, testonly = True)
    kwargs.update(_with_headers("test_headers", copts, deps))
    native.cc_test(name = name, srcs = srcs, **kwargs)

# As on processors without AVX: the code of oneDNN, the loops of ops/vectorize.h, and glibc's functions
# (without fused multiply-add).
LIMITED_UNITS = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "WEFT_TEST_LOOPS": "baseline",
}

def limited_units_test(name, test, **kwargs):
    """Runs the program of a cc_test again, with limited vector units."""
    native.sh_test(name = name, srcs = [test], env = LIMITED_UNITS, **kwargs)
