#include "transpiler/passes/updates/update_slice.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradients.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

bool IsOfUpdatePart(const Op& op) {
  return (op.role() & (kRoleOptimize | kRoleLrSched)) != 0 && !IsBackward(op);
}

// The variables of the root block that an op and the ops of its sub-blocks access, in this order:
// an op that runs blocks lists what these access, but Paddle leaves out some of it.
struct Access {
  std::vector<Symbol> reads;  // in a block: before it writes them
  std::vector<Symbol> writes;
};

class BlockAccesses {
 public:
  explicit BlockAccesses(const Program& program) : program_(program) {}

  Access Of(const Op& op) const {
    Access access;
    std::set<int> seen;
    std::set<Symbol> written;
    for (int block : op.SubBlocks()) AddBlock(block, &seen, &written, &access);
    Add(op, &access);
    return access;
  }

 private:
  void AddBlock(int block, std::set<int>* seen, std::set<Symbol>* written, Access* access) const {
    if (!seen->insert(block).second) return;
    for (const Op& op : BlockOps(program_, block)) {
      for (int sub_block : op.SubBlocks()) AddBlock(sub_block, seen, written, access);
      Access own;
      Add(op, &own);
      for (Symbol symbol : own.reads) {
        if (written->count(symbol) == 0) access->reads.push_back(symbol);
      }
      for (Symbol symbol : own.writes) {
        access->writes.push_back(symbol);
        written->insert(symbol);
      }
    }
  }

  void Add(const Op& op, Access* access) const {
    for (Symbol symbol : op.input_args()) AddSymbol(op, symbol, &access->reads);
    for (Symbol symbol : op.output_args()) AddSymbol(op, symbol, &access->writes);
  }

  // A block may declare another variable of this name.
  void AddSymbol(const Op& op, Symbol symbol, std::vector<Symbol>* symbols) const {
    const VarId var = program_.block(op.block()).Resolve(symbol);
    if (var.valid() && program_.var(var).block() == 0) symbols->push_back(symbol);
  }

  const Program& program_;
};

class StepDivision {
 public:
  explicit StepDivision(const Program& program)
      : program_(program), accesses_(program), states_(program.symbols().size()) {
    std::vector<bool> is_statistic(program.symbols().size(), false);
    for (Symbol symbol : FindRunningStatistics(program)) is_statistic[symbol.value()] = true;
    for (VarId id : program.block(0).vars()) {
      const Var var = program.var(id);
      const bool is_marked = var.is_parameter() && !is_statistic[var.name_symbol().value()];
      const bool has_gradient =
          program.block(0).FindVar(absl::StrCat(var.name(), kGradSuffix)).valid();
      At(var.name_symbol()).is_param = var.persistable() && (is_marked || has_gradient);
    }
  }

  absl::StatusOr<UpdateSlice> Run() {
    WEFT_RETURN_IF_ERROR(FindGradients());
    for (const Op& op : BlockOps(program_, 0)) {
      WEFT_RETURN_IF_ERROR(IsOfUpdatePart(op) && stays_.count(op.id().value()) == 0
                               ? AddToPart(op)
                               : CheckStays(op));
    }
    return std::move(part_);
  }

 private:
  // Of a variable of the root block.
  struct State {
    OpId of_step;              // the last op of every step that wrote a value of this step to it
    OpId read_by, written_by;  // ops of the update part
    bool is_param = false;     // a parameter, marked as one or trained by hand
    bool is_written = false;   // by any op
    bool of_backward = false;  // depends on what backward computes in this step
    bool is_gradient = false;  // that is accumulated
    bool is_in_reads = false;
  };
  State& At(Symbol symbol) { return states_[symbol.value()]; }
  Var VarOf(Symbol symbol) const { return program_.var(program_.block(0).Resolve(symbol)); }

