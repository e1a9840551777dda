#include "transpiler/passes/gradients/dense_gradients.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/rows_ops.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_queries.h"
#include "transpiler/passes/support/properties.h"

namespace weft {
namespace {

constexpr char kIsSparse[] = "is_sparse";

// What an op does with a row-sparse input.
enum class RowsUse {
  kUpdate,       // the same as with a dense one
  kMapElements,  // makes zeros of zeros, and rows of rows
  kCopy,         // only rows have it: gives the same value
  kTakeRows,     // only rows have it: gives the elements of the rows, whose number varies
  kNeedRows,
};

bool AddsNothing(const Op& op) { return op.FloatAttr("bias").value_or(0) == 0; }

bool MapsZerosToZeros(const Op& op) {
  if (op.type() == "clip_by_norm") return true;
  if (op.type() != "clip") return false;
  return op.Input("Min").empty() && op.Input("Max").empty() &&
         op.FloatAttr("min").value_or(0) <= 0 && op.FloatAttr("max").value_or(0) >= 0;
}

struct SparseGradient {
  GradientPair pair;
  std::vector<VarId> vars;          // itself, its summands, and rows made of it
  std::vector<OpId> producers;      // ops with is_sparse
  std::vector<OpId> copies;         // ops that take rows and that dense gradients do without
  absl::optional<int64_t> ids = 0;  // that they look up in a step; none: unknown
  std::string why_rows;             // why it must stay row-sparse; empty if it need not
};

class SparseGradientFinder {
 public:
  explicit SparseGradientFinder(const Program& program)
      : program_(program),
        traits_(program),
        gradient_of_(program.symbols().size(), kNone),
        rows_of_(program.symbols().size(), kNone) {}

  absl::StatusOr<std::vector<SparseGradient>> Find() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, FindGradientPairs(program_));
    for (const GradientPair& pair : pairs) {
      if (!IsRows(program_, pair.grad)) continue;
      gradient_of_[pair.grad.value()] = static_cast<int>(found_.size());
      SparseGradient gradient;
      gradient.pair = pair;
      gradient.vars.push_back(program_.block(0).FindVar(pair.grad));
      found_.push_back(std::move(gradient));
    }
    if (found_.empty()) return std::move(found_);
    // Backwards: summands are computed before their sum.
    const absl::Span<const OpId> ops = program_.block(0).ops();
    for (size_t i = ops.size(); i-- > 0;) VisitWriter(program_.op(ops[i]));
    for (const Op& op : AllOps(program_)) VisitReader(op);
    return std::move(found_);
  }

 private:
  static constexpr int kNone = -1;

  bool IsLinear(const Op& op) {
    return traits_.Has(op, Trait::kLinear) && traits_.Has(op, Trait::kElementwise) &&
           AddsNothing(op);
  }

  RowsUse UseOf(const Op& op, Symbol in) {
    const RowsRule rule = RowsRuleOf(traits_.SchemaOf(op));
    if (rule == RowsRule::kMerges) return RowsUse::kCopy;
    if (rule == RowsRule::kTakes) return RowsUse::kTakeRows;
    const bool scales = op.type() == "elementwise_mul" && !op.Input("Y").empty() &&
                        op.Input("Y")[0] != in && !IsRows(program_, op.Input("Y")[0]);
    if (scales || IsLinear(op) || MapsZerosToZeros(op)) return RowsUse::kMapElements;
    for (Symbol out : op.output_args()) {
      if (IsRows(program_, out)) return RowsUse::kNeedRows;
    }
    return op.type() == "clip" ? RowsUse::kNeedRows : RowsUse::kUpdate;
  }

  void VisitWriter(const Op& op) {
    for (Symbol out : op.output_args()) {
      const int i = gradient_of_[out.value()];
      if (i == kNone) continue;
      SparseGradient& gradient = found_[i];
      const bool changes_it = absl::c_linear_search(op.input_args(), out);
      if (changes_it && UseOf(op, out) == RowsUse::kMapElements) continue;
      if (op.BoolAttr(kIsSparse).value_or(false)) {
        gradient.producers.push_back(op.id());
        AddIds(op, &gradient);
      } else if (IsLinear(op)) {
        for (Symbol in : op.input_args()) {
          if (!IsRows(program_, in) || gradient_of_[in.value()] != kNone) continue;
          gradient_of_[in.value()] = i;
          gradient.vars.push_back(program_.block(0).FindVar(in));
        }
      } else {
        gradient.why_rows =
            absl::StrCat(op.DebugName(), " writes rows, and cannot write a dense tensor instead");
      }
    }
  }

  void AddIds(const Op& op, SparseGradient* gradient) {
    for (Symbol ids : op.Input("Ids")) {
      const absl::optional<TensorType> type = DeclaredType(program_, ids);
      const int64_t count = type.has_value() ? NumElements(type->dims) : -1;
      if (count < 0) {
        gradient->ids.reset();
      } else if (gradient->ids.has_value()) {
        *gradient->ids += count;
      }
    }
  }

  void VisitReader(const Op& op) {
    for (Symbol in : op.input_args()) {
      const int i = gradient_of_[in.value()];
      if (i != kNone && found_[i].why_rows.empty()) found_[i].why_rows = VisitUse(op, in, i);
      const int of = rows_of_[in.value()];
      // Those that count the elements would count zeros, too.
      if (of != kNone && found_[of].why_rows.empty() && op.type() != "squared_l2_norm") {
        found_[of].why_rows = absl::StrCat(
            op.DebugName(), " uses its rows, whose number a dense tensor does not have");
      }
    }
  }

