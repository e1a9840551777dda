#include "transpiler/passes/gradients/dense_reducer.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/weft_attrs.h"
#include "proto/op_role.h"
#include "transpiler/passes/gradients/gradient_buckets.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

NewOp BackwardOp(const std::string& type, NewAttrs attrs,
                 absl::optional<int> nranks = absl::nullopt) {
  return InPlaceOp(type, {}, std::move(attrs), kRoleBackward, nranks);
}

NewOp ReduceOp(const std::string& type, int ring, bool accumulates_natively) {
  NewOp op = BackwardOp(type, {{"ring_id", ring}});
  if (type != DenseReducer::kGroupType) op.attrs.push_back({"use_calc_stream", false});
  if (accumulates_natively) {
    op.weft_attrs.push_back({std::string(kAccumulateTypeAttr), std::string(kAccumulatesNatively)});
  }
  return op;
}

NewOp ClipOp(float limit) {
  NewOp op = BackwardOp("clip", {{"max", limit}, {"min", -limit}});
  op.weft_attrs.push_back({std::string(kPerRankAttr), true});
  return op;
}

NewOp MultiplyOp(float factor, const DenseReduction& reduction) {
  return BackwardOp("scale", {{"scale", factor}}, reduction.nranks);
}

std::string ReduceType(const DenseReduction& reduction) {
  return reduction.averages ? "c_allreduce_avg" : "c_allreduce_sum";
}

std::string Suffix(DType type) { return absl::StrCat("@", absl::AsciiStrToUpper(DTypeName(type))); }

// Whether a gradient of that type is cast.
bool IsCast(const TensorType& type, const DenseReduction& reduction) {
  if (!reduction.comm_dtype.has_value()) return false;
  if (SizeOf(type.dtype) < SizeOf(*reduction.comm_dtype)) return true;
  return type.kind == TensorType::Kind::kDense &&
         SizeOf(*reduction.comm_dtype) < SizeOf(DType::kFloat32);
}

// A value of the step like the gradient, of another element type.
pb::VarDesc GradientVar(const Var& grad, const std::string& name, DType dtype) {
  const TensorType type = *DeclaredType(grad);
  if (type.kind == TensorType::Kind::kDense) return TensorVar(name, dtype, type.dims);
  pb::VarDesc rows = grad.ToProto();
  rows.set_name(name);
  rows.mutable_type()->mutable_selected_rows()->set_data_type(
      static_cast<pb::VarType::Type>(dtype));
  return rows;
}

}  // namespace

DenseReducer::DenseReducer(const Program& program, const GradientAnalysis& analysis, int nrings,
                           const DenseReduction& reduction)
    : program_(program),
      analysis_(analysis),
      reduction_(reduction),
      op_type_(ReduceType(reduction)),
      names_(program),
      clip_(BuildOp(ClipOp(reduction.clip.value_or(0)))),
      multiply_before_(BuildOp(MultiplyOp(reduction.factor_before, reduction))),
      multiply_after_(BuildOp(MultiplyOp(reduction.factor_after, reduction))) {
  for (int ring = 0; ring < nrings; ++ring) {
    reduce_.emplace_back(BuildOp(ReduceOp(op_type_, ring, reduction.accumulates_natively)));
    reduce_group_.emplace_back(BuildOp(ReduceOp(kGroupType, ring, reduction.accumulates_natively)));
  }
}

void DenseReducer::Declare(const Bucket& bucket, Rewriter* rewriter) {
  if (travelling_.contains(bucket.variable)) return;
  const Gradient& first = analysis_.gradients[bucket.gradients.gradients.front()];
  const absl::optional<TensorType> type = DeclaredType(program_, first.grad);
  if (!type.has_value() || !IsCast(*type, reduction_)) return;
  const DType to = *reduction_.comm_dtype;
  const std::string suffix = Suffix(to);
  const int block = bucket.gradients.block;
  Travelling& travelling = travelling_[bucket.variable];
  travelling.name = names_.Of(bucket.variable + suffix);
  travelling.from = type->dtype;
  travelling.to = to;
  if (bucket.gradients.gradients.size() == 1 || reduction_.launches_groups) {
    const Symbol grad = program_.FindSymbol(bucket.variable);
    const VarId var = program_.block(0).Resolve(grad);
    rewriter->AddVar(block, GradientVar(program_.var(var), travelling.name, to));
    return;
  }
  FusedTensors tensors = TensorsOf(program_, analysis_, bucket.gradients);
  // Slices begin at the same elements as in the other buffer.
  const int alignment = static_cast<int>(kSliceAlignment * SizeOf(to) / SizeOf(tensors.dtype));
  tensors.dtype = to;
  for (size_t i = 0; i < tensors.names.size(); ++i) {
    tensors.names[i] = names_.Of(tensors.names[i] + suffix);
    rewriter->AddVar(block, TensorVar(tensors.names[i], to, tensors.dims[i]));
  }
  rewriter->AddVar(block, FusedBuffer(travelling.name, tensors, alignment));
  travelling.coalesce =
      Coalesce(tensors, travelling.name, FusedValues::kDiscarded, kRoleBackward, alignment);
}

