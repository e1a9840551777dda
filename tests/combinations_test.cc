// Every pair of features: two ranks train as the reference, or the pair is refused.
#include "tests/combinations.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "executor/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/float16.h"
#include "ops/kernel.h"
#include "ops/tensor.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"
#include "tests/models.h"
#include "tests/training_programs.h"
#include "tests/training_spec.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using ::weft::testing::Activation;
using ::weft::testing::BuildPrograms;
using ::weft::testing::Feature;
using ::weft::testing::Features;
using ::weft::testing::FeatureText;
using ::weft::testing::IsRefused;
using ::weft::testing::kBatch;
using ::weft::testing::Model;
using ::weft::testing::ProgramBuilder;
using ::weft::testing::ReadModels;
using ::weft::testing::StatusIs;
using ::weft::testing::TrainingPrograms;
using ::weft::testing::TrainingSpec;
using ::weft::testing::Verdict;
using ::weft::testing::VerdictOf;

constexpr int kRanks = 2;
constexpr int kParts = 2;  // steps whose gradients are accumulated
constexpr int kUpdates = 4;

struct FeaturePair {
  Feature first, second;  // in the order of the enumerators
  bool Has(Feature feature) const { return first == feature || second == feature; }
  bool HasAny(std::initializer_list<Feature> features) const {
    return absl::c_any_of(features, [this](Feature feature) { return Has(feature); });
  }
  bool Averages() const { return HasAny({Feature::kLocalSgd, Feature::kPartial}); }
};

std::string NameOf(Feature feature) {
  std::string name;
  bool begins = true;
  for (char c : Features()[static_cast<size_t>(feature)].name) {
    if (std::isalpha(static_cast<unsigned char>(c)) == 0) {
      begins = true;
      continue;
    }
    name += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = false;
  }
  return name;
}
void PrintTo(const FeaturePair& pair, std::ostream* out) {
  *out << NameOf(pair.first) << " and " << NameOf(pair.second);
}

// --- Programs ------------------------------------------------------------------------------------

// An op of role optimize, as Paddle clips gradients.
pb::OpDesc OptimizeOp(const std::string& type, const ProgramBuilder::Slots& ins,
                      const ProgramBuilder::Slots& outs,
                      const std::vector<std::pair<std::string, float>>& floats = {}, int axis = 0) {
  ProgramBuilder builder;
  builder.Op(type, ins, outs, kRoleOptimize);
  for (const auto& [name, value] : floats) builder.FloatAttr(name, value);
  if (axis != 0) builder.IntAttr("axis", axis);
  return builder.last_op();
}

// Gradients that updates take, without those that are rows, and the first of the updates.
struct Gradients {
  OpId before;
  std::vector<std::string> names;
};
Gradients DenseGradientsOf(const Program& main) {
  Gradients gradients;
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.Input("Param").empty() || op.Input("Grad").empty()) continue;
    if (!gradients.before.valid()) gradients.before = id;
    const Var grad = main.var(main.block(0).FindVar(op.Input("Grad")[0]));
    if (grad.type() == pb::VarType::LOD_TENSOR) gradients.names.emplace_back(grad.name());
  }
  return gradients;
}

void ClipByValue(Program* main) {
  const Gradients gradients = DenseGradientsOf(*main);
  Rewriter rewriter(main);
  for (const std::string& name : gradients.names) {
    rewriter.InsertBefore(gradients.before, OptimizeOp("clip", {{"X", {name}}}, {{"Out", {name}}},
                                                       {{"min", -0.01F}, {"max", 0.01F}}));
  }
  WEFT_ASSERT_OK(rewriter.Commit());
}

