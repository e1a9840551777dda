// Pass grad-accumulate: steps are those of MindSpore's PipelineGradReducer, small batches that are
// accumulated train as the batch that they are parts of, and ranks train as one device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "executor/run/runner.h"
#include "nlohmann/json.hpp"
#include "ops/kernel.h"
#include "proto/text/program_text.h"
#include "tests/support/models.h"
#include "tests/support/rounding.h"
#include "tests/support/stream_sanitizer.h"
#include "tests/support/training_programs.h"
#include "tests/support/training_spec.h"
#include "transpiler/transpile.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

constexpr char kDataParallel[] = "comm-init,broadcast-params,scale-loss-grad,grad-all-reduce";

absl::Status Rewrite(const std::string& passes, Program* main, Program* startup,
                     absl::optional<int> ranks = absl::nullopt,
                     Verification verification = Verification::kAfterEachPass) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = ranks;
  options.verification = verification;
  ProgramPair pair{main, startup};
  return Transpile(options, pair).status();
}

// The bits of fetched values: by step, rank and variable.
using Bits = std::vector<uint32_t>;
using Fetched = std::vector<std::vector<std::vector<Bits>>>;

Bits BitsOf(const Tensor& tensor) {
  Bits bits(tensor.size());
  std::memcpy(bits.data(), tensor.raw(), tensor.bytes());
  return bits;
}
Bits BitsOf(const Json& json) {
  const std::string hex = json["hex"];
  Bits bits;
  for (size_t i = 0; i < hex.size(); i += 8) {
    bits.push_back(static_cast<uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16)));
  }
  return bits;
}
float FloatOf(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

absl::StatusOr<Fetched> Train(const Program& main, const Program& startup, FeedSource feeds,
                              std::vector<std::string> fetch, int64_t steps, int ranks,
                              const std::map<std::string, Tensor>* params = nullptr,
                              const KernelTable* kernels = &CpuKernels()) {
  RunOptions options;
  options.kernels = kernels;
  options.nranks = ranks;
  options.steps = steps;
  options.fetch = std::move(fetch);
  Fetched fetched(steps, std::vector<std::vector<Bits>>(ranks));
  RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  inputs.params = params;
  inputs.feeds = std::move(feeds);
  inputs.on_result = [&fetched](const StepResult& result) {
    for (const Tensor& value : result.values) {
      fetched[result.step][result.rank].push_back(BitsOf(value));
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunChecked(inputs, options).status());
  return fetched;
}

// --- MindSpore's class ---------------------------------------------------------------------------

// The gradient is what is fed: a row for each rank.
constexpr char kMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[-1, N] need_check_feed stop_gradient
    var lr : fp32[1] persistable
    var w : fp32[N] parameter persistable
    var w@GRAD : fp32[N]
    Out=[w@GRAD] = reduce_sum(X=[x]) role=backward vars=[w, w@GRAD] {dim=ints[0], keep_dim=false}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  }
})";
constexpr char kStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[N] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() role=forward {shape=longs[N], dtype=5, value=0.0}
    Out=[lr] = fill_constant() role=forward {shape=longs[1], dtype=5, value=0.1}
  }
})";
// As gradient merge of Paddle: the program accumulates by itself, here over one step.
constexpr char kMerging[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[-1, N] need_check_feed stop_gradient
    var lr : fp32[1] persistable
    var w : fp32[N] parameter persistable
    var w@GRAD : fp32[N]
    var w@MERGED : fp32[N] persistable
    var always : bool[1]
    var scope : step_scopes
    Out=[w@GRAD] = reduce_sum(X=[x]) role=backward {dim=ints[0], keep_dim=false}
    Out=[w@MERGED] = elementwise_add(X=[w@MERGED], Y=[w@GRAD]) role=backward vars=[w, w@MERGED] {axis=-1}
    Out=[always] = fill_constant() role=optimize {shape=longs[1], dtype=0, value=1.0}
    Out=[w, w@MERGED], Scope=[scope] = conditional_block(Cond=[always], Input=[w, w@MERGED, lr]) role=optimize {is_scalar_condition=true, sub_block=block(1)}
  }
  block 1 parent=0 {
    ParamOut=[w] = sgd(Param=[w], Grad=[w@MERGED], LearningRate=[lr]) role=optimize vars=[w, w@MERGED]
    Out=[w@MERGED] = fill_constant() role=optimize {shape=longs[N], dtype=5, value=0.0}
  }
})";
constexpr char kMergingStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[N] parameter persistable
    var w@MERGED : fp32[N] persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() role=forward {shape=longs[N], dtype=5, value=0.0}
    Out=[w@MERGED] = fill_constant() role=forward {shape=longs[N], dtype=5, value=0.0}
    Out=[lr] = fill_constant() role=forward {shape=longs[1], dtype=5, value=1.0}
  }
})";

