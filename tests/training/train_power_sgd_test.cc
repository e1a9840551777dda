// PowerSGD trains as its reference in NumPy (tests/data/power_sgd): on any number of ranks, in two
// processes, after a checkpoint, and in both formats of Paddle 3.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/testing/compact_program.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/formats/program_file.h"
#include "tests/support/stream_sanitizer.h"
#include "tools/job/process.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// The mean of (tanh(x w0 + b0) w1 - y)^2.
constexpr char kMain[] = R"(
    var x : fp32[-1, 6] need_check_feed stop_gradient
    var y : fp32[-1, 4] need_check_feed stop_gradient
    var w0 : fp32[6, 5] parameter persistable
    var b0 : fp32[5] parameter persistable
    var w1 : fp32[5, 4] parameter persistable
    var lr : fp32[1] persistable
    Out=[m] = mul(X=[x], Y=[w0]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[a] = elementwise_add(X=[m], Y=[b0]) {axis=1}
    Out=[h] = tanh(X=[a]) role=forward
    Out=[o] = mul(X=[h], Y=[w1]) {x_num_col_dims=1, y_num_col_dims=1}
    Out=[d] = elementwise_sub(X=[o], Y=[y]) {axis=-1}
    Out=[s] = square(X=[d]) role=forward
    Out=[loss] = reduce_mean(X=[s]) role=loss {dim=ints[], reduce_all=true}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = reduce_mean_grad(X=[s], Out@GRAD=[loss@GRAD]) role=backward {dim=ints[], reduce_all=true}
    X@GRAD=[d@GRAD] = square_grad(X=[d], Out@GRAD=[s@GRAD]) role=backward
    X@GRAD=[o@GRAD] = elementwise_sub_grad(X=[o], Y=[y], Out@GRAD=[d@GRAD]) role=backward {axis=-1}
    X@GRAD=[h@GRAD], Y@GRAD=[w1@GRAD] = mul_grad(X=[h], Y=[w1], Out@GRAD=[o@GRAD]) role=backward vars=[w1, w1@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    X@GRAD=[a@GRAD] = tanh_grad(Out=[h], Out@GRAD=[h@GRAD]) role=backward
    X@GRAD=[m@GRAD], Y@GRAD=[b0@GRAD] = elementwise_add_grad(X=[m], Y=[b0], Out@GRAD=[a@GRAD]) role=backward vars=[b0, b0@GRAD] {axis=1}
    Y@GRAD=[w0@GRAD] = mul_grad(X=[x], Y=[w0], Out@GRAD=[m@GRAD]) role=backward vars=[w0, w0@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w0] = sgd(Param=[w0], Grad=[w0@GRAD], LearningRate=[lr]) role=optimize vars=[w0, w0@GRAD]
    ParamOut=[b0] = sgd(Param=[b0], Grad=[b0@GRAD], LearningRate=[lr]) role=optimize vars=[b0, b0@GRAD]
    ParamOut=[w1] = sgd(Param=[w1], Grad=[w1@GRAD], LearningRate=[lr]) role=optimize vars=[w1, w1@GRAD]
)";

constexpr char kStartup[] = R"(
    var w0 : fp32[6, 5] parameter persistable
    var b0 : fp32[5] parameter persistable
    var w1 : fp32[5, 4] parameter persistable
    var lr : fp32[1] persistable
    Out=[w0] = fill_constant() {shape=longs[6, 5], dtype=5, value=0.0}
    Out=[b0] = fill_constant() {shape=longs[5], dtype=5, value=0.0}
    Out=[w1] = fill_constant() {shape=longs[5, 4], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=0.25}
)";

const std::map<std::string, Dims>& DimsOf() {
  static const auto* const dims = new std::map<std::string, Dims>{
      {"w0", {6, 5}},       {"b0", {5}},   {"w1", {5, 4}}, {"w0@BASIS", {5, 2}},
      {"w1@BASIS", {4, 2}}, {"x", {8, 6}}, {"y", {8, 4}}};
  return *dims;
}

Tensor TensorOf(const std::string& name, const Json& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, DimsOf().at(name));
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = values[i].get<float>();
  return tensor;
}

const Json& Reference() {
  static const auto* const reference =
      new Json(Json::parse(std::ifstream("tests/data/power_sgd/power_sgd.json")));
  return *reference;
}

struct Programs {
  Program main, startup;
};