void ClipByGlobalNorm(Program* main) {
  constexpr float kMaxNorm = 0.02F;
  const Gradients gradients = DenseGradientsOf(*main);
  Rewriter rewriter(main);
  const auto add = [&](const pb::OpDesc& op) { rewriter.InsertBefore(gradients.before, op); };
  const auto add_var = [&](const std::string& name) {
    ProgramBuilder builder;
    builder.Var(name, {1});
    rewriter.AddVar(0, builder.last_var());
    return name;
  };
  std::vector<std::string> squares;
  for (const std::string& name : gradients.names) {
    squares.push_back(add_var(name + "@SQUARE"));
    add(OptimizeOp("squared_l2_norm", {{"X", {name}}}, {{"Out", {squares.back()}}}));
  }
  const std::string norm = add_var("norm"), max = add_var("norm.max"), all = add_var("norm.sum");
  const std::string divisor = add_var("norm.divisor"), factor = add_var("norm.factor");
  add(OptimizeOp("sum", {{"X", squares}}, {{"Out", {all}}}));
  add(OptimizeOp("sqrt", {{"X", {all}}}, {{"Out", {norm}}}));
  ProgramBuilder fill;
  fill.Op("fill_constant", {}, {{"Out", {max}}}, kRoleOptimize).LongsAttr("shape", {1});
  fill.IntAttr("dtype", pb::VarType::FP32).FloatAttr("value", kMaxNorm);
  add(fill.last_op());
  add(OptimizeOp("elementwise_max", {{"X", {max}}, {"Y", {norm}}}, {{"Out", {divisor}}}, {}, -1));
  add(OptimizeOp("elementwise_div", {{"X", {max}}, {"Y", {divisor}}}, {{"Out", {factor}}}, {}, -1));
  for (const std::string& name : gradients.names) {
    add(OptimizeOp("elementwise_mul", {{"X", {name}}, {"Y", {factor}}}, {{"Out", {name}}}, {}, -1));
  }
  WEFT_ASSERT_OK(rewriter.Commit());
}

// What is fp64 becomes fp16; fp16 parameters begin with equal elements.
Program Narrowed(const Program& program) {
  pb::ProgramDesc desc = program.ToProto();
  for (pb::VarDesc& var : *desc.mutable_blocks(0)->mutable_vars()) {
    if (var.type().type() != pb::VarType::LOD_TENSOR) continue;
    auto* tensor = var.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    if (tensor->data_type() == pb::VarType::FP64) tensor->set_data_type(pb::VarType::FP16);
  }
  for (pb::OpDesc& op : *desc.mutable_blocks(0)->mutable_ops()) {
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      const std::set<std::string> types = {"dtype", "in_dtype", "out_dtype"};
      if (types.count(attr.name()) == 0 || attr.i() != pb::VarType::FP64) continue;
      attr.set_i(pb::VarType::FP16);
      if (op.type() != "uniform_random") continue;
      op.set_type("fill_constant");
      for (pb::OpDesc::Attr& other : *op.mutable_attrs()) {
        if (other.name() == "max") other.set_name("value");
      }
    }
    if (op.type() != "fill_constant") continue;
    for (int i = op.attrs_size(); i-- > 0;) {
      const std::string name = op.attrs(i).name();
      if (name == "min" || name == "seed") op.mutable_attrs()->DeleteSubrange(i, 1);
    }
  }
  return *Program::Parse(desc.SerializeAsString());
}

TrainingPrograms SmallProgram(bool has_rows, bool is_narrow) {
  TrainingSpec spec;
  spec.layers.resize(2);
  for (auto& layer : spec.layers) {
    layer.width = 3;
    layer.bias = true;
    layer.activation = Activation::kTanh;
  }
  spec.layers[1].fp64 = is_narrow;
  spec.head.layer = 2;
  spec.sparse = has_rows;
  spec.lookups = has_rows ? 2 : 0;
  TrainingPrograms programs = BuildPrograms(spec);
  if (is_narrow) {
    programs.main = Narrowed(programs.main);
    programs.startup = Narrowed(programs.startup);
  }
  return programs;
}

// A program of Paddle, trained by momentum in mixed precision.
TrainingPrograms MixedPrecision() {
  static const auto* const models = new std::map<std::string, Model>(ReadModels());
  const Model& model = models->at("mlp_amp");
  TrainingPrograms programs{model.main, model.startup, {}, {}, {}};
  for (VarId id : model.main.block(0).vars()) {
    const Var var = model.main.var(id);
    if (var.is_parameter()) programs.parameters.emplace_back(var.name());
  }
  programs.feeds = {{"x", "y"}, [](int64_t step) {
                      std::vector<Tensor> tensors(2);
                      tensors[0].Resize(DType::kFloat32, {kBatch, 64});
                      for (int64_t i = 0; i < tensors[0].size(); ++i) {
                        tensors[0].data<float>()[i] =
                            static_cast<float>(std::sin(1.0 + 12.9898 * i + 78.233 * step));
                      }
                      tensors[1].Resize(DType::kInt64, {kBatch, 1});
                      for (int64_t i = 0; i < kBatch; ++i) {
                        tensors[1].data<int64_t>()[i] = (7 * i + 3 * step) % 10;
                      }
                      return tensors;
                    }};
  return programs;
}