Program Parse(const char* text, int64_t elements) {
  return ParseProgramText(absl::StrReplaceAll(text, {{"N]", absl::StrCat(elements, "]")}})).value();
}

std::vector<Json> ReadCases(const char* with) {
  std::ifstream file("tests/data/accumulate/mindspore.jsonl");
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) {
    Json json = Json::parse(line);
    if (json.contains(with)) cases.push_back(std::move(json));
  }
  return cases;
}

Tensor Rows(const std::vector<Bits>& rows) {
  Tensor tensor;
  const auto width = static_cast<int64_t>(rows[0].size());
  tensor.Resize(DType::kFloat32, {static_cast<int64_t>(rows.size()), width});
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(tensor.data<float>() + i * width, rows[i].data(), width * sizeof(float));
  }
  return tensor;
}

FeedSource Feeding(std::vector<std::vector<Bits>> rows) {
  return {{"x"},
          [rows = std::move(rows)](int64_t step) { return std::vector<Tensor>{Rows(rows[step])}; }};
}

// Bits, if `ulps` is 0. Any NaN equals any NaN.
void ExpectValues(const Bits& found, const Json& json, const std::string& what, int ulps = 0) {
  const Bits expected = BitsOf(json);
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    const float a = FloatOf(found[i]), b = FloatOf(expected[i]);
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(a)) << what << "[" << i << "]: " << a;
      continue;
    }
    EXPECT_LE(std::abs(static_cast<int64_t>(found[i]) - static_cast<int64_t>(expected[i])), ulps)
        << what << "[" << i << "]: expected " << b << ", found " << a;
  }
}

void ExpectStepsOf(const Json& json) {
  const int world = json["world"], degree = json["degree"];
  Program main = Parse(kMain, 3), startup = Parse(kStartup, 3);
  // What is fed is no loss, so that the verifier cannot tell gradients from data.
  WEFT_ASSERT_OK(
      Rewrite(absl::StrCat("grad-accumulate{k=", json["k"].get<int>(),
                           ",scale_sense=", json["scale_sense"].get<double>(), ",skip_nonfinite=",
                           json["skip_update_when_not_finite"].get<bool>() ? "true" : "false",
                           "},comm-init,grad-all-reduce{scale=", degree == 1 ? "none" : "avg", "}"),
              &main, &startup, absl::nullopt, Verification::kNever));
  std::vector<std::vector<Bits>> rows;
  for (const Json& step : json["grads"]) {
    rows.emplace_back();
    for (const Json& grad : step) rows.back().push_back(BitsOf(grad));
  }
  std::map<std::string, Tensor> params;
  params["w"] = Rows({BitsOf(json["param"])});
  params["w"].Resize(DType::kFloat32, {3});
  std::memcpy(params["w"].data<float>(), BitsOf(json["param"]).data(), 3 * sizeof(float));
  const auto steps = static_cast<int64_t>(rows.size());
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched fetched,
                            Train(main, startup, Feeding(std::move(rows)),
                                  {"w", "w@GRAD@ACCUMULATED", "w@GRAD"}, steps, world, &params));
  // Ranks divide the sum by their number; MindSpore multiplies it by the rounded inverse, which is
  // another number if it is no power of 2.
  const int ulps = (degree & (degree - 1)) == 0 ? 0 : 1;
  for (int64_t i = 0; i < steps; ++i) {
    const Json& step = json["steps"][i];
    const std::string at = absl::StrCat(" in step ", i);
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<Bits>& values = fetched[i][rank];
      ExpectValues(values[0], step["param"], "param" + at, 2 * ulps);
      ExpectValues(values[1], step["accumulators"][rank], "accumulator" + at);
      if (step["sync"].get<bool>() && !step["skipped"].get<bool>()) {
        ExpectValues(values[2], step["applied_grad"], "gradient" + at, ulps);
      }
    }
  }
}

