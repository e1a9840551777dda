#include "ops/analysis/values/signature_facts.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/second_gradients.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/setting.h"

namespace weft {
namespace {

// Of recurrent_grad: the scopes of the steps, which are no gradient.
constexpr char kScopesSlot[] = "step_scopes@GRAD";

OpSignature::Slot FindSlot(const Program& program, const std::vector<OpSignature::Slot>& slots,
                           absl::string_view name) {
  for (const OpSignature::Slot& slot : slots) {
    if (program.name(slot.name) == name) return slot;
  }
  return OpSignature::Slot();
}

// Whether the outputs of a backward op are linear in an input slot.
bool IsGradient(const Op& op, absl::string_view slot) {
  const SecondGradient* second = FindSecondGradient(op.type());
  if (second == nullptr) return absl::EndsWith(slot, kGradSuffix);
  return slot == second->ddx || slot == second->ddy;
}

// The input slot whose gradients an output slot has; empty: none.
std::string GradientOf(const Op& op, absl::string_view slot) {
  if (const SecondGradient* second = FindSecondGradient(op.type())) {
    if (slot == second->dx) return second->x;
    if (slot == second->dy) return second->y;
    return slot == second->ddout ? second->dout : "";
  }
  return absl::ConsumeSuffix(&slot, kGradSuffix) ? std::string(slot) : "";
}

}  // namespace

SignatureFacts MakeSignatureFacts(const Op& op, const OpAssumptions& assumptions) {
  const Program& program = op.program();
  const OpSignature& signature = op.signature();
  SignatureFacts facts;
  const OpSchema* schema = FindOpSchema(op.type());
  facts.schema = schema;
  facts.algebra = AlgebraOf(op, schema);
  const auto has = [&](Trait trait) { return schema != nullptr && schema->Has(trait); };
  facts.is_elementwise = has(Trait::kElementwise);
  facts.is_linear = has(Trait::kLinear);
  const OpAssumption* assumed =
      schema == nullptr ? FindAssumption(assumptions, op.type()) : nullptr;
  // Algebra::kBackward says what gradient ops are.
  if (assumed != nullptr && assumed->IsFunction() && facts.algebra != Algebra::kBackward) {
    facts.assumption = *assumed;
    facts.algebra = Algebra::kNone;
    facts.is_elementwise = assumed->is_elementwise;
    facts.is_linear = assumed->is_linear;
  }
  if (facts.algebra == Algebra::kAdd || facts.algebra == Algebra::kSubtract ||
      facts.algebra == Algebra::kMultiply || facts.algebra == Algebra::kDivide) {
    const OpSignature::Slot x = FindSlot(program, signature.inputs, "X");
    const OpSignature::Slot y = FindSlot(program, signature.inputs, "Y");
    facts.x = x.first;
    facts.y = y.first;
    if (x.count != 1 || y.count != 1 || signature.num_input_args != 2) {
      facts.algebra = Algebra::kNone;
      facts.is_linear = false;
    }
  }
  if (facts.algebra == Algebra::kCopy) facts.x = FindSlot(program, signature.inputs, "X").first;
  if (HandsOutData(op.type())) {
    facts.kind = SignatureFacts::Kind::kFeed;
  } else if (IsFetch(op.type()) || has(Trait::kStreamSync) || has(Trait::kRingSetup)) {
    facts.kind = SignatureFacts::Kind::kIgnored;
  } else if (has(Trait::kCollective)) {
    facts.kind = SignatureFacts::Kind::kCollective;
  } else if (has(Trait::kAlias)) {
    facts.kind = SignatureFacts::Kind::kFuse;
  } else if (has(Trait::kBranch)) {
    facts.kind = SignatureFacts::Kind::kBranch;
  } else if (has(Trait::kBlockGrad)) {
    facts.kind = SignatureFacts::Kind::kBlockGrad;
  } else if (std::any_of(signature.attrs.begin(), signature.attrs.end(),
                         [](const OpSignature::Attr& attr) {
                           return attr.type == pb::BLOCK || attr.type == pb::BLOCKS;
                         })) {
    facts.kind = SignatureFacts::Kind::kOpaqueBlock;
  }
  facts.param_out = FindSlot(program, signature.outputs, "ParamOut");
  if (facts.param_out.count > 0) {
    facts.param = FindSlot(program, signature.inputs, "Param");
    facts.grad = FindSlot(program, signature.inputs, "Grad");
    facts.master_out = FindSlot(program, signature.outputs, "MasterParamOut");
  }
  facts.is_operand.resize(signature.num_input_args, true);
  if (facts.algebra == Algebra::kBackward || facts.algebra == Algebra::kMove) {
    // Two parts that are merged are in slots of their own, and X only has their type.
    const bool merges = FindSlot(program, signature.inputs, "InTrue").count > 0;
    const auto is_moved = [&](absl::string_view slot) {
      return merges ? slot == "InTrue" || slot == "InFalse" : slot == "X" || slot == "Y";
    };
    for (const OpSignature::Slot& slot : signature.inputs) {
      const bool is_operand =
          facts.algebra == Algebra::kMove
              ? is_moved(program.name(slot.name))
              : IsGradient(op, program.name(slot.name)) && program.name(slot.name) != kScopesSlot;
      for (uint32_t i = 0; i < slot.count; ++i) facts.is_operand[slot.first + i] = is_operand;
    }
  }
  if (facts.algebra == Algebra::kSparsify) {
    facts.is_residual.resize(signature.num_input_args, false);
    const OpSignature::Slot residual = FindSlot(program, signature.inputs, "Residual");
    for (uint32_t i = 0; i < residual.count; ++i) facts.is_residual[residual.first + i] = true;
  }
  facts.keeps_outputs = has(Trait::kKeepsOutputs);
  if (facts.keeps_outputs) facts.is_operand.resize(signature.num_args, true);
  const uint32_t num_outputs = signature.num_args - signature.num_input_args;
  facts.forward_input.resize(num_outputs, -1);
  facts.is_left.resize(num_outputs, false);
  facts.in_place_of.resize(num_outputs, -1);
  for (const OpSignature::Slot& slot : signature.outputs) {
    const uint32_t first = slot.first - signature.num_input_args;
    const auto link = [&](absl::string_view input_slot, std::vector<int>* inputs) {
      if (input_slot.empty()) return;
      const OpSignature::Slot in = FindSlot(program, signature.inputs, input_slot);
      for (uint32_t i = 0; i < std::min(slot.count, in.count); ++i) {
        (*inputs)[first + i] = static_cast<int>(in.first + i);
      }
    };
    link(GradientOf(op, program.name(slot.name)), &facts.forward_input);
    const SlotSchema* out =
        schema == nullptr ? nullptr : schema->FindOutput(program.name(slot.name));
    if (out == nullptr) continue;
    for (uint32_t i = 0; i < slot.count; ++i) facts.is_left[first + i] = out->unwritten;
    link(out->in_place_of, &facts.in_place_of);
  }
  if (facts.algebra == Algebra::kBackward) {
    const OpSchema* const forward = FindOpSchema(absl::StripSuffix(op.type(), "_grad"));
    facts.reads_dims = forward != nullptr && forward->Has(Trait::kLinear);
  }
  return facts;
}

SignatureTable::SignatureTable(const Program& program) : by_signature_(program.num_signatures()) {
  const OpAssumptions assumptions = AssumptionsOf(program);
  std::vector<bool> is_made(program.num_signatures(), false);
  for (const Op& op : AllOps(program)) {
    SignatureFacts& facts = by_signature_[op.signature_id()];
    if (!is_made[op.signature_id()]) {
      facts = MakeSignatureFacts(op, assumptions);
      is_made[op.signature_id()] = true;
    } else if (facts.schema == nullptr && !facts.assumption.IsFunction() &&
               AlgebraOf(op, nullptr) != facts.algebra) {
      exceptions_.emplace(op.id(), MakeSignatureFacts(op));
    }
  }
}

}  // namespace weft