// With the features of the pair that are properties of a program.
TrainingPrograms ProgramsOf(const FeaturePair& pair) {
  const bool has_rows = pair.Has(Feature::kRows), is_narrow = pair.Has(Feature::kAmp);
  TrainingPrograms programs =
      is_narrow && !has_rows ? MixedPrecision() : SmallProgram(has_rows, is_narrow);
  if (pair.Has(Feature::kClipByValue)) ClipByValue(&programs.main);
  if (pair.Has(Feature::kClipByGlobalNorm)) ClipByGlobalNorm(&programs.main);
  return programs;
}

// --- Passes --------------------------------------------------------------------------------------

constexpr char kSetUp[] = "comm-init,broadcast-params";

// The passes that change what is computed, and run first.
std::vector<std::string> ChangesOf(const FeaturePair& pair) {
  std::vector<std::string> passes;
  if (pair.Has(Feature::kSetOptimizer)) passes.emplace_back("set-optimizer{lr=0.1,momentum=0.5}");
  if (pair.Has(Feature::kAccumulation)) {
    passes.push_back(absl::StrCat("grad-accumulate{k=", kParts, ",average=true}"));
  }
  return passes;
}

std::string ExchangeOf(Feature feature, const FeaturePair& pair) {
  switch (feature) {
    case Feature::kBuckets:
      // An option of both passes that reduce.
      if (pair.Has(Feature::kHalf)) return "";
      return "grad-all-reduce{buckets=bytes}";
    case Feature::kHalf:
      return absl::StrCat("grad-reduce{reduce_method=mean,travel_type=fp16",
                          pair.Has(Feature::kBuckets) ? ",buckets=bytes}" : "}");
    case Feature::kTopK:
      return "sparsify-gradients{mode=topk,spars=1,fallback=false}";  // all elements are sent
    case Feature::kThreshold:
      return "sparsify-gradients{mode=threshold,spars=0}";
    case Feature::kGather:
      return "gather-gradients";
    case Feature::kLocalSgd:
      return "local-sgd";
    case Feature::kPartial:
      return "partial-averaging";  // one partition: all parameters in every step
    default:
      return "";
  }
}

// In the order of docs/modes.md.
std::string PassesOf(const FeaturePair& pair) {
  std::vector<std::string> passes = ChangesOf(pair);
  passes.emplace_back(kSetUp);
  std::vector<std::string> exchange;
  for (Feature feature : {pair.first, pair.second}) {
    if (std::string pass = ExchangeOf(feature, pair); !pass.empty()) exchange.push_back(pass);
  }
  if (exchange.empty()) exchange.emplace_back("grad-all-reduce");
  // The others divide by themselves, or average.
  const bool is_summed =
      exchange[0] == "gather-gradients" || absl::StartsWith(exchange[0], "grad-all-reduce");
  if (is_summed) passes.emplace_back("scale-loss-grad");
  passes.insert(passes.end(), exchange.begin(), exchange.end());
  if (pair.Has(Feature::kBroadcast)) passes.emplace_back("periodic-broadcast{bcast_period=2}");
  passes.emplace_back("sync-elimination");
  return absl::StrJoin(passes, ",");
}

absl::Status Rewrite(const std::string& passes, TrainingPrograms* programs,
                     Verification verification = Verification::kAtEnd) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = kRanks;
  options.verification = verification;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

// --- Training ------------------------------------------------------------------------------------

using Numbers = std::vector<double>;

Numbers NumbersOf(const Tensor& tensor) {
  Numbers numbers;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    numbers.push_back(tensor.dtype() == DType::kFloat16
                          ? static_cast<double>(static_cast<float>(tensor.data<Float16>()[i]))
                          : static_cast<double>(tensor.data<float>()[i]));
  }
  return numbers;
}