TEST(TrainAccumulateTest, StepsOnRanksAreThoseOfMindSpore) {
  const std::vector<Json> cases = ReadCases("grads");
  EXPECT_EQ(cases.size(), 7);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    ExpectStepsOf(json);
  }
}

TEST(TrainAccumulateTest, RoundsAreThoseOfPipelineGradReducer) {
  const std::vector<Json> cases = ReadCases("added");
  EXPECT_EQ(cases.size(), 4);
  for (const Json& json : cases) {
    SCOPED_TRACE(json["id"].get<std::string>());
    const bool is_sharded = json["sharded"];
    Program main = Parse(is_sharded ? kMerging : kMain, 2);
    Program startup = Parse(is_sharded ? kMergingStartup : kStartup, 2);
    // The scale is a variable: the run sets it.
    WEFT_ASSERT_OK(Rewrite(
        absl::StrCat("grad-accumulate{form=", is_sharded ? "sharded" : "plain", ",scale_sense=1}"),
        &main, &startup));
    std::map<std::string, Tensor> params;
    params["scale_sense"].Resize(DType::kFloat32, {1});
    params["scale_sense"].data<float>()[0] = json["scale_sense"];
    std::vector<std::vector<Bits>> rows;
    for (const Json& added : json["added"]) rows.push_back({BitsOf(added)});
    const auto steps = static_cast<int64_t>(rows.size());
    // The scaled gradient of the sharded form is that of the update: -w after the first step.
    WEFT_ASSERT_OK_AND_ASSIGN(
        const Fetched fetched,
        Train(main, startup, Feeding(std::move(rows)),
              {is_sharded ? "w" : "w@GRAD", is_sharded ? "w@MERGED" : "w@GRAD@ACCUMULATED"}, steps,
              1, &params));
    Bits before(2, 0);
    for (int64_t i = 0; i < steps; ++i) {
      const std::vector<Bits>& values = fetched[i][0];
      Bits new_grad = values[0];
      if (is_sharded) {
        for (size_t k = 0; k < new_grad.size(); ++k) {
          const float change = FloatOf(before[k]) - FloatOf(values[0][k]);
          std::memcpy(&new_grad[k], &change, sizeof(change));
        }
        before = values[0];
        if (i > 0) new_grad[1] = BitsOf(json["new_grad"][i])[1];  // the parameter stays infinite
      }
      ExpectValues(new_grad, json["new_grad"][i], absl::StrCat("gradient of round ", i));
      EXPECT_THAT(values[1], ElementsAre(0u, 0u)) << "round " << i;
    }
  }
}

// --- Training programs ---------------------------------------------------------------------------

struct NamedSpec {
  const char* name;
  TrainingSpec spec;
};
void PrintTo(const NamedSpec& spec, std::ostream* out) { *out << spec.name; }

TrainingSpec TwoLayers(void (*change)(TrainingSpec*)) {
  TrainingSpec spec;
  spec.layers.resize(2);
  for (auto& layer : spec.layers) {
    layer.width = 3;
    layer.bias = true;
  }
  spec.head.layer = 2;
  change(&spec);
  return spec;
}

