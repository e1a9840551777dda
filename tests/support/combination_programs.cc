#include "tests/support/combination_programs.h"

#include <cctype>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/tensor.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"
#include "tests/support/models.h"
#include "tests/support/training_spec.h"

namespace weft::testing {
namespace {

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

std::string OptionsOfGroups() {
  return absl::StrCat("group_size=", kPairGroup, ",rounds=", kPairRounds);
}

std::string ExchangeOf(Feature feature, const FeaturePair& pair) {
  switch (feature) {
    case Feature::kBuckets:
      // An option of both passes that reduce.
      if (pair.HasAny({Feature::kHalf, Feature::kLowRank})) return "";
      return "grad-all-reduce{buckets=bytes}";
    case Feature::kHalf:
      return absl::StrCat("grad-reduce{reduce_method=mean,comm_dtype=fp16",
                          pair.Has(Feature::kBuckets) ? ",buckets=bytes}" : "}");
    case Feature::kTopK:
      return "sparsify-gradients{mode=topk,spars=1}";  // all elements are sent
    case Feature::kThreshold:
      return "sparsify-gradients{mode=threshold,spars=0}";
    case Feature::kGather:
      return "gather-gradients";
    case Feature::kShares:
      return "shard-updates{stage=3,prefetch=0,buckets=bytes}";
    case Feature::kLowRank:
      return absl::StrCat("power-sgd{rank_approximation=1,start_step=2",
                          pair.Has(Feature::kBuckets) ? ",buckets=bytes}" : "}");
    case Feature::kLocalSgd:
      if (pair.HasAny({Feature::kGroups, Feature::kOuter})) return "";
      return "local-sgd";
    case Feature::kGroups:
      if (pair.Has(Feature::kOuter)) return "";
      return absl::StrCat("local-sgd{", OptionsOfGroups(), "}");
    case Feature::kOuter:
      return absl::StrCat("local-sgd{outer=\"nesterov{lr=", kOuterLr, ",momentum=", kOuterMomentum,
                          "}\"", pair.Has(Feature::kGroups) ? "," + OptionsOfGroups() : "", "}");
    case Feature::kPartial:
      return "partial-averaging";  // one partition: all parameters in every step
    default:
      return "";
  }
}

// Of the rewritten main program.
bool HasOp(const Program& program, const std::string& type) {
  return absl::c_any_of(AllOps(program), [&](const Op& op) { return op.type() == type; });
}
bool HasVar(const Program& program, bool (*is)(const pb::VarType&)) {
  return absl::c_any_of(AllVars(program), [&](const Var& var) { return is(var.ToProto().type()); });
}
// Of the new optimizer; that of the program in mixed precision is another.
bool HasMomentum(const Program& program) {
  return absl::c_any_of(AllOps(program), [](const Op& op) { return op.FloatAttr("mu") == 0.5; });
}
bool IsFp16(const pb::VarType& type) {
  return type.lod_tensor().tensor().data_type() == pb::VarType::FP16;
}
bool IsRows(const pb::VarType& type) { return type.type() == pb::VarType::SELECTED_ROWS; }

}  // namespace

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

TrainingPrograms ProgramsOf(const FeaturePair& pair) {
  const bool has_rows = pair.Has(Feature::kRows), is_narrow = pair.Has(Feature::kAmp);
  TrainingPrograms programs =
      is_narrow && !has_rows ? MixedPrecision() : SmallProgram(has_rows, is_narrow);
  if (pair.Has(Feature::kClipByValue)) ClipByValue(&programs.main);
  if (pair.Has(Feature::kClipByGlobalNorm)) ClipByGlobalNorm(&programs.main);
  return programs;
}

std::vector<std::string> ChangesOf(const FeaturePair& pair) {
  std::vector<std::string> passes;
  if (pair.Has(Feature::kSetOptimizer)) passes.emplace_back("set-optimizer{lr=0.1,momentum=0.5}");
  if (pair.Has(Feature::kAccumulation)) {
    passes.push_back(absl::StrCat("grad-accumulate{k=", kPairParts, ",average=true}"));
  }
  return passes;
}

std::string PassesOf(const FeaturePair& pair) {
  std::vector<std::string> passes = ChangesOf(pair);
  passes.push_back(pair.Has(Feature::kGroups)
                       ? absl::StrCat("comm-init{group_size=", kPairGroup, "},broadcast-params")
                       : "comm-init,broadcast-params");
  std::vector<std::string> exchange;
  for (Feature feature : {pair.first, pair.second}) {
    if (std::string pass = ExchangeOf(feature, pair); !pass.empty()) exchange.push_back(pass);
  }
  if (exchange.empty()) exchange.emplace_back("grad-all-reduce");
  // The others divide by themselves, or average.
  const bool is_summed = exchange[0] == "gather-gradients" ||
                         absl::StartsWith(exchange[0], "shard-updates") ||
                         absl::StartsWith(exchange[0], "grad-all-reduce");
  if (is_summed) passes.emplace_back("scale-loss-grad");
  if (pair.Has(Feature::kServers)) passes.emplace_back("parameter-server");
  passes.insert(passes.end(), exchange.begin(), exchange.end());
  if (pair.Has(Feature::kBroadcast)) passes.emplace_back("periodic-broadcast{bcast_period=2}");
  passes.emplace_back("sync-elimination");
  if (pair.Has(Feature::kPlacement)) {
    // Gradients in a buffer lie in the memory of the buffer.
    const char* const place = pair.Has(Feature::kBuckets) ? "type:sgd=cpu" : "type:*_grad=cpu";
    passes.push_back(absl::StrCat("hetero-partition{place=\"", place, "\"}"));
  }
  return absl::StrJoin(passes, ",");
}

std::vector<std::string> ServedOf(const FeaturePair& pair, const TrainingPrograms& programs) {
  if (!pair.Has(Feature::kServers)) return {};
  const Program& main = programs.main;
  const auto is_first = [&](const std::string& name) {
    return !pair.Has(Feature::kLowRank) || absl::StrContains(name, ".b_");
  };
  std::vector<std::string> served = {*absl::c_find_if(programs.parameters, is_first)};
  for (OpId id : main.block(0).ops()) {
    const Op op = main.op(id);
    if (op.type() != "lookup_table_v2") continue;
    served.emplace_back(main.name(op.Input("W")[0]));
  }
  return served;
}

absl::StatusOr<absl::optional<Program>> RewritePair(const FeaturePair& pair,
                                                    TrainingPrograms* programs,
                                                    Verification verification) {
  TranspileOptions options;
  options.passes = PassesOf(pair);
  options.cluster.nranks = pair.ranks();
  options.verification = verification;
  for (const std::string& name : ServedOf(pair, *programs)) {
    options.param_attrs[name].parameter_server = true;
  }
  ProgramPair rewritten{&programs->main, &programs->startup};
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, rewritten));
  return std::move(result.server);
}

absl::Status Rewrite(const std::string& passes, int nranks, TrainingPrograms* programs,
                     Verification verification) {
  TranspileOptions options;
  options.passes = passes;
  options.cluster.nranks = nranks;
  options.verification = verification;
  ProgramPair pair{&programs->main, &programs->startup};
  return Transpile(options, pair).status();
}

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
    case Feature::kShares:
      return HasOp(main, "c_reducescatter");
    case Feature::kLowRank:
      return HasOp(main, "qr");
    case Feature::kLocalSgd:
    case Feature::kPartial:
      return HasOp(main, "c_allreduce_sum");
    case Feature::kGroups:
      return HasOp(main, "c_allreduce_avg");
    case Feature::kOuter:
      return absl::c_any_of(AllVars(main), [](const Var& var) {
        return absl::EndsWith(var.name(), "_outer_velocity");
      });
    case Feature::kBroadcast:
      return HasOp(main, "c_broadcast");
    case Feature::kPlacement:
      return HasOp(main, "memcpy_d2h") && HasOp(main, "memcpy_h2d");
    case Feature::kServers:
      return HasOp(main, "ps_push");
  }
  return false;
}

}  // namespace weft::testing