// The first `parts`-th of the batch in step 0, ..., of a batch that lasts `parts` steps.
FeedSource PartsOf(const FeedSource& whole, int parts, int64_t (*batch_of)(int64_t, int),
                   int which = -1) {
  return {whole.variables, [=](int64_t step) -> absl::StatusOr<std::vector<Tensor>> {
            WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> batch,
                                  whole.read(batch_of(step, parts)));
            std::vector<Tensor> rows;
            for (const Tensor& tensor : batch) {
              Dims dims(tensor.dims().begin(), tensor.dims().end());
              dims[0] /= parts;
              Tensor part;
              part.Resize(tensor.dtype(), dims);
              const size_t bytes = tensor.bytes() / parts;
              const int64_t i = which >= 0 ? which : step % parts;
              std::memcpy(part.raw(), static_cast<const char*>(tensor.raw()) + i * bytes, bytes);
              rows.push_back(std::move(part));
            }
            return rows;
          }};
}
FeedSource InTurn(const FeedSource& whole, int parts) {
  return PartsOf(whole, parts, [](int64_t step, int n) { return step / n; });
}
FeedSource OfRank(const FeedSource& all, int rank) {
  return PartsOf(
      all, kRanks, [](int64_t step, int) { return step; }, rank);
}

// Of parameters: by step, rank and parameter.
using Trained = std::vector<std::vector<std::vector<Numbers>>>;

absl::StatusOr<Trained> Train(const TrainingPrograms& programs, const FeedSource& feeds,
                              int64_t steps, int ranks) {
  RunOptions options;
  options.kernels = &CpuKernels();
  options.nranks = ranks;
  options.steps = steps;
  options.fetch = programs.parameters;
  options.timeout_s = 60;
  Trained trained(steps, std::vector<std::vector<Numbers>>(ranks));
  RunInputs inputs;
  inputs.main = &programs.main;
  inputs.startup = &programs.startup;
  inputs.feeds = feeds;
  inputs.on_result = [&trained](const StepResult& result) {
    for (const Tensor& value : result.values) {
      trained[result.step][result.rank].push_back(NumbersOf(value));
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(RunProgram(inputs, options).status());
  return trained;
}

using State = std::map<std::string, Tensor>;

void AverageParameters(const std::vector<std::string>& parameters, std::vector<State>* states) {
  for (const std::string& name : parameters) {
    std::vector<float*> values;
    for (State& state : *states) values.push_back(state.at(name).data<float>());
    for (int64_t i = 0; i < states->front().at(name).size(); ++i) {
      float sum = 0;
      for (const float* of_rank : values) sum += of_rank[i];
      for (float* of_rank : values) of_rank[i] = sum / static_cast<float>(values.size());
    }
  }
}

// Each rank is a run of its own on one device; after every step, the parameters are averaged here.
absl::StatusOr<Trained> TrainApart(const TrainingPrograms& programs, const FeedSource& feeds,
                                   int64_t steps) {
  Trained trained(steps);
  std::vector<State> states(kRanks);
  for (int64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) {
      RunOptions options;
      options.kernels = &CpuKernels();
      options.begin_step = step;
      options.steps = 1;
      options.fetch = programs.parameters;
      RunInputs inputs;
      inputs.main = &programs.main;
      inputs.startup = &programs.startup;
      if (step > 0) inputs.params = &states[rank];
      inputs.feeds = OfRank(feeds, rank);
      WEFT_ASSIGN_OR_RETURN(RunResult result, RunProgram(inputs, options));
      states[rank] = std::move(result.persistables);
    }
    AverageParameters(programs.parameters, &states);
    trained[step].resize(1);
    for (const std::string& name : programs.parameters) {
      trained[step][0].push_back(NumbersOf(states[0].at(name)));
    }
  }
  return trained;
}

// By update and parameter.
using Updates = std::vector<std::vector<Numbers>>;

absl::StatusOr<Updates> Reference(const FeaturePair& pair) {
  TrainingPrograms programs = ProgramsOf(pair);
  std::vector<std::string> changes = ChangesOf(pair);
  const int parts = pair.Has(Feature::kAccumulation) && pair.Averages() ? kParts : 1;
  // One device takes the whole batch at once.
  if (pair.Has(Feature::kAccumulation) && !pair.Averages()) changes.pop_back();
  if (!changes.empty()) WEFT_RETURN_IF_ERROR(Rewrite(absl::StrJoin(changes, ","), &programs));
  const FeedSource feeds = InTurn(programs.feeds, parts);
  const int64_t steps = int64_t{kUpdates} * parts;
  WEFT_ASSIGN_OR_RETURN(const Trained trained, pair.Averages() ? TrainApart(programs, feeds, steps)
                                                               : Train(programs, feeds, steps, 1));
  Updates after;
  for (int i = 0; i < kUpdates; ++i) after.push_back(trained[(i + 1) * parts - 1][0]);
  return after;
}

// What the rounding of a step may change, as a share of what training changes.
double ToleranceOf(const FeaturePair& pair) {
  if (pair.Has(Feature::kAmp)) return 5e-2;
  return pair.Has(Feature::kHalf) ? 3e-3 : 1e-4;
}

// --- Pairs ---------------------------------------------------------------------------------------

std::vector<FeaturePair> Pairs(bool are_refused) {
  std::vector<FeaturePair> pairs;
  for (const FeatureText& second : Features()) {
    for (const FeatureText& first : Features()) {
      if (first.feature >= second.feature) break;
      if (IsRefused(VerdictOf(first.feature, second.feature)) != are_refused) continue;
      pairs.push_back({first.feature, second.feature});
    }
  }
  return pairs;
}

std::string NameOfPair(const ::testing::TestParamInfo<FeaturePair>& info) {
  return absl::StrCat(NameOf(info.param.first), "_", NameOf(info.param.second));
}

TEST(CombinationsTest, TableHasEveryPair) {
  const size_t n = Features().size();
  EXPECT_EQ(n, static_cast<size_t>(Feature::kBroadcast) + 1);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(static_cast<size_t>(Features()[i].feature), i);
  EXPECT_EQ(Pairs(false).size() + Pairs(true).size(), n * (n - 1) / 2);
}

// Of the rewritten main program.
bool HasOp(const Program& program, const std::string& type) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      if (program.op(id).type() == type) return true;
    }
  }
  return false;
}
bool HasVar(const Program& program, bool (*is)(const pb::VarType&)) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (VarId id : program.block(block).vars()) {
      if (is(program.var(id).ToProto().type())) return true;
    }
  }
  return false;
}
// Of the new optimizer; that of the program in mixed precision is another.
bool HasMomentum(const Program& program) {
  for (int block = 0; block < program.num_blocks(); ++block) {
    for (OpId id : program.block(block).ops()) {
      if (program.op(id).FloatAttr("mu") == 0.5) return true;
    }
  }
  return false;
}
bool IsFp16(const pb::VarType& type) {
  return type.lod_tensor().tensor().data_type() == pb::VarType::FP16;
}
bool IsRows(const pb::VarType& type) { return type.type() == pb::VarType::SELECTED_ROWS; }

