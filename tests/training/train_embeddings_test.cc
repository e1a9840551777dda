// Embedding tables on the host (mode embedding_offload): optimizers on rows, ids that are no rows,
// and runs that stop and resume.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "executor/files/checkpoint.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/analysis/devices/device_placement.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tests/support/stream_sanitizer.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// A table of 6 rows of 2. The gradient of what is looked up is fed.
constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var ids : int64[-1, 1] need_check_feed stop_gradient
    var fed : fp32[-1, 1, 2] need_check_feed stop_gradient
    var lr : fp32[1] persistable
    var w : fp32[6, 2] parameter persistable
    var e : fp32[-1, 1, 2]
    var y : fp32[-1, 1, 2]
    var e@GRAD : fp32[-1, 1, 2]
    var w@GRAD : selected_rows<fp32[6, 2]>
    var m : fp32[6, 2] persistable
    var v : fp32[6, 2] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    Out=[e] = lookup_table_v2(Ids=[ids], W=[w]) {is_sparse=true}
    Out=[y] = scale(X=[e]) {scale=1.0}
    Out=[e@GRAD] = assign(X=[fed]) role=backward
    W@GRAD=[w@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[e@GRAD], W=[w]) role=backward vars=[w, w@GRAD] {is_sparse=true}
    UPDATE
  }
})";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var lr : fp32[1] persistable
    var m : fp32[6, 2] persistable
    var v : fp32[6, 2] persistable
    var b1 : fp32[1] persistable
    var b2 : fp32[1] persistable
    var w : fp32[6, 2] parameter persistable
    Out=[w] = fill_constant() {shape=longs[6, 2], dtype=5, value=0.0}
    Out=[lr] = fill_constant() {shape=longs[1], dtype=5, value=RATE}
    Out=[m] = fill_constant() {shape=longs[6, 2], dtype=5, value=0.0}
    Out=[v] = fill_constant() {shape=longs[6, 2], dtype=5, value=0.0}
    Out=[b1] = fill_constant() {shape=longs[1], dtype=5, value=0.9}
    Out=[b2] = fill_constant() {shape=longs[1], dtype=5, value=0.999}
  }
})";
constexpr char kLazyAdam[] =
    "Beta1PowOut=[b1], Beta2PowOut=[b2], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = "
    "adam(Beta1Pow=[b1], Beta2Pow=[b2], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], "
    "Moment2=[v], Param=[w]) role=optimize vars=[w, w@GRAD] {lazy_mode=true}";
constexpr char kAdagrad[] =
    "MomentOut=[m], ParamOut=[w] = adagrad(Grad=[w@GRAD], LearningRate=[lr], Moment=[m], "
    "Param=[w]) role=optimize vars=[w, w@GRAD]";
constexpr char kFtrl[] =
    "LinearAccumOut=[v], ParamOut=[w], SquaredAccumOut=[m] = ftrl(Grad=[w@GRAD], "
    "LearningRate=[lr], LinearAccumulator=[v], Param=[w], SquaredAccumulator=[m]) role=optimize "
    "vars=[w, w@GRAD] {l1=0.125, l2=0.25}";

struct Programs {
  Program main, startup;
};

absl::StatusOr<Programs> ProgramsOf(const char* update, const std::string& rate = "0.125") {
  WEFT_ASSIGN_OR_RETURN(Program main,
                        ParseProgramText(absl::StrReplaceAll(kMain, {{"UPDATE", update}})));
  WEFT_ASSIGN_OR_RETURN(Program startup,
                        ParseProgramText(absl::StrReplaceAll(kStartup, {{"RATE", rate}})));
  return Programs{std::move(main), std::move(startup)};
}

