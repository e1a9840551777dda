"""fuzz_target: a function over bytes, for libFuzzer and as an ordinary test."""

def fuzz_target(name, deps, mutator = []):
    """NAME is the fuzzer, NAME_corpus_test gives the target what is in corpus/NAME.

    Args:
      name: of the fuzzer; NAME.cc defines LLVMFuzzerTestOneInput.
      deps: what NAME.cc needs.
      mutator: libraries for the fuzzer alone.
    """
    native.cc_library(
        name = name + "_lib",
        testonly = True,
        srcs = [name + ".cc"],
        deps = deps + [":fuzz"],
        alwayslink = True,
    )

    # bazel build --config=fuzz
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_lib"] + mutator,
    )
    corpus = native.glob(["corpus/%s/**" % name])
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        args = ["$(rootpath %s)" % file for file in corpus],
        data = corpus,
        deps = [
            ":%s_lib" % name,
            ":replay_corpus",
        ],
    )