// Whether the programs show that the feature is there.
bool Shows(Feature feature, const Program& main) {
  switch (feature) {
    case Feature::kAccumulation:
      return HasOp(main, "conditional_block");
    case Feature::kClipByValue:
      return HasOp(main, "clip");
    case Feature::kClipByGlobalNorm:
      return HasOp(main, "squared_l2_norm");
    case Feature::kAmp:
    case Feature::kHalf:
      return HasVar(main, IsFp16);
    case Feature::kRows:
      return HasVar(main, IsRows);
    case Feature::kSetOptimizer:
      return HasMomentum(main);
    case Feature::kBuckets:
      return HasOp(main, "coalesce_tensor");
    case Feature::kTopK:
      return HasOp(main, "sparsify_topk");
    case Feature::kThreshold:
      return HasOp(main, "sparsify_threshold");
    case Feature::kGather:
      return HasOp(main, "c_allgather");
    case Feature::kLocalSgd:
    case Feature::kPartial:
      return HasOp(main, "c_allreduce_sum");
    case Feature::kBroadcast:
      return HasOp(main, "c_broadcast");
  }
  return false;
}

// The largest difference of a parameter, as a share of what training changes in `expected`.
double Difference(const Updates& found, const Updates& expected) {
  double largest = 0;
  for (size_t i = 0; i < expected[0].size(); ++i) {
    double change = 0, difference = 0;
    for (size_t update = 0; update < expected.size(); ++update) {
      for (size_t n = 0; n < expected[0][i].size(); ++n) {
        const double value = expected[update][i][n];
        change = std::max(change, std::abs(value - expected[0][i][n]));
        difference = std::max(difference, std::abs(found[update][i][n] - value));
      }
    }
    EXPECT_GT(change, 0) << "parameter " << i << " is not trained";
    largest = std::max(largest, difference / change);
  }
  return largest;
}

// Of the last of `parts` steps each, where all ranks have the same parameters.
Updates UpdatesOf(const Trained& trained, int parts) {
  Updates updates;
  for (int update = 0; update < kUpdates; ++update) {
    const std::vector<std::vector<Numbers>>& ranks = trained[(update + 1) * parts - 1];
    for (const std::vector<Numbers>& rank : ranks) EXPECT_EQ(rank, ranks[0]) << update;
    updates.push_back(ranks[0]);
  }
  return updates;
}