std::string DenseReducer::Sent(const std::string& variable) {
  const Travelling* const travelling = TravellingOf(variable);
  return travelling == nullptr ? variable : travelling->name;
}

void DenseReducer::Prepare(const std::string& variable, Insert insert) {
  if (reduction_.clip.has_value()) insert(clip_.InPlace({variable}));
  const Travelling* const travelling = TravellingOf(variable);
  const bool multiplies = reduction_.factor_before != 1;
  const bool widens = travelling != nullptr && travelling->widens();
  if (multiplies && !widens) insert(multiply_before_.InPlace({variable}));
  if (travelling == nullptr) return;
  if (travelling->coalesce.has_value()) insert(*travelling->coalesce);
  insert(Cast(travelling->from, travelling->to).Over({variable}, {travelling->name}));
  if (multiplies && widens) insert(multiply_before_.InPlace({travelling->name}));
}

const pb::OpDesc& DenseReducer::Launch(absl::Span<const std::string> variables, int ring) {
  std::vector<std::string> sent;
  for (const std::string& variable : variables) sent.push_back(Sent(variable));
  return (sent.size() == 1 ? reduce_ : reduce_group_)[ring].InPlace(sent);
}

void DenseReducer::Finish(const std::string& variable, Insert insert) {
  const Travelling* const travelling = TravellingOf(variable);
  const bool multiplies = reduction_.factor_after != 1;
  const bool widens = travelling != nullptr && travelling->widens();
  if (multiplies && widens) insert(multiply_after_.InPlace({travelling->name}));
  if (travelling != nullptr) {
    insert(Cast(travelling->to, travelling->from).Over({travelling->name}, {variable}));
  }
  if (multiplies && !widens) insert(multiply_after_.InPlace({variable}));
}

const DenseReducer::Travelling* DenseReducer::TravellingOf(const std::string& variable) const {
  const auto it = travelling_.find(variable);
  return it == travelling_.end() ? nullptr : &it->second;
}

OpTemplate& DenseReducer::Cast(DType from, DType to) {
  const auto it = casts_.find({from, to});
  if (it != casts_.end()) return it->second;
  const NewAttrs attrs = {{"in_dtype", static_cast<int>(from)},
                          {"out_dtype", static_cast<int>(to)}};
  return casts_.emplace(std::pair(from, to), BuildOp(BackwardOp("cast", attrs))).first->second;
}

absl::StatusOr<bool> ReduceInBuckets(absl::string_view pass, const BucketPolicy& policy, int nrings,
                                     const GradientAnalysis& analysis,
                                     const DenseReduction& reduction, const PassContext& context,
                                     Program* program) {
  const Target& target = context.target;
  const BucketInputs inputs{target.forecast.gradient_ready, target.collective_time, nrings,
                            target.param_attrs, target.forecast.updated_on_host};
  WEFT_ASSIGN_OR_RETURN(const FilledBuckets filled,
                        FillBuckets(*program, analysis, policy, inputs));
  for (const std::string& warning : filled.warnings) context.sink.Warn(warning);
  Rewriter rewriter(program);
  DenseReducer exchange(*program, analysis, nrings, reduction);
  GradientWriter writer(*program, analysis, nrings, &exchange, &rewriter);
  writer.Write(filled.buckets);
  writer.Explain(pass, "reduced", exchange.op_type(), filled.buckets, context,
                 DenseReducer::kGroupType);
  return CommitEdits(&rewriter);
}

}  // namespace weft