absl::Status Rewrite(absl::optional<int> nranks, ProgramPair programs) {
  TranspileOptions options;
  options.mode = "power_sgd";
  options.mode_flags = {{"rank_approximation", absl::StrCat(Reference()["rank"].get<int>())},
                        {"start_step", absl::StrCat(Reference()["start_step"].get<int>())}};
  options.cluster.nranks = nranks;
  options.verification = Verification::kAfterEachPass;
  return Transpile(options, programs).status();
}

absl::StatusOr<Programs> Rewritten(absl::optional<int> nranks) {
  Programs programs{CompactProgram(kMain), CompactProgram(kStartup)};
  WEFT_RETURN_IF_ERROR(Rewrite(nranks, {&programs.main, &programs.startup}));
  return programs;
}

std::map<std::string, Tensor> BeginOf(const Json& test) {
  std::map<std::string, Tensor> begin;
  for (const char* param : {"w0", "b0", "w1"}) {
    begin.emplace(param, TensorOf(param, test["params"][param]));
  }
  for (const std::string param : {"w0", "w1"}) {
    const std::string basis = param + "@BASIS";
    begin.emplace(basis, TensorOf(basis, test["bases"][param]));
  }
  return begin;
}

FeedSource FeedsOf(const Json& test) {
  return {{"x", "y"}, [&test](int64_t step) {
            std::vector<Tensor> batch;
            for (const char* name : {"x", "y"}) {
              batch.push_back(TensorOf(name, test["steps"][step][name]));
            }
            return batch;
          }};
}

void ExpectNear(const Tensor& found, const Json& expected) {
  ASSERT_EQ(static_cast<size_t>(found.size()), expected.size());
  for (int64_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found.data<float>()[i], expected[i].get<double>(), 2e-5) << "element " << i;
  }
}

void ExpectAsReference(const Json& test, absl::optional<int> nranks) {
  const int ranks = test["ranks"];
  SCOPED_TRACE(absl::StrCat(ranks, " ranks", nranks.has_value() ? "" : ", unknown to the program"));
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewritten(nranks));
  const std::map<std::string, Tensor> begin = BeginOf(test);
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.params = &begin;
  inputs.feeds = FeedsOf(test);
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = static_cast<int64_t>(test["steps"].size());
  options.fetch = {"w0", "b0", "w1", "w0@RESIDUAL", "w1@RESIDUAL"};
  options.timeout_s = 60;
  int64_t compared = 0;
  inputs.on_result = [&](const StepResult& result) {
    SCOPED_TRACE(absl::StrCat("step ", result.step + 1, ", rank ", result.rank));
    const Json& step = test["steps"][result.step];
    for (size_t i = 0; i < 3; ++i) ExpectNear(result.values[i], step["params"][options.fetch[i]]);
    ExpectNear(result.values[3], step["residuals"]["w0"][result.rank]);
    ExpectNear(result.values[4], step["residuals"]["w1"][result.rank]);
    ++compared;
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(RunChecked(inputs, options).status());
  EXPECT_EQ(compared, ranks * options.steps);
}

TEST(TrainPowerSgdTest, RanksTrainAsTheReference) {
  for (const Json& test : Reference()["cases"]) {
    ExpectAsReference(test, test["ranks"].get<int>());
    ExpectAsReference(test, absl::nullopt);
  }
}

// Drawn by the startup program, and what follows from it.
TEST(TrainPowerSgdTest, BasesAreEqualOnAllRanks) {
  const Json& test = Reference()["cases"][2];
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewritten(4));
  std::map<std::string, Tensor> begin = BeginOf(test);
  for (const char* basis : {"w0@BASIS", "w1@BASIS"}) begin.erase(basis);
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.params = &begin;
  inputs.feeds = FeedsOf(test);
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 4;
  options.steps = 6;
  options.fetch = {"w0@BASIS", "w1@BASIS", "w0", "w1"};
  options.timeout_s = 60;
  std::map<std::string, std::set<std::vector<float>>> values;  // by variable and step
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      const float* const from = result.values[i].data<float>();
      values[absl::StrCat(options.fetch[i], " ", result.step)].emplace(
          from, from + result.values[i].size());
    }
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(RunChecked(inputs, options).status());
  for (const auto& [name, of_ranks] : values) EXPECT_EQ(of_ranks.size(), 1u) << name;
  // Until the first step of two matrices, the basis is what was drawn.
  EXPECT_EQ(values.at("w0@BASIS 0"), values.at("w0@BASIS 2"));
  EXPECT_NE(values.at("w0@BASIS 0"), values.at("w0@BASIS 3"));
  EXPECT_NE(*values.at("w0@BASIS 0").begin(), std::vector<float>(10, 0.0F));
}