class LegalPairTest : public ::testing::TestWithParam<FeaturePair> {};

TEST_P(LegalPairTest, RanksTrainAsTheReference) {
  const FeaturePair& pair = GetParam();
  const std::string passes = PassesOf(pair);
  SCOPED_TRACE(passes);
  TrainingPrograms programs = ProgramsOf(pair);
  WEFT_ASSERT_OK(Rewrite(passes, &programs));
  EXPECT_TRUE(Shows(pair.first, programs.main));
  EXPECT_TRUE(Shows(pair.second, programs.main));
  const int parts = pair.Has(Feature::kAccumulation) ? kParts : 1;
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(programs, InTurn(programs.feeds, parts),
                                                       int64_t{kUpdates} * parts, kRanks));
  WEFT_ASSERT_OK_AND_ASSIGN(const Updates expected, Reference(pair));
  EXPECT_LE(Difference(UpdatesOf(found, parts), expected), ToleranceOf(pair));
  if (VerdictOf(pair.first, pair.second) != Verdict::kPerRank) return;
  const TrainingPrograms original = ProgramsOf(pair);
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained whole, Train(original, original.feeds, kUpdates, 1));
  EXPECT_GT(Difference(UpdatesOf(whole, 1), expected), 100 * ToleranceOf(pair));
}

INSTANTIATE_TEST_SUITE_P(All, LegalPairTest, ValuesIn(Pairs(false)), NameOfPair);

// The beginning of the message that a verdict stands for.
std::pair<absl::StatusCode, std::string> RefusalOf(const FeaturePair& pair) {
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  switch (VerdictOf(pair.first, pair.second)) {
    case Verdict::kOneExchange:
      if (pair.Has(Feature::kLocalSgd) && pair.Has(Feature::kPartial)) {
        return {absl::StatusCode::kInvalidArgument,
                "pass local-sgd claims parameters averaged every 1 step, pass partial-averaging "
                "claims parameters averaged in turn"};
      }
      return {kRefused, "cannot run: gradients-reduced already holds: pass "};
    case Verdict::kNeedsFp32:
      return {kRefused, "expected fp32"};
    case Verdict::kNeedsDense:
      return {kRefused, "expected a dense tensor to accumulate"};
    case Verdict::kNeedsReduction:
      return {kRefused, "pass periodic-broadcast needs gradients-reduced"};
    default:
      return {absl::StatusCode::kOk, ""};
  }
}

class IllegalPairTest : public ::testing::TestWithParam<FeaturePair> {};

TEST_P(IllegalPairTest, IsRefusedBeforeTheMainProgramChanges) {
  const FeaturePair& pair = GetParam();
  const std::string passes = PassesOf(pair);
  SCOPED_TRACE(passes);
  TrainingPrograms programs = ProgramsOf(pair);
  const std::string main = programs.main.Serialize(), startup = programs.startup.Serialize();
  const auto [code, message] = RefusalOf(pair);
  EXPECT_THAT(Rewrite(passes, &programs, Verification::kNever), StatusIs(code, HasSubstr(message)));
  EXPECT_TRUE(programs.main.Serialize() == main);
  const Verdict verdict = VerdictOf(pair.first, pair.second);
  if (verdict == Verdict::kOneExchange || verdict == Verdict::kNeedsReduction) {
    EXPECT_TRUE(programs.startup.Serialize() == startup) << "a contract refuses the pair";
  }
}

INSTANTIATE_TEST_SUITE_P(All, IllegalPairTest, ValuesIn(Pairs(true)), NameOfPair);

// --- Order ---------------------------------------------------------------------------------------

struct Order {
  const char* passes;
  const char* refusal;
};

