// What servers do with the gradients that workers push: rows are merged by MindSpore's rule, and
// asynchronous workers stay within the bound of staleness.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "executor/servers/server_part.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/testing/compact_program.h"
#include "ops/cpu/testing.h"
#include "ops/kernel.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// --- Rows ----------------------------------------------------------------------------------------

// A worker looks up all rows of the table, and pushes those of its `ids` that are rows: workers
// push different numbers of rows, and none.
constexpr char kRowsWorker[] = R"(
    var all, ids : int64[-1, 1] need_check_feed
    var fed : fp32[-1, 1, 2] need_check_feed
    var rate : fp32[-1] need_check_feed
    var like_w : fp32[ROWS, 2] persistable
    Out=[table] = ps_lookup(Ids=[all]) {server_key=0, shape=longs[ROWS, 2], table_op="lookup_table_v2"}
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[fed], W=[like_w]) role=backward {is_sparse=true, zeros_out_of_range=true}
    ps_push(Grad=[w@GRAD], LearningRate=[rate]) role=optimize {server_key=0}
)";
// MindSpore's lazy Adam corrects the learning rate, and not the epsilon. So powers of beta are 0
// here, which corrects nothing, and workers push the rate of the step.
constexpr char kRowsServer[] = R"(
    var w : fp32[ROWS, 2] parameter persistable
    var m, v : fp32[ROWS, 2] persistable
    var b1, b2 : fp32[1] persistable
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, is_sparse=true, shape=longs[ROWS, 2]}
    Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {server_key=0, lazy_mode=true}
    ps_serve(X=[w]) role=optimize {server_key=0, by_rows=true}
)";

void ExpectNear(const Tensor& found, const Json& expected, const Json& of) {
  ASSERT_EQ(found.size(), static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < found.size(); ++i) {
    const double value = expected[i];
    EXPECT_LE(std::fabs(found.data<float>()[i] - value),
              of["rtol"].get<double>() * std::fabs(value))
        << "element " << i;
  }
}

// Of all workers, one after the other; what a worker pushes is padded by ids that are no rows.
std::vector<Tensor> FeedsOf(const Json& of, int64_t step_index, int64_t rows) {
  const Json &step = of["steps"][step_index], &params = of["params"];
  const auto t = static_cast<double>(step_index + 1);
  const double rate = params["lr"].get<double>() * std::sqrt(1 - std::pow(params["beta2"], t)) /
                      (1 - std::pow(params["beta1"], t));
  size_t most = 1;
  for (const Json& push : step["push"]) most = std::max(most, push["rows"].size());
  std::vector<int64_t> all, ids;
  std::vector<float> fed;
  for (const Json& push : step["push"]) {
    for (int64_t row = 0; row < rows; ++row) all.push_back(row);
    ids.insert(ids.end(), push["rows"].begin(), push["rows"].end());
    fed.insert(fed.end(), push["values"].begin(), push["values"].end());
    const size_t missing = most - push["rows"].size();
    ids.insert(ids.end(), missing, -1);
    fed.insert(fed.end(), 2 * missing, 99.0f);
  }
  const auto count = static_cast<int64_t>(ids.size());
  const auto workers = static_cast<int64_t>(step["push"].size());
  const std::vector<float> rates(workers, static_cast<float>(rate));
  return {Int64s({static_cast<int64_t>(all.size()), 1}, all), Int64s({count, 1}, ids),
          Floats({count, 1, 2}, fed), Floats({workers}, rates)};
}

TEST(ServerUpdates, RowsFollowTheRuleOfMindSpore) {
  std::ifstream file("tests/data/schedules/server_rows.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json of = Json::parse(line);
    SCOPED_TRACE(of["id"].get<std::string>());
    const auto rows = static_cast<int64_t>(of["begin"].size() / 2);
    const int servers = of["params"]["servers"];
    for (int server = 0; server < servers; ++server) {
      EXPECT_EQ(RowsOfServer(rows, server, servers).begin, of["params"]["shard_bounds"][server]);
    }
    const auto program = [rows](const char* text) {
      return testing::CompactProgram(absl::StrReplaceAll(text, {{"ROWS", absl::StrCat(rows)}}));
    };
    const Program worker = program(kRowsWorker), server = program(kRowsServer);
    const std::vector<float> begin = of["begin"], zeros(begin.size(), 0);
    const std::map<std::string, Tensor> params = {
        {"w", Floats({rows, 2}, begin)}, {"m", Floats({rows, 2}, zeros)},
        {"v", Floats({rows, 2}, zeros)}, {"like_w", Floats({rows, 2}, zeros)},
        {"b1", Floats({1}, {0})},        {"b2", Floats({1}, {0})}};
    const Json& steps = of["steps"];
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = of["params"]["workers"];
    options.num_servers = servers;
    options.steps = static_cast<int64_t>(steps.size());
    options.fetch = {"table"};
    RunInputs inputs;
    inputs.main = &worker;
    inputs.server = &server;
    inputs.params = &params;
    inputs.feeds = {{"all", "ids", "fed", "rate"},
                    [&](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
                      return FeedsOf(of, step, rows);
                    }};
    inputs.on_result = [&](const StepResult& result) {
      SCOPED_TRACE(absl::StrCat("step ", result.step, ", worker ", result.rank));
      ExpectNear(result.values[0], result.step == 0 ? of["begin"] : steps[result.step - 1]["after"],
                 of);
      return absl::OkStatus();
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options));
    ExpectNear(result.persistables.at("w"), steps.back()["after"], of);
  }
  EXPECT_EQ(num_cases, 2);
}