// A gradient of zeros makes a basis of zeros. The rows of the first two features stay zeros.
TEST(TrainPowerSgdTest, TrainsOnAfterAGradientOfZeros) {
  const Json& test = Reference()["cases"][1];
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewritten(2));
  const std::map<std::string, Tensor> begin = BeginOf(test);
  const int64_t first = Reference()["start_step"].get<int64_t>() - 1;
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.params = &begin;
  inputs.feeds = {{"x", "y"}, [&](int64_t step) {
                    std::vector<Tensor> batch = {TensorOf("x", test["steps"][step]["x"]),
                                                 TensorOf("y", test["steps"][step]["y"])};
                    for (int64_t i = 0; i < batch[0].size(); ++i) {
                      if (step <= first || i % 6 < 2) batch[0].data<float>()[i] = 0;
                    }
                    return batch;
                  }};
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = 2;
  options.steps = first + 4;
  options.timeout_s = 60;
  options.fetch = {"w0", "w0@BASIS"};
  const auto largest = [](const Tensor& tensor, const float* from) {
    float most = 0;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      most = std::max(most, std::abs(tensor.data<float>()[i] - (from == nullptr ? 0 : from[i])));
    }
    return most;
  };
  inputs.on_result = [&](const StepResult& result) {
    if (result.step == first) {
      EXPECT_EQ(largest(result.values[1], nullptr), 0);
    }
    const float moved = largest(result.values[0], begin.at("w0").data<float>());
    if (result.step <= first) {
      EXPECT_EQ(moved, 0);
    }
    if (result.step == first + 3) {
      EXPECT_GT(moved, 1e-3);
    }
    return absl::OkStatus();
  };
  WEFT_ASSERT_OK(RunChecked(inputs, options).status());
}

// --- Processes and checkpoints -------------------------------------------------------------------

class PowerSgdCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Json& test = Reference()["cases"][1];
    ASSERT_EQ(test["ranks"], 2);
    WEFT_ASSERT_OK_AND_ASSIGN(const Programs programs, Rewritten(2));
    WEFT_ASSERT_OK(WriteFile(Path("main.pb"), programs.main.Serialize()));
    WEFT_ASSERT_OK(WriteFile(Path("startup.pb"), programs.startup.Serialize()));
    WEFT_ASSERT_OK(WriteNpz(Path("params.npz"), BeginOf(test)));
    std::map<std::string, Tensor> feeds;
    for (size_t step = 0; step < test["steps"].size(); ++step) {
      for (const char* name : {"x", "y"}) {
        feeds.emplace(absl::StrCat(step, "/", name), TensorOf(name, test["steps"][step][name]));
      }
    }
    WEFT_ASSERT_OK(WriteNpz(Path("feeds.npz"), feeds));
    last_ = test["steps"].back()["params"];
  }

  static std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

  static std::vector<std::string> RunWith(const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"tools/weft", "run", Path("main.pb"), "--feeds",
                                     Path("feeds.npz")};
    args.insert(args.end(), flags.begin(), flags.end());
    return args;
  }

  static void Run(const std::vector<std::string>& args) {
    const ProcessResult result = RunProcess(args);
    ASSERT_EQ(result.status, 0) << absl::StrJoin(args, " ") << "\n" << result.err;
  }

  void ExpectLast(const std::string& file) const {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto saved, ReadNpz(Path(file)));
    for (const char* param : {"w0", "b0", "w1"}) ExpectNear(saved.at(param), last_[param]);
  }

  const std::vector<std::string> begin_ = {"--startup", Path("startup.pb"), "--params",
                                           Path("params.npz")};
  Json last_;
};

TEST_F(PowerSgdCommandsTest, TwoProcessesTrainAsTheReference) {
  std::vector<std::string> flags = begin_;
  flags.insert(flags.end(), {"--save", Path("of_two.npz")});
  std::vector<std::string> launch = {"tools/weft", "launch", "-n", "2", "--"};
  const std::vector<std::string> run = RunWith(flags);
  launch.insert(launch.end(), run.begin(), run.end());
  Run(launch);
  ExpectLast("of_two.npz");
}

// Between two compressed steps, with what each rank keeps; and before the first one.
TEST_F(PowerSgdCommandsTest, ACheckpointChangesNothing) {
  for (const auto& [steps, others] : {std::pair("2", "7"), std::pair("6", "3")}) {
    SCOPED_TRACE(steps);
    std::vector<std::string> flags = begin_;
    flags.insert(flags.end(), {"--ranks", "2", "--steps", steps, "--checkpoint", Path("half")});
    Run(RunWith(flags));
    Run(RunWith({"--resume", Path("half"), "--steps", others, "--save", Path("resumed.npz")}));
    ExpectLast("resumed.npz");
  }
}

