#include "transpiler/verifier/equivalence/unchanged_prefix.h"

#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/values/signature_facts.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/rows_ops.h"
#include "ops/schema/weft_attrs.h"

namespace weft {
namespace {

using Kind = SignatureFacts::Kind;

bool AreSame(const Op& a, const Op& b) {
  const absl::string_view x = a.bytes(), y = b.bytes();
  return x.size() == y.size() && (x.data() == y.data() || x == y);
}

// Compares variables, too: a declaration hides that of an enclosing block.
bool AreSame(const Block& a, const Program& in_a, const Block& b, const Program& in_b) {
  return a.parent_idx() == b.parent_idx() &&
         absl::c_equal(
             a.vars(), b.vars(),
             [&](VarId x, VarId y) { return in_a.var(x).bytes() == in_b.var(y).bytes(); }) &&
         absl::c_equal(a.ops(), b.ops(),
                       [&](OpId x, OpId y) { return AreSame(in_a.op(x), in_b.op(y)); });
}

// Whether an op of the original can be in the prefix: it uses no values of other ranks, no fused
// buffers and no loops, and what it makes of a mean is the mean of what it makes.
bool MayBeKept(const Op& op, const SignatureFacts& facts) {
  if (facts.algebra == Algebra::kSparsify || op.BoolAttr(kPerRankAttr).value_or(false)) {
    return false;
  }
  return facts.kind == Kind::kIgnored || facts.kind == Kind::kFeed || facts.kind == Kind::kBranch ||
         facts.kind == Kind::kFunction;
}

bool HasRows(const Program& program) {
  return absl::c_any_of(program.block(0).vars(), [&](VarId id) {
    return program.var(id).type() == pb::VarType::SELECTED_ROWS;
  });
}

bool IsLinearInRows(const Op& op, const SignatureFacts& facts) {
  switch (facts.algebra) {
    case Algebra::kSum:
    case Algebra::kAdd:
    case Algebra::kSubtract:
    case Algebra::kMultiply:
    case Algebra::kDivide:
    case Algebra::kCopy:
    case Algebra::kCast:
    case Algebra::kBackward:
      return true;
    case Algebra::kScale:
      return op.FloatAttr("bias").value_or(0) == 0;
    default:
      return facts.is_linear;
  }
}

// Whether the op may tell rows that an all-reduce has merged from others.
bool TellsRowsApart(const Op& op, const SignatureFacts& facts) {
  const RowsRule rule = RowsRuleOf(facts.schema);
  if (rule == RowsRule::kTakes) return true;
  if (facts.param.count > 0 || IsLinearInRows(op, facts) || rule == RowsRule::kMergesFirst) {
    return false;
  }
  const Program& program = op.program();
  return absl::c_any_of(op.input_args(), [&](Symbol name) {
    const VarId var = program.block(op.block()).Resolve(name);
    return var.valid() && program.var(var).type() == pb::VarType::SELECTED_ROWS;
  });
}

// `in` and `out`: what the op reads and writes.
bool IsInPlace(const Op& op, absl::Span<const Symbol> in, absl::Span<const Symbol> out) {
  return !in.empty() && in == out && in.size() == op.input_args().size() &&
         out.size() == op.output_args().size();
}

// Whether an op that is not in the original changes its variables by a reduction over ranks or a
// factor only. IsConfirmedBy checks the reductions and factors.
bool MayBeInserted(const Op& op, const SignatureFacts& facts, const Program& original) {
  const Program& program = op.program();
  const auto is_new = [&](Symbol name) {
    return !original.block(0).FindVar(program.name(name)).valid();
  };
  switch (facts.kind) {
    case Kind::kIgnored:
      return true;
    case Kind::kCollective: {
      const CollectiveOp& collective = *FindCollectiveOp(op);
      return collective.kind == CollectiveKind::kAllReduce &&
             (collective.reduction == Reduction::kSum || collective.reduction == Reduction::kAvg) &&
             IsInPlace(op, collective.Inputs(op), collective.Outputs(op));
    }
    case Kind::kFuse: {
      const MadeBuffer made = MadeBufferOf(op);
      return made.sources == made.parts && !made.constant.has_value() && made.name.valid() &&
             is_new(made.name);
    }
    case Kind::kFunction:
      return facts.algebra == Algebra::kScale && op.FloatAttr("bias").value_or(0) == 0 &&
             IsInPlace(op, op.Input("X"), op.Output("Out"));
    default:
      return false;
  }
}

}  // namespace

UnchangedPrefix::UnchangedPrefix(const Program& original, const ProgramFacts& facts)
    : program_(facts.program()),
      state_(program_.op_id_limit(), State::kAfter),
      kept_(program_.op_id_limit(), false) {
  Find(original, facts);
  FindKeptAfter(original);
}

// Ops of the original after the prefix, in any order.
void UnchangedPrefix::FindKeptAfter(const Program& original) {
  absl::flat_hash_map<absl::string_view, int> left;
  for (OpId id : original.block(0).ops().subspan(original_ops_)) ++left[original.op(id).bytes()];
  for (OpId id : program_.block(0).ops()) {
    if (left.empty() || kept_[id.value()]) continue;
    const auto found = left.find(program_.op(id).bytes());
    if (found == left.end()) continue;
    kept_[id.value()] = true;
    if (--found->second == 0) left.erase(found);
  }
}

void UnchangedPrefix::Find(const Program& original, const ProgramFacts& facts) {
  const Program& program = program_;
  const SignatureTable& signatures = facts.Get<SignatureTable>();
  const bool has_rows = HasRows(original);
  const auto may_be_kept = [&](const Op& op) {
    const SignatureFacts& of_op = signatures.Of(op);
    return MayBeKept(op, of_op) && !(has_rows && TellsRowsApart(op, of_op));
  };
  // Sub-blocks must be unchanged.
  for (int block = 1; block < original.num_blocks(); ++block) {
    if (block >= program.num_blocks() ||
        !AreSame(original.block(block), original, program.block(block), program)) {
      return;
    }
    for (OpId id : program.block(block).ops()) {
      if (!may_be_kept(program.op(id))) return;
      state_[id.value()] = State::kKept;
      kept_[id.value()] = true;
    }
  }
  const absl::Span<const OpId> before = original.block(0).ops();
  std::vector<OpId> inserted;  // after the last kept op
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const bool is_kept =
        original_ops_ < before.size() && AreSame(original.op(before[original_ops_]), op);
    if (is_kept) {
      if (!may_be_kept(op)) return;
      for (OpId between : inserted) state_[between.value()] = State::kInserted;
      state_[id.value()] = State::kKept;
      kept_[id.value()] = true;
      ++original_ops_;
      program_ops_ += inserted.size() + 1;
      inserted.clear();
    } else {
      if (!MayBeInserted(op, signatures.Of(op), original)) return;
      // The prefix ends before ops that follow the last kept op: they may average parameters.
      inserted.push_back(id);
    }
  }
}

bool UnchangedPrefix::IsConfirmedBy(const RankValues& values) const {
  const RankEvents& events = values.events();
  const auto confirms = [&](const auto& event) { return Confirms(event); };
  return absl::c_all_of(events.exchanges, confirms) && absl::c_all_of(events.scales, confirms) &&
         absl::c_all_of(events.conditions, [&](const RankCondition& condition) {
           return condition.variable.valid() || state_[condition.op.value()] == State::kAfter;
         });
}

bool UnchangedPrefix::Confirms(const RankExchange& exchange) const {
  const RankValue& value = exchange.value;
  return state_[exchange.op.value()] == State::kAfter ||
         value.placement == RankValue::Placement::kReplicated ||
         (value.placement == RankValue::Placement::kLocal && value.is_gradient && value.is_summed);
}

bool UnchangedPrefix::Confirms(const RankScale& scale) const {
  if (state_[scale.op.value()] != State::kInserted) return true;
  // Exact in single precision, so that the errors of many divisions do not accumulate.
  const float factor = static_cast<float>(program_.op(scale.op).FloatAttr("scale").value_or(1));
  return scale.divides && factor == 1 / std::round(1 / factor);
}

}  // namespace weft