// What docs/modes.md says about the order, by passes in another one.
constexpr Order kWrongOrders[] = {
    {"grad-accumulate{k=2},set-optimizer",
     "pass set-optimizer cannot run: gradients-accumulated already holds"},
    {"grad-accumulate{k=2},grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: gradients-accumulated already holds"},
    {"comm-init,grad-accumulate{k=2},grad-all-reduce",
     "pass grad-accumulate cannot run: rings-set-up already holds"},
    {"comm-init,set-optimizer,grad-all-reduce",
     "pass set-optimizer cannot run: rings-set-up already holds"},
    {"comm-init,scale-loss-grad,set-optimizer,grad-all-reduce",
     "pass set-optimizer cannot run: loss-gradient-scaled already holds"},
    {"comm-init,scale-loss-grad,grad-accumulate{k=2},grad-all-reduce",
     "pass grad-accumulate cannot run: loss-gradient-scaled already holds"},
    {"comm-init,grad-all-reduce,grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: gradients-reduced already holds"},
    {"comm-init,local-sgd,grad-accumulate{k=2}",
     "pass grad-accumulate cannot run: parameters-averaged already holds"},
    {"comm-init,grad-all-reduce,set-optimizer",
     "pass set-optimizer cannot run: gradients-reduced already holds"},
    {"comm-init,partial-averaging,set-optimizer",
     "pass set-optimizer cannot run: parameters-averaged already holds"},
    {"broadcast-params,comm-init,grad-all-reduce",
     "pass broadcast-params needs rings-set-up, which no earlier pass provides"},
    {"comm-init,grad-all-reduce,scale-loss-grad",
     "pass scale-loss-grad cannot run: gradients-reduced already holds"},
    {"comm-init,grad-all-reduce,exact-loss",
     "pass exact-loss cannot run: gradients-reduced already holds"},
    {"comm-init,grad-all-reduce,dense-gradients",
     "pass dense-gradients cannot run: gradients-reduced already holds"},
    {"comm-init,scale-loss-grad,local-sgd",
     "pass local-sgd cannot run: loss-gradient-scaled already holds"},
    {"comm-init,scale-loss-grad,partial-averaging",
     "pass partial-averaging cannot run: loss-gradient-scaled already holds"},
    {"comm-init,local-sgd,scale-loss-grad",
     "pass scale-loss-grad cannot run: parameters-averaged already holds"},
    {"comm-init,grad-all-reduce,sparsify-gradients",
     "pass sparsify-gradients cannot run: gradients-reduced already holds"},
    {"comm-init,periodic-broadcast{bcast_period=2},grad-all-reduce",
     "pass periodic-broadcast needs gradients-reduced, which no earlier pass provides"},
    {"comm-init,grad-all-reduce,periodic-broadcast{bcast_period=2},periodic-broadcast{bcast_period="
     "2}",
     "pass periodic-broadcast cannot run: parameters-broadcast already holds"},
};

TEST(CombinationsTest, ContractsRefuseAnotherOrder) {
  for (const Order& order : kWrongOrders) {
    SCOPED_TRACE(order.passes);
    TrainingPrograms programs = SmallProgram(/*has_rows=*/false, /*is_narrow=*/false);
    const std::string main = programs.main.Serialize(), startup = programs.startup.Serialize();
    EXPECT_THAT(Rewrite(order.passes, &programs, Verification::kNever),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(order.refusal)));
    EXPECT_TRUE(programs.main.Serialize() == main);
    EXPECT_TRUE(programs.startup.Serialize() == startup);
  }
}

// Rows can be accumulated as dense gradients.
TEST(CombinationsTest, AllPassesInTheOrderOfTheManualTrainAsOneDevice) {
  constexpr char kOptimizer[] = "set-optimizer{lr=0.1,momentum=0.5}";
  const TrainingPrograms original = SmallProgram(/*has_rows=*/true, /*is_narrow=*/false);
  TrainingPrograms one_device = original, ranks = original;
  WEFT_ASSERT_OK(Rewrite(kOptimizer, &one_device));
  WEFT_ASSERT_OK(
      Rewrite(absl::StrCat(kOptimizer, ",dense-gradients{sparse=dense},grad-accumulate{k=", kParts,
                           ",average=true},comm-init,broadcast-params,exact-loss,reduce-statistics,"
                           "dense-gradients,scale-loss-grad,grad-all-reduce{buckets=bytes},"
                           "periodic-broadcast{bcast_period=2},sync-elimination"),
              &ranks));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained expected, Train(one_device, original.feeds, kUpdates, 1));
  WEFT_ASSERT_OK_AND_ASSIGN(const Trained found, Train(ranks, InTurn(original.feeds, kParts),
                                                       int64_t{kUpdates} * kParts, kRanks));
  EXPECT_LE(Difference(UpdatesOf(found, kParts), UpdatesOf(expected, 1)), 1e-4);
}

}  // namespace
}  // namespace weft