  absl::Status FindGradients() {
    WEFT_ASSIGN_OR_RETURN(const GradientAnalysis analysis, AnalyzeGradients(program_, {}));
    if (!analysis.unclear.empty()) return IsAccumulated(analysis.unclear.front().grad);
    for (const Gradient& gradient : analysis.gradients) {
      if (gradient.block != 0) return IsAccumulated(gradient.grad);
      if (!gradient.first_use.valid()) continue;  // of a parameter that is not updated
      WEFT_RETURN_IF_ERROR(AddGradient(gradient));
    }
    if (!part_.gradients.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "no gradient to accumulate: no op of role optimize uses a gradient that a backward op "
        "names in op_role_var");
  }

  absl::Status IsAccumulated(Symbol grad) const {
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", program_.name(grad),
                     " is persistable: the program accumulates gradients over several steps "
                     "already; expected one that updates in every step"));
  }

  absl::Status AddGradient(const Gradient& gradient) {
    const Op use = program_.op(gradient.first_use);
    if (!IsOfUpdatePart(use)) {
      return absl::FailedPreconditionError(absl::StrCat(
          use.DebugName(), " uses gradient ", program_.name(gradient.grad), " in every step",
          ", where it is not accumulated yet; expected uses by ops of role optimize"));
    }
    PartGradient added{gradient.param, gradient.grad, gradient.grad, gradient.completed_by, {}};
    if (const Symbol cast = CastOf(gradient); cast.valid()) {
      stays_.insert(use.id().value());
      added.grad = cast;
      added.completed_by = use.id();
    }
    WEFT_ASSIGN_OR_RETURN(added.type, TypeOf(added));
    if (At(added.grad).is_gradient) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable ", program_.name(added.grad),
                       " holds several gradients in turn; expected one, which is accumulated"));
    }
    At(added.grad).is_gradient = true;
    part_.gradients.push_back(added);
    return absl::OkStatus();
  }

  // What the only op that uses the gradient casts it to: fp32. Invalid: another op uses it.
  Symbol CastOf(const Gradient& gradient) {
    const Op use = program_.op(gradient.first_use);
    if (use.type() != "cast" || NumUses(gradient.grad) != 1) return Symbol();
    const absl::Span<const Symbol> out = use.Output("Out");
    if (out.size() != 1 || out[0] == gradient.grad) return Symbol();
    const absl::optional<TensorType> type = DeclaredType(program_, out[0]);
    return type.has_value() && type->dtype == DType::kFloat32 ? out[0] : Symbol();
  }

  // By ops that are not of backward.
  int NumUses(Symbol grad) {
    if (num_uses_.empty()) {
      num_uses_.resize(program_.symbols().size(), 0);
      for (const Op& op : BlockOps(program_, 0)) {
        if (IsBackward(op)) continue;
        const Access access = accesses_.Of(op);
        for (Symbol symbol : access.reads) ++num_uses_[symbol.value()];
        for (Symbol symbol : access.writes) ++num_uses_[symbol.value()];
      }
    }
    return num_uses_[grad.value()];
  }

  absl::StatusOr<TensorType> TypeOf(const PartGradient& gradient) const {
    const absl::optional<TensorType> type = DeclaredType(program_, gradient.grad);
    const auto refuse = [&](absl::string_view expected, absl::string_view advice) {
      return absl::FailedPreconditionError(absl::StrCat(
          program_.op(gradient.completed_by).DebugName(), " completes gradient ",
          program_.name(gradient.grad), " of parameter ", program_.name(gradient.param),
          ": expected ", expected, " to accumulate, found ",
          type.has_value() ? ToString(*type) : "none", advice));
    };
    if (!type.has_value() || !IsFloating(type->dtype)) return refuse("a floating-point tensor", "");
    if (type->kind != TensorType::Kind::kDense) {
      return refuse("a dense tensor",
                    "; pass dense-gradients{sparse=dense}, before this one, makes it dense");
    }
    if (NumElements(type->dims) < 0) return refuse("a tensor of known dimensions", "");
    return *type;
  }

  absl::Status AddToPart(const Op& op) {
    part_.ops.push_back(op.id());
    const Access access = accesses_.Of(op);
    for (Symbol symbol : access.reads) {
      State& state = At(symbol);
      if (!state.written_by.valid()) {
        WEFT_RETURN_IF_ERROR(CheckLasts(op, symbol));
        if (!state.is_in_reads) part_.reads.push_back(symbol);
        state.is_in_reads = true;
      }
      state.read_by = op.id();
    }
    for (Symbol symbol : access.writes) {
      State& state = At(symbol);
      if (!state.written_by.valid()) part_.writes.push_back(symbol);
      state.written_by = op.id();
      state.is_written = true;
    }
    return absl::OkStatus();
  }

  // That the value is not one of this step alone.
  absl::Status CheckLasts(const Op& op, Symbol symbol) {
    const State& state = At(symbol);
    if (state.is_gradient || VarOf(symbol).persistable()) return absl::OkStatus();
    if (state.of_step.valid()) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), " reads ", program_.name(symbol), ", which ",
          program_.op(state.of_step).DebugName(),
          " computes in every step; of the accumulated steps, the update would see the last one "
          "alone; expected gradients that op_role_var names, and persistable variables"));
    }
    if (state.is_written) return absl::OkStatus();  // a constant
    const absl::optional<TensorType> type = DeclaredType(program_, symbol);
    if (type.has_value() && NumElements(type->dims) == 1) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " reads ", program_.name(symbol),
        ", which is fed; of the accumulated steps, the update would see the last batch alone"));
  }

  // An op of every step.
  absl::Status CheckStays(const Op& op) {
    const Access access = accesses_.Of(op);
    const auto refuse = [&](absl::string_view does, Symbol symbol, absl::string_view other_does,
                            OpId other) {
      return absl::FailedPreconditionError(absl::StrCat(
          op.DebugName(), " ", does, " ", program_.name(symbol), " in every step, after ",
          program_.op(other).DebugName(), ", which is of the update, ", other_does,
          " it; expected updates that can run at the end of a step"));
    };
    bool is_of_step = IsBackward(op), of_backward = IsBackward(op);
    for (Symbol symbol : access.reads) {
      const State& state = At(symbol);
      if (state.written_by.valid()) return refuse("reads", symbol, "writes", state.written_by);
      const bool is_data = !state.is_written && !VarOf(symbol).persistable();
      is_of_step = is_of_step || is_data || state.of_step.valid();
      of_backward = of_backward || state.of_backward;
    }
    for (Symbol symbol : access.writes) {
      State& state = At(symbol);
      if (state.written_by.valid()) return refuse("writes", symbol, "writes", state.written_by);
      if (state.read_by.valid()) return refuse("writes", symbol, "reads", state.read_by);
      if (state.is_param) WEFT_RETURN_IF_ERROR(CheckUpdate(op, symbol, of_backward));
      state.is_written = true;
      state.of_step = is_of_step ? op.id() : OpId();
      state.of_backward = of_backward;
    }
    return absl::OkStatus();
  }

  // Of a parameter, in every step.
  absl::Status CheckUpdate(const Op& op, Symbol param, bool of_backward) {
    if (!of_backward) {
      part_.updated_in_every_step.push_back({op.id(), param});
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        op.DebugName(), " updates ", program_.name(param),
        " in every step, by what backward computes; expected updates by ops of role optimize"));
  }

  const Program& program_;
  const BlockAccesses accesses_;
  std::vector<State> states_;  // by Symbol
  std::vector<int> num_uses_;  // by Symbol; empty: not counted yet
  std::set<uint32_t> stays_;   // ops of role optimize that belong to gradients, by OpId
  UpdateSlice part_;
};

}  // namespace

absl::StatusOr<UpdateSlice> FindUpdateSlice(const Program& program) {
  return StepDivision(program).Run();
}

}  // namespace weft