absl::Status Rewrite(const std::string& mode, int ranks, std::map<std::string, std::string> flags,
                     Programs* programs) {
  TranspileOptions options;
  options.mode = mode;
  options.mode_flags = std::move(flags);
  options.mode_flags["scale"] = "avg";
  // There is no loss, which would say what the gradient of the whole batch is.
  options.verification = Verification::kNever;
  options.mode_flags["sparse"] = "rows";
  options.cluster.nranks = ranks;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

// On one device of one rank, but for the table.
absl::Status PutTableOnHost(const std::string& options_text, Programs* programs,
                            const std::string& adam_epsilon = "paddle") {
  TranspileOptions options;
  options.passes = absl::StrCat(
      adam_epsilon == "paddle" ? ""
                               : absl::StrCat("param-options{adam_epsilon=", adam_epsilon, "},"),
      "embedding-offload", options_text, ",hetero-partition{place=op_device}");
  options.cluster.nranks = 1;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

Tensor FloatTensor(const Dims& dims, const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// What a step feeds: ids, and the gradient of their rows.
struct Lookups {
  std::vector<int64_t> ids;
  std::vector<float> grad;
};

FeedSource Feeds(std::vector<Lookups> steps) {
  FeedSource feeds;
  feeds.variables = {"ids", "fed"};
  feeds.num_steps = static_cast<int64_t>(steps.size());
  feeds.read = [steps](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
    const auto count = static_cast<int64_t>(steps[step].ids.size());
    Tensor ids;
    ids.Resize(DType::kInt64, {count, 1});
    std::copy(steps[step].ids.begin(), steps[step].ids.end(), ids.data<int64_t>());
    return std::vector<Tensor>{ids, FloatTensor({count, 1, 2}, steps[step].grad)};
  };
  return feeds;
}

// By step and rank: what is fetched, and what is kept in the end under its name.
using Values = std::map<std::string, std::vector<float>>;

struct RunRange {
  int ranks = 1;
  int64_t begin_step = 0, steps = 0;
  const Checkpoint* resume = nullptr;
  Checkpoint* checkpoint = nullptr;
};

absl::StatusOr<Values> Train(const Programs& programs, const FeedSource& feeds,
                             const std::vector<float>& table, RunRange run = {}) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = run.ranks;
  options.begin_step = run.begin_step;
  options.steps = run.steps > 0 ? run.steps : feeds.num_steps;
  options.fetch = {"y", "w", "m", "v"};
  const std::map<std::string, Tensor> params = {{"w", FloatTensor({6, 2}, table)}};
  Values values;
  const auto floats = [](const Tensor& tensor) {
    if (tensor.dtype() == DType::kFloat16) {
      return std::vector<float>(tensor.data<Float16>(), tensor.data<Float16>() + tensor.size());
    }
    return std::vector<float>(tensor.data<float>(), tensor.data<float>() + tensor.size());
  };
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  if (!table.empty()) inputs.params = &params;  // else what the startup program says
  inputs.feeds = feeds;
  inputs.resume = run.resume;
  inputs.on_result = [&](const StepResult& result) {
    for (size_t i = 0; i < result.values.size(); ++i) {
      values[absl::StrCat(result.step, "/", result.rank, "/", options.fetch[i])] =
          floats(result.values[i]);
    }
    return absl::OkStatus();
  };
  if (run.checkpoint != nullptr) {
    inputs.on_checkpoint = [&run](Checkpoint checkpoint) -> absl::Status {
      for (auto& [name, tensor] : checkpoint.shared) tensor = tensor.Clone();
      *run.checkpoint = std::move(checkpoint);
      return absl::OkStatus();
    };
  }
  WEFT_ASSIGN_OR_RETURN(const RunResult result, RunChecked(inputs, options));
  for (const auto& [name, tensor] : result.persistables) values[name] = floats(tensor);
  return values;
}

// --- Halves --------------------------------------------------------------------------------------

constexpr char kSgd[] =
    "ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], Param=[w]) role=optimize vars=[w, "
    "w@GRAD]";
constexpr char kSgdWithMaster[] =
    "MasterParamOut=[m], ParamOut=[w] = sgd(Grad=[w@GRAD], LearningRate=[lr], MasterParam=[m], "
    "Param=[w]) role=optimize vars=[w, w@GRAD] {multi_precision=true}";

// As MindSpore's reducer writes it. All gradients and their sums are exact in fp16.
TEST(TrainEmbeddings, RowsOfHalvesTravelAsFloats) {
  const FeedSource feeds = Feeds({{{0, 3, 3, 5}, {1, -1, 0.5, 2, 0.25, 1, -2, 3}},
                                  {{3, 3, 3, 1}, {0.5, 1, 1, 0.75, -3, 1, 1, 2}}});
  WEFT_ASSERT_OK_AND_ASSIGN(Programs floats, ProgramsOf(kSgd));
  const std::string half_main = absl::StrReplaceAll(
      kMain,
      {{" w : fp32", " w : fp16"},
       {" e : fp32", " e : fp16"},
       {" y : fp32", " y : fp16"},
       {"e@GRAD : fp32", "e@GRAD : fp16"},
       {"selected_rows<fp32", "selected_rows<fp16"},
       {"assign(X=[fed]) role=backward", "cast(X=[fed]) role=backward {in_dtype=5, out_dtype=4}"},
       {"UPDATE", kSgdWithMaster}});
  const std::string half_startup =
      absl::StrReplaceAll(kStartup, {{" w : fp32", " w : fp16"},
                                     {"[w] = fill_constant() {shape=longs[6, 2], dtype=5",
                                      "[w] = fill_constant() {shape=longs[6, 2], dtype=4"},
                                     {"RATE", "0.125"}});
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ParseProgramText(half_main));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ParseProgramText(half_startup));
  Programs halves{std::move(main), std::move(startup)};
  for (Programs* programs : {&floats, &halves}) {
    TranspileOptions options;
    options.mode = "mindspore_reducer";
    options.mode_flags = {{"reduce_method", "mean"}};
    options.cluster.nranks = 2;
    options.verification = Verification::kNever;  // as above
    ProgramPair pair{&programs->main, &programs->startup};
    WEFT_ASSERT_OK(Transpile(options, pair).status());
  }
  RunRange run;
  run.ranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(floats, feeds, {}, run));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(halves, feeds, {}, run));
  for (const char* result : {"0/0/", "0/1/", "1/0/", "1/1/"}) {
    EXPECT_EQ(found.at(absl::StrCat(result, "m")), expected.at(absl::StrCat(result, "w")));
    EXPECT_EQ(found.at(absl::StrCat(result, "w")), expected.at(absl::StrCat(result, "w")));
  }
}

