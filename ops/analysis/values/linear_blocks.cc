#include "ops/analysis/values/linear_blocks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_args.h"
#include "ops/schema/op_schema.h"
#include "proto/op_role.h"

namespace weft {
namespace {

class LinearBlocks {
 public:
  LinearBlocks(const Program& program, const SignatureTable& signatures)
      : program_(program), signatures_(signatures) {}

  bool Check(const Op& op) {
    Enter(op);
    // A second time for values that one iteration of a loop passes to the next.
    return WalkBlocks(op) && WalkBlocks(op);
  }

  absl::flat_hash_set<Symbol> TakeMade() { return std::move(made_); }

 private:
  bool IsMade(Symbol name) const {
    return made_.contains(name) && program_.name(name) != kEmptyVarName;
  }

  // The gradients that the block gets are inputs of the op, or named in an attribute.
  void Enter(const Op& op) {
    const absl::Span<const Symbol> gradients = op.Input("Out@GRAD");
    made_.insert(gradients.begin(), gradients.end());
    for (Symbol name : op.input_args()) {
      if (absl::StrContains(program_.name(name), kGradSuffix)) made_.insert(name);
    }
    const auto enter = [&](const std::string& name) {
      const Symbol symbol = program_.FindSymbol(name);
      if (symbol.valid()) made_.insert(symbol);
    };
    if (const auto inside = op.StringsAttr("original_output_grad"))
      absl::c_for_each(*inside, enter);
    // The gradient of a state passes from step to step.
    for (const std::string& state : op.StringsAttr("states").value_or(std::vector<std::string>())) {
      enter(absl::StrCat(state, kGradSuffix));
    }
  }

  bool WalkBlocks(const Op& op) {
    return absl::c_all_of(OpsInside(op), [this](const Op& inner) { return Walk(inner); });
  }

  bool Walk(const Op& op) {
    const SignatureFacts& facts = signatures_.Of(op);
    if (facts.kind == SignatureFacts::Kind::kBlockGrad) Enter(op);
    const absl::Span<const Symbol> in = op.input_args();
    if (std::none_of(in.begin(), in.end(), [&](Symbol name) { return IsMade(name); })) return true;
    made_.insert(op.output_args().begin(), op.output_args().end());
    return IsLinear(op, facts);
  }

  bool IsLinear(const Op& op, const SignatureFacts& facts) const {
    const absl::Span<const Symbol> in = op.input_args();
    const auto num_made = std::count_if(in.begin(), in.end(), [&](Symbol s) { return IsMade(s); });
    switch (facts.algebra) {
      case Algebra::kSum:
      case Algebra::kCopy:
      case Algebra::kCast:
      case Algebra::kSplitEqual:
      case Algebra::kZeros:
        return true;
      case Algebra::kAdd:
      case Algebra::kSubtract:
        return num_made == static_cast<int64_t>(in.size());
      case Algebra::kScale:
        return in.size() == 1 && op.FloatAttr("bias").value_or(0) == 0;
      case Algebra::kMultiply:
        return num_made == 1;
      case Algebra::kDivide:
        return num_made == 1 && IsMade(in[facts.x]);
      case Algebra::kBackward:
        for (size_t i = 0; i < in.size(); ++i) {
          if (IsMade(in[i]) && !facts.is_operand[i]) return false;
        }
        return true;
      case Algebra::kMove: {
        const bool chooses = !op.Input("Y").empty();  // then, linear in both together
        for (size_t i = 0; i < in.size(); ++i) {
          if (IsMade(in[i]) ? !facts.is_operand[i] : chooses && facts.is_operand[i]) return false;
        }
        return true;
      }
      default:
        return facts.is_linear && num_made == static_cast<int64_t>(in.size());
    }
  }

  const Program& program_;
  const SignatureTable& signatures_;
  absl::flat_hash_set<Symbol> made_;  // of gradients
};

}  // namespace

absl::optional<absl::flat_hash_set<Symbol>> FollowGradients(const Op& op,
                                                            const SignatureTable& signatures) {
  LinearBlocks blocks(op.program(), signatures);
  if (!blocks.Check(op)) return absl::nullopt;
  return blocks.TakeMade();
}

}  // namespace weft