  // Returns why the gradient must stay row-sparse.
  std::string VisitUse(const Op& op, Symbol in, int i) {
    if (!traits_.IsRegistered(op)) {
      return absl::StrCat(op.DebugName(), " uses it, an unregistered op");
    }
    if (UpdatesRowsAlone(op, traits_.SchemaOf(op))) {
      return absl::StrCat(op.DebugName(), " updates only the rows that have a gradient",
                          op.type() == "ftrl" ? "" : " (lazy_mode)");
    }
    const RowsUse use = UseOf(op, in);
    if (use == RowsUse::kNeedRows) {
      return absl::StrCat(op.DebugName(), " uses its rows alone, without the zeros between them");
    }
    if (use == RowsUse::kCopy || use == RowsUse::kTakeRows) found_[i].copies.push_back(op.id());
    for (Symbol out : op.output_args()) {
      if (use == RowsUse::kTakeRows) rows_of_[out.value()] = i;
      if (!IsRows(program_, out) || gradient_of_[out.value()] != kNone) continue;
      gradient_of_[out.value()] = i;
      found_[i].vars.push_back(program_.block(0).FindVar(out));
    }
    return "";
  }

  const Program& program_;
  OpTraits traits_;
  // By symbol: the gradient that it is, or is a summand or made of; the one whose rows it holds.
  std::vector<int> gradient_of_, rows_of_;
  std::vector<SparseGradient> found_;
};

struct Choice {
  bool dense = false;
  std::string why;
};

// See the header for the formulas.
Choice Choose(const Program& program, const SparseGradient& gradient, int nranks) {
  if (!gradient.ids.has_value()) return {false, "the number of ids in a step is unknown"};
  const absl::optional<TensorType> type = DeclaredType(program.var(gradient.vars[0]));
  if (!type.has_value() || type->dims.empty() || NumElements(type->dims) <= 0) {
    return {false, "its shape is unknown"};
  }
  const double size = static_cast<double>(SizeOf(type->dtype));
  const double parameter = static_cast<double>(NumElements(type->dims)) * size;
  const double row = parameter / static_cast<double>(type->dims[0]);
  const double index = type->dims[0] - 1 <= std::numeric_limits<int32_t>::max() ? 4 : 8;
  const double rows = (nranks - 1) * static_cast<double>(*gradient.ids) * (index + row);
  const double dense = 2.0 * (nranks - 1) / nranks * parameter;
  const auto bytes = [](double value) { return absl::StrCat(static_cast<int64_t>(value)); };
  return {dense < rows, absl::StrCat("a rank would receive ", bytes(rows), " bytes of rows, or ",
                                     bytes(dense), " of a dense gradient")};
}

void MakeDense(const Program& program, const SparseGradient& gradient, Rewriter* rewriter) {
  for (VarId id : gradient.vars) {
    pb::VarDesc var = program.var(id).ToProto();
    pb::VarType type;
    type.set_type(pb::VarType::LOD_TENSOR);
    *type.mutable_lod_tensor()->mutable_tensor() = var.type().selected_rows();
    *var.mutable_type() = type;
    rewriter->ReplaceVar(id, var);
  }
  for (OpId id : gradient.producers) {
    pb::OpDesc op = program.op(id).ToProto();
    for (pb::OpDesc::Attr& attr : *op.mutable_attrs()) {
      if (attr.name() == kIsSparse) attr.set_b(false);
    }
    rewriter->Replace(id, op);
  }
  for (OpId id : gradient.copies) {
    pb::OpDesc op = program.op(id).ToProto();
    op.set_type("assign");
    rewriter->Replace(id, op);
  }
}

}  // namespace

void DenseGradients::Options::Bind(OptionBinder& bind) {
  bind.Choice("sparse", &sparse,
              "how sparse gradients travel; auto: as rows or dense, whichever takes fewer bytes; "
              "supported: as "
              "rows, but dense for a device whose collectives take no rows",
              {{"auto", Sparse::kAuto},
               {"rows", Sparse::kRows},
               {"supported", Sparse::kSupported},
               {"dense", Sparse::kDense}});
}

Contract DenseGradients::contract() const { return Contract().ConflictsWith(kGradientsReduced); }

Claims DenseGradients::claims(const PassContext& context) const {
  Claims claims;
  claims.is_for_one_device = true;
  return claims;
}

absl::StatusOr<bool> DenseGradients::Run(const PassContext& context, ProgramPair& programs) const {
  // Paddle's communicator of CPUs cannot add rows.
  const bool on_cpu = context.target.device_kind == TargetDevice::kCpu;
  if (options_.sparse == Sparse::kRows || (options_.sparse == Sparse::kSupported && !on_cpu)) {
    return false;
  }
  const Sparse sparse = on_cpu ? Sparse::kDense : options_.sparse;
  const Program& program = *programs.main;
  WEFT_ASSIGN_OR_RETURN(const std::vector<SparseGradient> gradients,
                        SparseGradientFinder(program).Find());
  Rewriter rewriter(programs.main);
  for (const SparseGradient& gradient : gradients) {
    const std::string name(program.name(gradient.pair.grad));
    Choice choice{true, "as requested"};
    if (sparse == Sparse::kAuto) {
      choice = Choose(program, gradient, context.target.cluster.nranks().value_or(2));
      if (!gradient.why_rows.empty()) choice = {false, gradient.why_rows};
    } else if (!gradient.why_rows.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("gradient ", name, " cannot be made dense: ", gradient.why_rows));
    }
    if (choice.dense) MakeDense(program, gradient, &rewriter);
    context.sink.Explain(kName, name, choice.dense ? "made dense" : "left as rows", choice.why,
                         {{"parameter", std::string(program.name(gradient.pair.param))}});
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