// --- Optimizers ----------------------------------------------------------------------------------

void ExpectNear(const std::vector<float>& found, const Json& expected, const Json& of) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = expected[i];
    EXPECT_LE(std::fabs(found[i] - value),
              of["atol"].get<double>() + of["rtol"].get<double>() * std::fabs(value))
        << "element " << i;
  }
}

TEST(TrainEmbeddings, LazyAdamOnTheHostIsThatOfMindSpore) {
  std::ifstream file("tests/data/optimizers/lazy_adam.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json of = Json::parse(line);
    SCOPED_TRACE(of["id"].get<std::string>());
    ASSERT_EQ(of["params"]["beta1"], 0.9);
    ASSERT_EQ(of["params"]["beta2"], 0.999);
    WEFT_ASSERT_OK_AND_ASSIGN(
        Programs programs, ProgramsOf(kLazyAdam, absl::StrCat(of["params"]["lr"].get<double>())));
    const bool use_nesterov = of["params"]["use_nesterov"];
    WEFT_ASSERT_OK(
        PutTableOnHost(use_nesterov ? "{use_nesterov=true}" : "", &programs, "mindspore"));
    ASSERT_TRUE(IsOnTwoDevices(programs.main));
    std::vector<Lookups> steps;
    for (const Json& step : of["steps"]) steps.push_back({step["rows"], step["grad"]});
    WEFT_ASSERT_OK_AND_ASSIGN(const Values values, Train(programs, Feeds(steps), of["init"]));
    for (size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE(step);
      const Json& after = of["steps"][step]["after"];
      ExpectNear(values.at(absl::StrCat(step, "/0/w")), after["Param"], of);
      ExpectNear(values.at(absl::StrCat(step, "/0/m")), after["Moment1"], of);
      ExpectNear(values.at(absl::StrCat(step, "/0/v")), after["Moment2"], of);
    }
  }
  EXPECT_EQ(num_cases, 4);
}

// Of gradients of the size of epsilon.
TEST(TrainEmbeddings, EpsilonIsThatOfPaddleOrOfMindSpore) {
  const std::vector<double> grads = {1e-6, -3e-7, 2e-8, 1e-6};
  std::vector<Lookups> steps;
  for (double grad : grads) steps.push_back({{2}, {static_cast<float>(grad), 0}});
  for (const std::string epsilon : {"paddle", "mindspore"}) {
    SCOPED_TRACE(epsilon);
    WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(kLazyAdam));
    WEFT_ASSERT_OK(PutTableOnHost("", &programs, epsilon));
    WEFT_ASSERT_OK_AND_ASSIGN(const Values values,
                              Train(programs, Feeds(steps), std::vector<float>(12, 0)));
    double p = 0, m = 0, v = 0, b1 = 1, b2 = 1;
    for (size_t step = 0; step < grads.size(); ++step) {
      b1 *= 0.9;
      b2 *= 0.999;
      m = 0.9 * m + 0.1 * grads[step];
      v = 0.999 * v + 0.001 * grads[step] * grads[step];
      const double correction = std::sqrt(1 - b2);
      p -= 0.125 * correction / (1 - b1) * m /
           (std::sqrt(v) + 1e-8 * (epsilon == "paddle" ? correction : 1));
      EXPECT_NEAR(values.at(absl::StrCat(step, "/0/w"))[4], p, 2e-4 * std::fabs(p)) << step;
    }
  }
}

const std::vector<float>& Table() {
  static const auto* const table = new std::vector<float>{1, 2, 3, -4, 5, 6, -7, 8, 9, 10, -11, 12};
  return *table;
}

