#include "transpiler/verify/unchanged_prefix.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/rank_recipe.h"
#include "ops/schema/algebra.h"
#include "ops/schema/communication_ops.h"

namespace weft {
namespace {

using Kind = RankRecipe::Kind;

bool AreSame(const Op& a, const Op& b) {
  const absl::string_view x = a.bytes(), y = b.bytes();
  return x.size() == y.size() && (x.data() == y.data() || x == y);
}

// Its variables, too: one that is declared in a block hides that of the block around.
bool AreSame(const Block& a, const Program& in_a, const Block& b, const Program& in_b) {
  if (a.parent_idx() != b.parent_idx() || a.ops().size() != b.ops().size() ||
      a.vars().size() != b.vars().size()) {
    return false;
  }
  for (size_t i = 0; i < a.vars().size(); ++i) {
    if (in_a.var(a.vars()[i]).bytes() != in_b.var(b.vars()[i]).bytes()) return false;
  }
  for (size_t i = 0; i < a.ops().size(); ++i) {
    if (!AreSame(in_a.op(a.ops()[i]), in_b.op(b.ops()[i]))) return false;
  }
  return true;
}

// What ops of one signature have to do with the prefix.
class SignatureRecipes {
 public:
  explicit SignatureRecipes(const Program& program) : recipes_(program.num_signatures()) {}

  const RankRecipe& Recipe(const Op& op) {
    RankRecipe& recipe = recipes_[op.signature_id()];
    if (!recipe.is_made) recipe = MakeRankRecipe(op);
    return recipe;
  }
  // Ops that carry on a power of the number of ranks: no values of other ranks, buffers or loops.
  bool MayBeKept(const Op& op) {
    switch (Recipe(op).kind) {
      case Kind::kCollective:
      case Kind::kFuse:
      case Kind::kOpaqueBlock:
      case Kind::kBlockGrad:
        return false;
      case Kind::kIgnored:
      case Kind::kFeed:
      case Kind::kBranch:
      case Kind::kFunction:
        return true;
    }
    return false;
  }

 private:
  std::vector<RankRecipe> recipes_;
};

bool IsInPlace(const Op& op) {
  const absl::Span<const Symbol> in = op.Input("X"), out = op.Output("Out");
  return !in.empty() && in == out && in.size() == op.input_args().size() &&
         out.size() == op.output_args().size();
}

// An op that is not in the original, and leaves its variables what they are but for reductions
// over ranks and factors. Whether those are what they have to be is for the observer to see.
bool MayBeInserted(const Op& op, const RankRecipe& recipe, const Program& original) {
  const Program& program = op.program();
  const auto is_new = [&](Symbol name) {
    return !original.block(0).FindVar(program.name(name)).valid();
  };
  switch (recipe.kind) {
    case Kind::kIgnored:
      return true;
    case Kind::kCollective:
      return recipe.collective->kind == CollectiveKind::kAllReduce &&
             (recipe.collective->reduction == Reduction::kSum ||
              recipe.collective->reduction == Reduction::kAvg) &&
             IsInPlace(op);
    case Kind::kFuse: {
      const absl::Span<const Symbol> buffer = op.Output("FusedOutput");
      return op.Input("Input") == op.Output("Output") &&
             !op.BoolAttr("set_constant").value_or(false) &&
             std::all_of(buffer.begin(), buffer.end(), is_new);
    }
    case Kind::kFunction:
      return recipe.algebra == Algebra::kScale && op.FloatAttr("bias").value_or(0) == 0 &&
             IsInPlace(op);
    case Kind::kFeed:
    case Kind::kBranch:
    case Kind::kOpaqueBlock:
    case Kind::kBlockGrad:
      return false;
  }
  return false;
}

}  // namespace

UnchangedPrefix::UnchangedPrefix(const Program& original, const Program& program)
    : state_(program.op_id_limit(), State::kAfter), kept_(program.op_id_limit(), false) {
  SignatureRecipes signatures(program);
  // Blocks that ops of the prefix run have to be kept as a whole.
  for (int block = 1; block < original.num_blocks(); ++block) {
    if (block >= program.num_blocks() ||
        !AreSame(original.block(block), original, program.block(block), program)) {
      return;
    }
    for (OpId id : program.block(block).ops()) {
      if (!signatures.MayBeKept(program.op(id))) return;
      state_[id.value()] = State::kKept;
      kept_[id.value()] = true;
    }
  }
  const absl::Span<const OpId> before = original.block(0).ops();
  std::vector<OpId> inserted;  // after the last op that was kept
  for (OpId id : program.block(0).ops()) {
    const Op op = program.op(id);
    const bool is_kept =
        original_ops_ < before.size() && AreSame(original.op(before[original_ops_]), op);
    if (is_kept) {
      if (!signatures.MayBeKept(op)) return;
      for (OpId between : inserted) state_[between.value()] = State::kInserted;
      state_[id.value()] = State::kKept;
      kept_[id.value()] = true;
      ++original_ops_;
      program_ops_ += inserted.size() + 1;
      inserted.clear();
    } else {
      if (!MayBeInserted(op, signatures.Recipe(op), original)) return;
      // After all kept ops these may be the averages of LocalSGD, which the prefix ends before.
      inserted.push_back(id);
    }
  }
}

void UnchangedPrefix::OnCollective(const Op& op, Symbol variable, const RankValue& in) {
  if (state_[op.id().value()] == State::kAfter) return;
  const bool is_gradient =
      in.placement == RankValue::Placement::kLocal && in.is_gradient && in.is_summed;
  if (in.placement != RankValue::Placement::kReplicated && !is_gradient) is_valid_ = false;
}

void UnchangedPrefix::OnScale(const Op& op, bool divides) {
  if (state_[op.id().value()] != State::kInserted) return;
  // As exact as single precision is: many divisions must not add up to another number.
  const float scale = static_cast<float>(op.FloatAttr("scale").value_or(1));
  if (!divides || scale != 1 / std::round(1 / scale)) is_valid_ = false;
}

void UnchangedPrefix::OnOpaqueBlock(const Op& op) {
  if (state_[op.id().value()] != State::kAfter) is_valid_ = false;
}

}  // namespace weft