std::vector<NamedSpec> Specs() {
  return {
      {"Sgd", TwoLayers([](TrainingSpec*) {})},
      {"MomentumAndAdam", TwoLayers([](TrainingSpec* spec) {
         spec->weights_by = OptimizerKind::kMomentum;
         spec->biases_by = OptimizerKind::kAdam;
       })},
      {"ClippedByValue", TwoLayers([](TrainingSpec* spec) { spec->clip = ClipKind::kByValue; })},
      {"ClippedByNorm", TwoLayers([](TrainingSpec* spec) { spec->clip = ClipKind::kByNorm; })},
      {"ClippedInPlace", TwoLayers([](TrainingSpec* spec) {
         spec->clip = ClipKind::kByGlobalNorm;
         spec->clips_in_place = true;
       })},
      {"Regularized", TwoLayers([](TrainingSpec* spec) { spec->l2_decay = true; })},
      {"DecayedRate",
       TwoLayers([](TrainingSpec* spec) { spec->learning_rate = LearningRateKind::kDecayed; })},
      {"RateHalvedInABlock", TwoLayers([](TrainingSpec* spec) {
         spec->learning_rate = LearningRateKind::kHalvedInBlock;
       })},
      {"SharedWeight", TwoLayers([](TrainingSpec* spec) { spec->layers[1].shares_weight = true; })},
      {"DenseLookups", TwoLayers([](TrainingSpec* spec) { spec->lookups = 2; })},
      {"TwoLosses", TwoLayers([](TrainingSpec* spec) {
         spec->more_heads.resize(1);
         spec->more_heads[0].layer = 1;
       })},
      {"TwoLossesApart", TwoLayers([](TrainingSpec* spec) {
         spec->head.layer = 0;
         spec->more_heads.resize(1);
         spec->apart = true;
       })},
      {"Fp64", TwoLayers([](TrainingSpec* spec) { spec->layers[1].fp64 = true; })},
  };
}

// Batch i of k, of the step in which the whole batch is trained.
FeedSource PartsOf(const FeedSource& whole, int k) {
  return {whole.variables, [whole, k](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
            WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> batch, whole.read(step / k));
            std::vector<Tensor> parts;
            for (const Tensor& tensor : batch) {
              Dims dims(tensor.dims().begin(), tensor.dims().end());
              dims[0] /= k;
              Tensor part;
              part.Resize(tensor.dtype(), dims);
              const size_t bytes = tensor.bytes() / k;
              std::memcpy(part.raw(), static_cast<const char*>(tensor.raw()) + step % k * bytes,
                          bytes);
              parts.push_back(std::move(part));
            }
            return parts;
          }};
}

class AccumulatedTest : public ::testing::TestWithParam<NamedSpec> {};

constexpr int kUpdates = 4;