// --- Programs of Paddle 3 ------------------------------------------------------------------------

struct Paddle3Case {
  const char* name;
  const char* ending;
  bool has_processes;
};

class PowerSgdOfPaddle3Test : public ::testing::TestWithParam<Paddle3Case> {
 protected:
  static std::string Path(const std::string& name) {
    return absl::StrCat(::testing::TempDir(), GetParam().name, "_", name);
  }
  static std::string Shared(const std::string& file) {
    return absl::StrCat("tests/data/paddle3_mlp_sgd/", file);
  }
  static absl::StatusOr<Program> Read(const std::string& file) {
    if (GetParam().ending == std::string(".pb")) return ReadProgram(Shared(file + ".pb"));
    WEFT_ASSIGN_OR_RETURN(const auto files, ReadTarXz("tests/data/paddle3_pir.tar.xz"));
    WEFT_RETURN_IF_ERROR(WriteFile(Path("read.json"), files.at("mlp_sgd/" + file + ".json")));
    return ReadProgram(Path("read.json"));
  }
};

TEST_P(PowerSgdOfPaddle3Test, RanksTrainAsTheReference) {
  const Json& test = Reference()["mlp_sgd"];
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, Read("main"));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, Read("startup"));
  WEFT_ASSERT_OK(Rewrite(2, {&main, &startup}));
  const std::string ending = GetParam().ending;
  const std::string main_path = Path("main" + ending), startup_path = Path("startup" + ending);
  WEFT_ASSERT_OK(WritePrograms({{&main, main_path}, {&startup, startup_path}}));
  WEFT_ASSERT_OK_AND_ASSIGN(auto begin,
                            LoadParams(Shared("init.params"), Shared("persistables.txt")));
  for (size_t i = 0; i < test["matrices"].size(); ++i) {
    const std::string name = test["matrices"][i];
    Tensor& basis = begin[name + "@BASIS"];
    basis.Resize(DType::kFloat32, {begin.at(name).dims()[1], Reference()["rank"].get<int>()});
    for (int64_t n = 0; n < basis.size(); ++n) {
      basis.data<float>()[n] = static_cast<float>(
          std::sin(1 + 12.9898 * static_cast<double>(n) + 78.233 * static_cast<double>(i)));
    }
  }
  WEFT_ASSERT_OK(WriteNpz(Path("params.npz"), begin));
  // In two runs, of which the second goes on with what each rank keeps.
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"tools/weft", "run", main_path, "--feeds",
                                     Shared("feeds.npz")};
    args.insert(args.end(), more.begin(), more.end());
    if (GetParam().has_processes) {
      const std::vector<std::string> launch = {"tools/weft", "launch", "-n", "2", "--"};
      args.insert(args.begin(), launch.begin(), launch.end());
    }
    const ProcessResult result = RunProcess(args);
    EXPECT_EQ(result.status, 0) << result.err;
  };
  const size_t half = test["losses"].size() / 2;
  std::vector<std::string> begin_with = {"--startup",        startup_path, "--params",
                                         Path("params.npz"), "--steps",    absl::StrCat(half),
                                         "--checkpoint",     Path("half")};
  if (!GetParam().has_processes) begin_with.insert(begin_with.end(), {"--ranks", "2"});
  run(begin_with);
  run({"--resume", Path("half"), "--steps", absl::StrCat(test["losses"].size() - half), "--save",
       Path("saved.npz")});
  WEFT_ASSERT_OK_AND_ASSIGN(const auto saved, ReadNpz(Path("saved.npz")));
  EXPECT_EQ(test["heads"].size(), 6U);
  for (const auto& [name, head] : test["heads"].items()) {
    SCOPED_TRACE(name);
    const Tensor& found = saved.at(name);
    ASSERT_GE(static_cast<size_t>(found.size()), head.size());
    int moved = 0;
    for (size_t i = 0; i < head.size(); ++i) {
      EXPECT_NEAR(found.data<float>()[i], head[i].get<double>(), 2e-5) << "element " << i;
      moved += found.data<float>()[i] != begin.at(name).data<float>()[i];
    }
    EXPECT_GT(moved, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PowerSgdOfPaddle3Test,
                         ::testing::Values(Paddle3Case{"Desc", ".pb", false},
                                           Paddle3Case{"DescProcesses", ".pb", true},
                                           Paddle3Case{"Pir", ".json", false},
                                           Paddle3Case{"PirProcesses", ".json", true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