// Rows repeat within a rank and over the ranks.
FeedSource FourSteps() {
  return Feeds({{{0, 3, 3, 5}, {1, -1, 0.5, 2, 0.25, 1, -2, 3}},
                {{3, 3, 3, 1}, {0.5, 1, 1, 0.75, -3, 1, 1, 2}},
                {{5, 0, 5, 5}, {2, 1, 1, -0.5, -1, 1, 0.125, 2}},
                {{1, 0, 4, 3}, {1, 1, 1, 1, 0.5, -1, 1, 2}}});
}

class HostOptimizer : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(HostOptimizer, TrainsRanksToTheBitsOfTheDevice) {
  constexpr int kRanks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(Programs device, ProgramsOf(GetParam().second));
  Programs host = device;
  WEFT_ASSERT_OK(Rewrite("grad_allreduce", kRanks, {}, &device));
  WEFT_ASSERT_OK(Rewrite("embedding_offload", kRanks, {}, &host));
  ASSERT_TRUE(IsOnTwoDevices(host.main));
  RunRange run;
  run.ranks = kRanks;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected, Train(device, FourSteps(), Table(), run));
  WEFT_ASSERT_OK_AND_ASSIGN(const Values found, Train(host, FourSteps(), Table(), run));
  EXPECT_EQ(found, expected);
  const std::vector<float>& w = found.at("w");
  EXPECT_THAT(std::vector<float>(w.begin() + 4, w.begin() + 6), ElementsAre(5, 6)) << "row 2";
  EXPECT_NE(w, Table());
}

TEST_P(HostOptimizer, ResumesWithTheSameBits) {
  WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(GetParam().second));
  WEFT_ASSERT_OK(Rewrite("embedding_offload", 2, {}, &programs));
  RunRange run;
  run.ranks = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values whole, Train(programs, FourSteps(), Table(), run));
  Checkpoint checkpoint;
  run.steps = 2;
  run.checkpoint = &checkpoint;
  WEFT_ASSERT_OK(Train(programs, FourSteps(), Table(), run).status());
  run.checkpoint = nullptr;
  run.resume = &checkpoint;
  run.begin_step = 2;
  WEFT_ASSERT_OK_AND_ASSIGN(const Values resumed, Train(programs, FourSteps(), Table(), run));
  EXPECT_EQ(resumed.count("3/1/w"), 1u);
  for (const auto& [name, values] : resumed) EXPECT_EQ(values, whole.at(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(Updates, HostOptimizer,
                         ::testing::Values(std::make_pair("LazyAdam", kLazyAdam),
                                           std::make_pair("Adagrad", kAdagrad),
                                           std::make_pair("Ftrl", kFtrl)),
                         [](const auto& info) { return info.param.first; });

// --- Ids that are no rows ------------------------------------------------------------------------

TEST(TrainEmbeddings, IdThatIsNoRowIsAnError) {
  WEFT_ASSERT_OK_AND_ASSIGN(Programs programs, ProgramsOf(kAdagrad));
  WEFT_ASSERT_OK(PutTableOnHost("", &programs));
  EXPECT_THAT(
      Train(programs, Feeds({{{2, 6}, {1, 1, 1, 1}}}), Table()).status(),
      IsInvalidArgument(
          "op 0 (lookup_table_v2): input Ids: 6 at position 1 is not in [0, 6), the rows of W"));
}

TEST(TrainEmbeddings, IdsThatAreNoRowsMayGiveZerosAndNoGradient) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Programs original, ProgramsOf(kAdagrad));
  Programs programs = original, rows_only = original;
  WEFT_ASSERT_OK(Rewrite("embedding_offload", 2, {{"out_of_range", "zeros"}}, &programs));
  WEFT_ASSERT_OK(Rewrite("embedding_offload", 1, {}, &rows_only));
  RunRange two_ranks;
  two_ranks.ranks = 2;
  // The first rank has no row at all.
  WEFT_ASSERT_OK_AND_ASSIGN(
      const Values found,
      Train(programs, Feeds({{{6, -1, 2, 9}, {5, 5, 5, 5, 2, -2, 5, 5}}}), Table(), two_ranks));
  EXPECT_THAT(found.at("0/0/y"), Each(0));
  EXPECT_THAT(found.at("0/1/y"), ElementsAre(5, 6, 0, 0));
  // The mean over the ranks halves the gradient.
  WEFT_ASSERT_OK_AND_ASSIGN(const Values expected,
                            Train(rows_only, Feeds({{{2}, {1, -1}}}), Table()));
  EXPECT_EQ(found.at("w"), expected.at("w"));
  EXPECT_EQ(found.at("m"), expected.at("m"));
}

}  // namespace
}  // namespace weft::testing
