// Programs of workers and servers that do not fit, run without the verifier: the run ends with an
// error that names ranks and keys.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

constexpr char kWorkerVars[] = R"(
    var g : fp32[-1, 3] need_check_feed
    var ids : int64[-1] need_check_feed
    var others : int64[-1]
    var w : fp32[3]
    var wide : fp64[3]
    var sum : fp32[1]
    var rows : fp32[-1, 1]
    var lr : fp32[1] persistable
    var grad : fp32[3]
    Out=[w] = ps_pull() {server_key=4, shape=longs[3]}
    Out=[grad] = reduce_sum(X=[g]) {dim=ints[0]}
)";
constexpr char kServer[] = R"(
    var w : fp32[3] parameter persistable
    var table : fp32[6, 1] parameter persistable
    var lr : fp32[1]
    var grad : fp32[3]
    var table@GRAD : selected_rows<fp32[6, 1]>
    Grad=[grad], LearningRate=[lr] = ps_receive() role=optimize {server_key=4, shape=longs[3]}
    ParamOut=[w] = sgd(Grad=[grad], LearningRate=[lr], Param=[w]) role=optimize {server_key=4}
    ps_serve(X=[w]) role=optimize {server_key=4}
    Grad=[table@GRAD] = ps_receive() role=optimize {server_key=5, is_sparse=true, shape=longs[6, 1]}
    ParamOut=[table] = sgd(Grad=[table@GRAD], LearningRate=[lr], Param=[table]) role=optimize {server_key=5}
    ps_serve(X=[table]) role=optimize {server_key=5, by_rows=true}
)";

// Two workers, and a server, rank 2.
absl::Status Train(const std::string& ops, const std::vector<std::string>& fetch = {"grad"}) {
  const Program worker = testing::CompactProgram(absl::StrCat(kWorkerVars, ops));
  const Program server = testing::CompactProgram(kServer);
  const std::map<std::string, Tensor> params = {{"w", Floats({3}, {1, 2, 3})},
                                                {"table", Floats({6, 1}, {0, 1, 2, 3, 4, 5})},
                                                {"lr", Floats({1}, {0.1F})}};
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 2;
  options.num_servers = 1;
  options.steps = 3;
  options.fetch = fetch;
  options.timeout_s = 10;
  RunInputs inputs;
  inputs.main = &worker;
  inputs.server = &server;
  inputs.params = &params;
  inputs.feeds = {
      {"g", "ids"}, [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
        return std::vector<Tensor>{Floats({2, 3}, {1, 2, 3, 4, 5, 6}), Int64s({2}, {0, 5})};
      }};
  return RunProgram(inputs, options).status();
}

struct Misfit {
  const char* what;
  const char* ops;  // of the workers
  const char* error;
};

constexpr Misfit kPushes[] = {
    {"element type of the gradient", R"(
    Out=[wide] = cast(X=[grad]) {in_dtype=5, out_dtype=6}
    ps_push(Grad=[wide], LearningRate=[lr]) role=optimize {server_key=4}
)",
     "gradient: expected fp32[3], found fp64[3]"},
    {"dimensions of the gradient", R"(
    Out=[sum] = reduce_sum(X=[grad]) {dim=ints[0], keep_dim=true}
    ps_push(Grad=[sum], LearningRate=[lr]) role=optimize {server_key=4}
)",
     "gradient: expected fp32[3], found fp32[1]"},
    {"no learning rate", R"(
    ps_push(Grad=[grad]) role=optimize {server_key=4}
)",
     "expected 2 tensors: the gradient and what the optimizer reads besides, such as the learning "
     "rate, found 1"},
    {"dimensions of the learning rate", R"(
    ps_push(Grad=[grad], LearningRate=[grad]) role=optimize {server_key=4}
)",
     "value 0 besides the gradient: expected fp32[1], found fp32[3]"},
    {"two pushes in a step", R"(
    ps_push(Grad=[grad], LearningRate=[lr]) role=optimize {server_key=4}
    ps_push(Grad=[grad], LearningRate=[lr]) role=optimize {server_key=4}
)",
     "expected one push in a step, the next in step 1, found another"},
};

TEST(ServerErrors, PushThatDoesNotFitEndsTheRunNamingRankAndKey) {
  for (const Misfit& misfit : kPushes) {
    SCOPED_TRACE(misfit.what);
    EXPECT_THAT(Train(misfit.ops),
                IsInvalidArgument(AllOf(
                    HasSubstr("step 0, rank 2 (server 0): "),
                    ::testing::ContainsRegex("push of key 4 \\(w\\) from rank [01], step 0: "),
                    HasSubstr(misfit.error),
                    HasSubstr("'weft verify worker.pb option:server server.pb' says whether"))));
  }
}

constexpr Misfit kPulls[] = {
    {"pull of a table", "Out=[rows] = ps_pull() {server_key=5, shape=longs[6, 1]}\n",
     "(ps_pull): expected table as a parameter that a server holds whole"},
    {"lookup of a parameter held whole",
     "Out=[rows] = ps_lookup(Ids=[ids]) {server_key=4, shape=longs[3, 1], "
     "table_op=\"lookup_table_v2\"}\n",
     "(ps_lookup): expected w as a table that servers hold by rows"},
    {"key of no server", "Out=[w] = ps_pull() {server_key=6, shape=longs[3]}\n",
     "(ps_pull): attribute server_key: the servers' program does not serve key 6"},
};

TEST(ServerErrors, PullThatDoesNotFitEndsTheRunNamingTheOp) {
  for (const Misfit& misfit : kPulls) {
    SCOPED_TRACE(misfit.what);
    EXPECT_THAT(Train(misfit.ops),
                IsInvalidArgument(AllOf(
                    ::testing::ContainsRegex("step 0, rank [01]: op 2 "), HasSubstr(misfit.error),
                    HasSubstr("'weft verify worker.pb option:server server.pb' says"))));
  }
}

// Not before its step, and not in vain.
TEST(ServerErrors, LookupOfComputedIdsCannotPrefetch) {
  EXPECT_THAT(Train(R"(
    Out=[others] = assign(X=[ids])
    Out=[rows] = ps_lookup(Ids=[others]) {server_key=5, shape=longs[6, 1], table_op="lookup_table_v2", prefetch=true}
)"),
              IsFailedPrecondition(
                  "(ps_lookup): attribute prefetch: expected fed Ids: the variable is not fed"));
}

// A worker has the value that it pulled at the start of the step.
TEST(ServerErrors, ParameterOfAServerCannotBeFetched) {
  const std::string push =
      "    ps_push(Grad=[grad], LearningRate=[lr]) role=optimize {server_key=4}\n";
  EXPECT_THAT(Train(push, {"grad", "w"}),
              IsInvalidArgument("fetch w: servers update it at the end of a step, and workers have "
                                "its value from before; option:save writes what the servers have"));
}

}  // namespace
}  // namespace weft::testing