// --- Ids that are no rows ------------------------------------------------------------------------

constexpr char kZerosWorker[] = R"(
    var ids : int64[-1, 1] need_check_feed
    var g : fp32[-1, 1, 2] need_check_feed
    var lr : fp32[1] persistable
    Out=[rows] = ps_lookup(Ids=[ids]) {server_key=0, shape=longs[4, 2], table_op="lookup_table_v2", padding_idx=long(3), prefetch=PREFETCH, zeros_out_of_range=ZEROS}
    W@GRAD=[w@GRAD] = ps_lookup_grad(Ids=[ids], Out@GRAD=[g]) role=backward {server_key=0, shape=longs[4, 2], table_op="lookup_table_v2", padding_idx=long(3), zeros_out_of_range=ZEROS}
    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
)";
constexpr char kZerosServer[] = R"(
    var w : fp32[4, 2] parameter persistable
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, is_sparse=true, shape=longs[4, 2]}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize {server_key=0}
    ps_serve(X=[w]) role=optimize {server_key=0, by_rows=true}
)";

// The rows that the lookup of each step has given, and the table.
absl::StatusOr<std::vector<std::vector<float>>> TrainWithIds(const std::vector<int64_t>& ids,
                                                             bool prefetches, bool gives_zeros) {
  const Program worker = testing::CompactProgram(absl::StrReplaceAll(
      kZerosWorker,
      {{"PREFETCH", prefetches ? "true" : "false"}, {"ZEROS", gives_zeros ? "true" : "false"}}));
  const Program server = testing::CompactProgram(kZerosServer);
  const std::map<std::string, Tensor> params = {{"w", Floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                                                {"lr", Floats({1}, {1})}};
  const auto count = static_cast<int64_t>(ids.size());
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 1;
  options.num_servers = 2;
  options.steps = 2;
  options.fetch = {"rows"};
  RunInputs inputs;
  inputs.main = &worker;
  inputs.server = &server;
  inputs.params = &params;
  inputs.feeds = {{"ids", "g"}, [&](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
                    return std::vector<Tensor>{
                        Int64s({count, 1}, ids),
                        Floats({count, 1, 2}, std::vector<float>(2 * count, 0.5f))};
                  }};
  inputs.feeds.num_steps = 2;
  std::vector<std::vector<float>> found;
  const auto add = [&](const Tensor& tensor) {
    found.emplace_back(tensor.data<float>(), tensor.data<float>() + tensor.size());
  };
  inputs.on_result = [&](const StepResult& result) {
    add(result.values[0]);
    return absl::OkStatus();
  };
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunProgram(inputs, options));
  add(result.persistables.at("w"));
  return found;
}

TEST(ServerUpdates, IdsThatAreNoRowsAreErrorsOrGiveZerosAndNoGradient) {
  const std::vector<int64_t> ids = {-1, 2, 4, 0, int64_t{1} << 40};
  for (const bool prefetches : {false, true}) {
    SCOPED_TRACE(prefetches);
    WEFT_ASSERT_OK_AND_ASSIGN(const auto found, TrainWithIds(ids, prefetches, true));
    ASSERT_EQ(found.size(), 3u);
    EXPECT_THAT(found[0], ElementsAre(0, 0, 5, 6, 0, 0, 1, 2, 0, 0));
    EXPECT_THAT(found[1], ElementsAre(0, 0, 4.5, 5.5, 0, 0, 0.5, 1.5, 0, 0));
    EXPECT_THAT(found[2], ElementsAre(0, 1, 3, 4, 4, 5, 7, 8));
    EXPECT_THAT(TrainWithIds(ids, prefetches, false).status(),
                IsInvalidArgument(
                    "(ps_lookup): input Ids: -1 at position 0 is not in [0, 4), the rows of w"));
  }
}

// --- Dense parameters ----------------------------------------------------------------------------

constexpr char kDenseWorker[] = R"(
    var g : fp32[-1, 3] need_check_feed
    var lr : fp32[1] persistable
    Out=[w] = ps_pull() {server_key=0, shape=longs[3]}
    Out=[pulled] = assign(X=[w])
    Out=[w@GRAD] = reduce_sum(X=[g]) {dim=ints[0]}
    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
)";
constexpr char kDenseServer[] = R"(
    var w : fp32[3] parameter persistable
    var v : fp32[3] persistable
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, shape=longs[3]}
    ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], Velocity=[v]) role=optimize {server_key=0, mu=MU}
    ps_serve(X=[w]) role=optimize {server_key=0}
)";