TEST_P(AccumulatedTest, PartsOfABatchTrainAsTheWholeBatch) {
  const TrainingPrograms whole = BuildPrograms(GetParam().spec);
  std::vector<std::string> fetch;
  for (const std::string& param : whole.parameters) {
    const auto type = whole.main.var(whole.main.block(0).FindVar(param)).Tensor()->data_type();
    if (type == pb::VarType::FP32) fetch.push_back(param);
  }
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched expected,
                            Train(whole.main, whole.startup, whole.feeds, fetch, kUpdates, 1));
  for (const int k : {1, 2, 3}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("k=", k, ", ranks=", ranks));
      TrainingPrograms parts = whole;
      WEFT_ASSERT_OK(Rewrite(absl::StrCat("grad-accumulate{k=", k, ",average=true},", kDataParallel,
                                          "{buckets=bytes},sync-elimination"),
                             &parts.main, &parts.startup, ranks));
      WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found,
                                Train(parts.main, parts.startup, PartsOf(whole.feeds, k), fetch,
                                      int64_t{kUpdates} * k, ranks));
      for (int update = 0; update < kUpdates; ++update) {
        const std::vector<Bits>& after = found[(update + 1) * k - 1][0];
        for (size_t i = 0; i < fetch.size(); ++i) {
          for (size_t n = 0; n < after[i].size(); ++n) {
            const double value = FloatOf(expected[update][0][i][n]);
            ASSERT_NEAR(FloatOf(after[i][n]), value, 1e-5 * (1 + std::abs(value)))
                << fetch[i] << "[" << n << "] after update " << update;
          }
          // Nothing changes within a round.
          for (int step = update * k; step + 1 < (update + 1) * k && update > 0; ++step) {
            EXPECT_EQ(found[step][0][i], found[update * k - 1][0][i]);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AccumulatedTest, ValuesIn(Specs()),
                         [](const auto& info) { return info.param.name; });

// --- Losses that are no means over the batch -----------------------------------------------------

// A mean over the samples that count, of which a part of the batch may have none.
constexpr char kMaskedMain[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var x : fp32[-1, 2] need_check_feed stop_gradient
    var mask : fp32[-1, 1] need_check_feed stop_gradient
    var w : fp32[2, 1] parameter persistable
    var lr : fp32[1] persistable
    var p : fp32[-1, 1]
    var p@GRAD : fp32[-1, 1]
    var q : fp32[-1, 1]
    var q@GRAD : fp32[-1, 1]
    var m : fp32[-1, 1]
    var m@GRAD : fp32[-1, 1]
    var s : fp32[]
    var s@GRAD : fp32[]
    var c : fp32[]
    var d : fp32[]
    var loss : fp32[]
    var loss@GRAD : fp32[]
    var w@GRAD : fp32[2, 1]
    Out=[p] = mul(X=[x], Y=[w]) role=forward {x_num_col_dims=1, y_num_col_dims=1}
    Out=[q] = square(X=[p]) role=forward
    Out=[m] = elementwise_mul(X=[q], Y=[mask]) role=forward {axis=-1}
    Out=[s] = reduce_sum(X=[m]) role=forward {dim=ints[], reduce_all=true, keep_dim=false}
    Out=[c] = reduce_sum(X=[mask]) role=forward {dim=ints[], reduce_all=true, keep_dim=false}
    Out=[d] = clip(X=[c]) role=forward {min=1.0, max=1000.0}
    Out=[loss] = elementwise_div(X=[s], Y=[d]) role=forward|loss {axis=-1}
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[s@GRAD] = elementwise_div_grad(X=[s], Y=[d], Out=[loss], Out@GRAD=[loss@GRAD]) role=backward {axis=-1}
    X@GRAD=[m@GRAD] = reduce_sum_grad(X=[m], Out@GRAD=[s@GRAD]) role=backward {dim=ints[], reduce_all=true, keep_dim=false}
    X@GRAD=[q@GRAD] = elementwise_mul_grad(X=[q], Y=[mask], Out@GRAD=[m@GRAD]) role=backward {axis=-1}
    X@GRAD=[p@GRAD] = square_grad(X=[p], Out@GRAD=[q@GRAD]) role=backward
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[p@GRAD]) role=backward vars=[w, w@GRAD] {x_num_col_dims=1, y_num_col_dims=1}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize vars=[w, w@GRAD]
  }
})";
constexpr char kMaskedStartup[] = R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[2, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() role=forward {shape=longs[2, 1], dtype=5, value=0.5}
    Out=[lr] = fill_constant() role=forward {shape=longs[1], dtype=5, value=0.25}
  }
})";

// Eight samples in each step.
FeedSource MaskedSamples() {
  return {{"x", "mask"}, [](int64_t step) {
            // Of the second batch, no sample of the first half counts.
            constexpr float kCounts[][8] = {
                {1, 0, 0, 0, 1, 1, 0, 1}, {0, 0, 0, 0, 0, 1, 1, 0}, {1, 1, 1, 1, 0, 0, 1, 0}};
            Tensor x, mask;
            x.Resize(DType::kFloat32, {8, 2});
            mask.Resize(DType::kFloat32, {8, 1});
            for (int i = 0; i < 16; ++i) {
              x.data<float>()[i] = static_cast<float>((7 * i + 3 * step) % 11) / 8 - 0.5f;
            }
            std::copy_n(kCounts[step % 3], 8, mask.data<float>());
            return std::vector<Tensor>{x, mask};
          }};
}

std::vector<float> FloatsOf(const Bits& bits) {
  std::vector<float> floats;
  for (uint32_t one : bits) floats.push_back(FloatOf(one));
  return floats;
}

