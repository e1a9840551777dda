#include "transpiler/passes/support/properties.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/analysis/core/communication.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/program_facts.h"
#include "ops/analysis/core/updates.h"
#include "ops/analysis/training/gradients.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/op_assumptions.h"
#include "proto/op_role.h"
#include "proto/setting.h"
#include "proto/untranslated_op.h"

namespace weft {
namespace {

// Whether an unregistered op may communicate a variable: it names a ring, or it rewrites the
// variable, or the variable is a gradient that a backward op reads. Every backward op reads the
// parameters that it differentiates. Unregistered clipping and updates (role optimize) come after
// the reduction.
bool MayCommunicate(const Op& op, Symbol symbol, bool is_gradient,
                    const Communications& communications, const OpAssumptions& assumptions) {
  if (communications.Of(op) != Communication::kNone) return true;
  if (FindAssumption(assumptions, op.type()) != nullptr) return false;
  if (IsOptimize(op)) return false;
  return absl::c_linear_search(op.input_args(), symbol) &&
         ((is_gradient && IsBackward(op)) || absl::c_linear_search(op.output_args(), symbol));
}

// Combines the values of the ranks, unlike a collective with a root.
bool Combines(const OpSchema& schema) {
  return schema.Has(Trait::kCollective) && schema.FindAttr("root") == nullptr;
}

// Whether what the op makes of a marked variable counts as marked, too. Equal for all ops of a
// signature.
bool Forwards(const Op& op, const OpSchema* schema) {
  if (schema == nullptr) return false;
  const Algebra algebra = AlgebraOf(op, schema);
  return schema->Has(Trait::kAlias) || algebra == Algebra::kCast || algebra == Algebra::kSparsify;
}

// Names the first op that combines a marked variable, a buffer that shares its storage, or what is
// sent of it, over ranks; if there is none, the first unregistered op that may do so, and sets
// `is_assumed`.
std::string Evidence(const ProgramFacts& facts, bool are_gradients, std::vector<bool> is_marked,
                     bool* is_assumed) {
  std::string assumed;
  const Program& program = facts.program();
  const OpTraits& traits = facts.Get<OpTraits>();
  std::vector<absl::optional<bool>> forwards_of(program.num_signatures());
  for (const Op& op : AllOps(program)) {
    const OpSchema* schema = traits.SchemaOf(op);
    absl::optional<bool>& forwards_or_none = forwards_of[op.signature_id()];
    if (!forwards_or_none.has_value()) forwards_or_none = Forwards(op, schema);
    const bool forwards = *forwards_or_none;
    if (schema != nullptr && !Combines(*schema) && !forwards) continue;
    for (Symbol symbol : op.args()) {
      if (!is_marked[symbol.value()]) continue;
      if (schema == nullptr) {
        if (!assumed.empty() ||
            !MayCommunicate(op, symbol, are_gradients, facts.Get<Communications>(),
                            facts.Get(AssumptionsOf))) {
          continue;
        }
        assumed =
            absl::StrCat(op.DebugName(), ", an unregistered op, takes ", program.name(symbol),
                         " and may reduce it; if it does not communicate, pass option:assume '",
                         op.type(), ": no_communication'", UntranslatedOpAdvice(op.type()));
        continue;
      }
      if (Combines(*schema)) return absl::StrCat(op.DebugName(), " takes ", program.name(symbol));
      for (Symbol alias : op.output_args()) is_marked[alias.value()] = true;
      break;
    }
  }
  *is_assumed = !assumed.empty();
  return assumed;
}

// Ops of the backward pass that put gradients into buffers and take them out, scale them and sum
// them.
bool MovesValues(const Op& op) {
  constexpr absl::string_view kTypes[] = {"assign", "cast",  "concat", "reshape2",
                                          "scale",  "split", "sum"};
  return absl::c_linear_search(kTypes, op.type());
}

// Names the last collective after which a gradient was complete, such as that of a buffer which
// was taken apart. O(arguments).
std::string EvidenceAfter(const Program& program, std::vector<bool> is_marked) {
  const absl::Span<const OpId> ops = program.block(0).ops();
  for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
    const Op op = program.op(*id);
    if (!IsBackward(op)) continue;
    const absl::Span<const Symbol> outputs = op.output_args();
    const auto* const made =
        absl::c_find_if(outputs, [&](Symbol symbol) { return is_marked[symbol.value()]; });
    if (made == outputs.end()) continue;
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema != nullptr && Combines(*schema) && FindCollectiveOp(op) != nullptr) {
      return absl::StrCat(op.DebugName(), " makes ", program.name(*made));
    }
    // Before the op, these names hold something else, unless the op reads them. A block may not
    // run.
    std::vector<Symbol> read;
    for (Symbol symbol : op.input_args()) {
      if (is_marked[symbol.value()]) read.push_back(symbol);
    }
    if (op.SubBlocks().empty()) {
      for (Symbol symbol : outputs) is_marked[symbol.value()] = false;
    }
    for (Symbol symbol : read) is_marked[symbol.value()] = true;
    if (!MovesValues(op)) continue;
    for (Symbol symbol : op.input_args()) is_marked[symbol.value()] = true;
  }
  return std::string();
}

absl::StatusOr<std::string> ReductionEvidence(const ProgramFacts& facts, bool* is_assumed) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<GradientPair> pairs, facts.Get(FindGradientPairs));
  if (pairs.empty()) return std::string();
  std::vector<bool> is_gradient(facts.program().symbols().size(), false);
  for (const GradientPair& pair : pairs) is_gradient[pair.grad.value()] = true;
  std::string evidence = Evidence(facts, /*are_gradients=*/true, is_gradient, is_assumed);
  if (!evidence.empty() && !*is_assumed) return evidence;
  std::string after = EvidenceAfter(facts.program(), std::move(is_gradient));
  if (after.empty()) return evidence;
  *is_assumed = false;
  return after;
}

std::string AverageEvidence(const ProgramFacts& facts, bool* is_assumed) {
  const std::vector<ParamUpdate>& updates = facts.Get(FindUpdates);
  if (updates.empty()) return std::string();
  std::vector<bool> is_param(facts.program().symbols().size(), false);
  for (const ParamUpdate& update : updates) {
    is_param[update.param.value()] = true;
    if (update.master.valid()) is_param[update.master.value()] = true;
  }
  return Evidence(facts, /*are_gradients=*/false, std::move(is_param), is_assumed);
}

}  // namespace

absl::StatusOr<Properties> DetectProperties(const ProgramPair& programs, bool* are_assumed) {
  Properties properties;
  const ProgramFacts of_main(*programs.main);
  bool is_reduced_assumed = false, is_averaged_assumed = false;
  WEFT_ASSIGN_OR_RETURN(std::string reduced, ReductionEvidence(of_main, &is_reduced_assumed));
  std::string averaged = AverageEvidence(of_main, &is_averaged_assumed);
  if (are_assumed != nullptr) {
    *are_assumed =
        (reduced.empty() || is_reduced_assumed) && (averaged.empty() || is_averaged_assumed);
  }
  if (!reduced.empty()) properties.emplace(kGradientsReduced, std::move(reduced));
  if (!averaged.empty()) properties.emplace(kParametersAveraged, std::move(averaged));
  return properties;
}

}  // namespace weft