TEST(ServerUpdates, DenseParametersFollowTheRuleOfMindSpore) {
  std::ifstream file("tests/data/schedules/server_dense.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json of = Json::parse(line);
    SCOPED_TRACE(of["id"].get<std::string>());
    ASSERT_EQ(of["params"]["optimizer"], "momentum");
    const Program worker = testing::CompactProgram(kDenseWorker);
    const std::string mu = of["params"]["mu"].dump();
    const Program server = testing::CompactProgram(absl::StrReplaceAll(kDenseServer, {{"MU", mu}}));
    const std::vector<float> begin = of["begin"];
    const std::map<std::string, Tensor> params = {{"w", Floats({3}, begin)},
                                                  {"v", Floats({3}, {0, 0, 0})},
                                                  {"lr", Floats({1}, {of["params"]["lr"]})}};
    const Json& steps = of["steps"];
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = of["params"]["workers"];
    options.num_servers = 1;
    options.steps = static_cast<int64_t>(steps.size());
    options.fetch = {"pulled"};
    RunInputs inputs;
    inputs.main = &worker;
    inputs.server = &server;
    inputs.params = &params;
    inputs.feeds = {{"g"}, [&](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
                      std::vector<float> all;
                      for (const std::vector<float> grad : steps[step]["push"]) {
                        all.insert(all.end(), grad.begin(), grad.end());
                      }
                      return std::vector<Tensor>{Floats({options.nranks, 3}, all)};
                    }};
    inputs.on_result = [&](const StepResult& result) {
      SCOPED_TRACE(absl::StrCat("step ", result.step, ", worker ", result.rank));
      ExpectNear(result.values[0], result.step == 0 ? of["begin"] : steps[result.step - 1]["after"],
                 of);
      return absl::OkStatus();
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options));
    ExpectNear(result.persistables.at("w"), steps.back()["after"], of);
  }
  EXPECT_EQ(num_cases, 2);
}

// --- Staleness -----------------------------------------------------------------------------------

// Worker 1 computes for longer than worker 0.
constexpr char kUnequalWorkers[] = R"(
    var g : fp32[-1, 1] need_check_feed
    var slow : bool[-1] need_check_feed
    var big : fp32[256, 256] persistable
    var lr : fp32[1] persistable
    ps_prefetch() {keys=ints[0]}
    Out=[w] = ps_pull() {server_key=0, shape=longs[1]}
    Out=[pulled] = assign(X=[w])
    Out=[w@GRAD] = reduce_sum(X=[g]) {dim=ints[0]}
    conditional_block(Cond=[slow], Input=[big]) {is_scalar_condition=true, sub_block=block(1)}
    ps_push(Grad=[w@GRAD], LearningRate=[lr]) role=optimize {server_key=0}
    block 1:
    Out=[product] = matmul_v2(X=[big], Y=[big])
    Out=[product] = matmul_v2(X=[big], Y=[big])
)";
constexpr char kAsynchronousServer[] = R"(
    var w : fp32[1] parameter persistable
    Grad=[w@GRAD], LearningRate=[lr] = ps_receive() role=optimize {server_key=0, is_async=true, shape=longs[1]}
    ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize {server_key=0}
    ps_serve(X=[w]) role=optimize {server_key=0, is_async=true, staleness=STALENESS}
)";

// With a learning rate of 1, the parameter counts updates: 1 for each of worker 0, and 1000 for
// each of worker 1.
TEST(ServerUpdates, NoWorkerIsAheadByMoreThanTheStaleness) {
  constexpr int64_t kSteps = 40;
  const Program worker = testing::CompactProgram(kUnequalWorkers);
  for (const int64_t staleness : {0, 3}) {
    SCOPED_TRACE(staleness);
    const Program server = testing::CompactProgram(
        absl::StrReplaceAll(kAsynchronousServer, {{"STALENESS", absl::StrCat(staleness)}}));
    const std::map<std::string, Tensor> params = {
        {"w", Floats({1}, {0})},
        {"lr", Floats({1}, {-1})},
        {"big", Floats({256, 256}, std::vector<float>(256 * 256, 0))}};
    RunOptions options;
    options.kernels = &CpuKernels();
    options.nranks = 2;
    options.num_servers = 1;
    options.steps = kSteps;
    options.fetch = {"pulled"};
    options.timeout_s = 30;
    RunInputs inputs;
    inputs.main = &worker;
    inputs.server = &server;
    inputs.params = &params;
    inputs.feeds = {{"g", "slow"}, [](int64_t) -> absl::StatusOr<std::vector<Tensor>> {
                      return std::vector<Tensor>{Floats({2, 1}, {1, 1000}),
                                                 MakeTensor<bool>({2}, {false, true})};
                    }};
    inputs.on_result = [&](const StepResult& result) {
      const auto updates = static_cast<int64_t>(*result.values[0].data<float>());
      const int64_t of_other = result.rank == 0 ? updates / 1000 : updates % 1000;
      EXPECT_GE(of_other, result.step - staleness)
          << "step " << result.step << ", worker " << result.rank;
      return absl::OkStatus();
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RunResult result, RunProgram(inputs, options));
    EXPECT_EQ(*result.persistables.at("w").data<float>(), 1001 * kSteps) << "no update is lost";
  }
}

}  // namespace
}  // namespace weft::testing