TEST(TrainAccumulateTest, PartsOfAMaskedMeanTrainAsTheWholeBatch) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program whole, ParseProgramText(kMaskedMain));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program whole_startup, ParseProgramText(kMaskedStartup));
  constexpr int kBatches = 3;
  WEFT_ASSERT_OK_AND_ASSIGN(const Fetched expected,
                            Train(whole, whole_startup, MaskedSamples(), {"w"}, kBatches, 1));
  constexpr char kExact[] = ",average=true,exact_loss=true}";
  for (const int k : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat("k=", k));
    Program main = whole, startup = whole_startup;
    WEFT_ASSERT_OK(Rewrite(absl::StrCat("grad-accumulate{k=", k, kExact), &main, &startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found, Train(main, startup, PartsOf(MaskedSamples(), k),
                                                         {"w"}, int64_t{kBatches} * k, 1));
    for (int batch = 0; batch < kBatches; ++batch) {
      EXPECT_THAT(FloatsOf(found[(batch + 1) * k - 1][0][0]),
                  Pointwise(FloatNear(2e-6), FloatsOf(expected[batch][0][0])))
          << "after batch " << batch;
    }
  }
  Program main = whole, startup = whole_startup;
  EXPECT_THAT(Rewrite(absl::StrCat("grad-accumulate{k=2", kExact), &main, &startup, 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected one rank")));
}

// The second backward pass reads what the first one has updated.
TEST(TrainAccumulateTest, UpdateBetweenTwoBackwardPassesIsRefused) {
  TrainingPrograms programs = BuildPrograms(TwoLayers([](TrainingSpec* spec) {
    spec->more_heads.resize(1);
    spec->more_heads[0].layer = 2;
    spec->apart = true;
  }));
  EXPECT_THAT(Rewrite("grad-accumulate{k=2}", &programs.main, &programs.startup),
              IsFailedPrecondition("fc_1.b_0@GRAD holds several gradients in turn"));
}

// --- Real programs -------------------------------------------------------------------------------

// For classifiers of 10 classes and regressions: data x, labels y.
FeedSource MadeUpFeeds(const Program& main) {
  const auto tensor = main.var(main.block(0).FindVar("x")).Tensor();
  const int64_t width = tensor->dims(1);
  const bool has_classes =
      main.var(main.block(0).FindVar("y")).Tensor()->data_type() == pb::VarType::INT64;
  return {{"x", "y"}, [=](int64_t step) {
            std::vector<Tensor> tensors(2);
            tensors[0].Resize(DType::kFloat32, {kBatch, width});
            for (int64_t i = 0; i < tensors[0].size(); ++i) {
              tensors[0].data<float>()[i] =
                  static_cast<float>(std::sin(1.0 + 12.9898 * i + 78.233 * step));
            }
            tensors[1].Resize(has_classes ? DType::kInt64 : DType::kFloat32, {kBatch, 1});
            for (int64_t i = 0; i < kBatch; ++i) {
              if (has_classes) {
                tensors[1].data<int64_t>()[i] = (7 * i + 3 * step) % 10;
              } else {
                tensors[1].data<float>()[i] = static_cast<float>(i % 5);
              }
            }
            return tensors;
          }};
}

Tensor TensorOf(const Bits& bits) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, {static_cast<int64_t>(bits.size())});
  std::memcpy(tensor.raw(), bits.data(), tensor.bytes());
  return tensor;
}

TEST(TrainAccumulateTest, PartsOfABatchTrainRealProgramsAsTheWholeBatch) {
  constexpr int kParts = 3;
  int trained = 0;
  for (const auto& [name, model] : ReadModels()) {
    const bool is_small = absl::StartsWith(name, "mlp_") || name == "fit_a_line";
    if (!is_small || name == "mlp_dropout" || name == "mlp_gradient_merge") continue;
    SCOPED_TRACE(name);
    ++trained;
    std::vector<std::string> fetch;
    for (VarId id : model.main.block(0).vars()) {
      const Var var = model.main.var(id);
      if (var.is_parameter()) fetch.emplace_back(var.name());
    }
    TrainingInputs inputs;
    inputs.feeds = MadeUpFeeds(model.main);
    if (absl::StrContains(name, "amp")) {
      inputs.moved_by = absl::StrContains(name, "bf16") ? kMovedByOfBf16 : kMovedByOfFp16;
    }
    const auto train =
        [&, of = &model](const TrainingInputs& from) -> absl::StatusOr<TrainingResults> {
      WEFT_ASSIGN_OR_RETURN(const Fetched fetched, Train(of->main, of->startup, from.feeds, fetch,
                                                         kUpdates, 1, nullptr, from.kernels));
      TrainingResults results;
      for (size_t i = 0; i < fetch.size(); ++i) {
        results.state[fetch[i]] = TensorOf(fetched[kUpdates - 1][0][i]);
      }
      return results;
    };
    WEFT_ASSERT_OK_AND_ASSIGN(const RoundingBounds bounds, RoundingBounds::Measure(inputs, train));
    Model parts = model;
    WEFT_ASSERT_OK(Rewrite(absl::StrCat("grad-accumulate{k=", kParts, ",average=true}"),
                           &parts.main, &parts.startup));
    WEFT_ASSERT_OK_AND_ASSIGN(const Fetched found,
                              Train(parts.main, parts.startup, PartsOf(inputs.feeds, kParts), fetch,
                                    int64_t{kUpdates} * kParts, 1));
    for (size_t i = 0; i < fetch.size(); ++i) {
      const Bits& merged = found[kUpdates * kParts - 1][0][i];
      bounds.ExpectState(fetch[i], TensorOf(merged), bounds.results().state.at(fetch[i]));
      EXPECT_NE(merged, found[kParts - 2][0][i]) << fetch[i] << " is not trained";
    }
  }
  EXPECT_EQ(trained, 16);
}

// All programs of tests/data that train, by name.
absl::StatusOr<std::map<std::string, Model>> AllModels() {
  std::map<std::string, Model> models = ReadModels();
  for (const char* archive : {"control_flow", "conv_amp", "scripts", "survey"}) {
    WEFT_ASSIGN_OR_RETURN(const auto files,
                          ReadTarXz(absl::StrCat("tests/data/", archive, ".tar.xz")));
    for (const auto& [path, bytes] : files) {
      absl::string_view name = path;
      if (!absl::ConsumeSuffix(&name, "/main.pb")) continue;
      WEFT_ASSIGN_OR_RETURN(Program main, Program::Parse(bytes));
      WEFT_ASSIGN_OR_RETURN(Program startup,
                            Program::Parse(files.at(absl::StrCat(name, "/startup.pb"))));
      models.emplace(name, Model{std::move(main), std::move(startup)});
    }
  }
  return models;
}

TEST(TrainAccumulateTest, RealProgramsAreVerifiedOrRefusedForAReason) {
  std::map<std::string, std::string> refused;
  size_t verified = 0;
  WEFT_ASSERT_OK_AND_ASSIGN(const auto models, AllModels());
  for (const auto& [name, model] : models) {
    for (const auto& [ranks, reduction] :
         {std::pair<absl::optional<int>, const char*>{absl::nullopt, "grad-all-reduce"},
          {4, "scale-loss-grad,grad-all-reduce{buckets=bytes},sync-elimination"}}) {
      Model rewritten = model;
      const absl::Status status = Rewrite(
          absl::StrCat("grad-accumulate{k=4,scale_sense=8},comm-init,broadcast-params,", reduction),
          &rewritten.main, &rewritten.startup, ranks, Verification::kAtEnd);
      if (!status.ok()) {
        refused[name] = std::string(status.message());
        continue;
      }
      ++verified;
      // Ranks communicate where they update, and nowhere else.
      int reductions = 0;
      for (int block = 0; block < rewritten.main.num_blocks(); ++block) {
        for (OpId id : rewritten.main.block(block).ops()) {
          if (!absl::StartsWith(rewritten.main.op(id).type(), "c_allreduce")) continue;
          EXPECT_NE(block, 0) << name;
          ++reductions;
        }
      }
      EXPECT_GT(reductions, 0) << name;
    }
  }
  const auto merges = HasSubstr("accumulates gradients over several steps already");
  const auto has_rows = HasSubstr("expected a dense tensor");
  EXPECT_THAT(
      refused,
      ElementsAre(Pair("mlp_gradient_merge", merges),
                  Pair("script_clipped_rows_global_norm", has_rows),
                  Pair("script_word2vec_own_tree", has_rows), Pair("survey/mean_merged", merges),
                  Pair("survey/sum_merged", merges),
                  Pair("survey/weight_by_hand", HasSubstr("updates weight in every step")),
                  Pair("word2vec_sparse_adam", has_rows), Pair("word2vec_sparse_sgd", has_rows)));
  EXPECT_EQ(verified, 2 * (models.size() - refused.size()));
  EXPECT_GT(models.size(), 80);
}

}  // namespace
}  // namespace weft::testing
