#include "proto/formats/pir/roles.h"

#include <algorithm>

#include "proto/formats/pir/dataflow.h"
#include "proto/op_role.h"

namespace weft::pir {
namespace {

// What depends on the gradient of a loss is backward; what depends on a complete gradient of a
// parameter updates.
void FollowGradients(const Document& document, uint32_t first_seed,
                     const std::vector<bool>& depends_on_loss, Training* training) {
  std::vector<bool> depends_on_gradient(document.values().size(), false);
  for (const Training::Pair& pair : training->pairs) depends_on_gradient[pair.grad] = true;
  std::vector<bool> updates(document.ops().size(), false);
  for (const Training::Pair& update : training->updates) updates[update.op] = true;
  for (uint32_t i = first_seed; i < document.ops().size(); ++i) {
    if ((training->roles[i] & kRoleLoss) != 0) continue;
    const bool is_update = updates[i] || ReadsAny(document, i, depends_on_gradient);
    const bool is_backward = ReadsAny(document, i, depends_on_loss);
    const DocumentOp& op = document.op(i);
    for (uint32_t r = 0; is_update && r < op.num_results; ++r) {
      depends_on_gradient[op.first_result + r] = true;
    }
    if (is_update || is_backward) training->roles[i] = is_update ? kRoleOptimize : kRoleBackward;
  }
}

// Ops that depend on no loss and that only updates read belong to these: constants, decay, and
// before the loss the learning rate.
void AssignTheRest(const Document& document, uint32_t first_seed, Training* training) {
  std::vector<char> read_by_update(document.values().size(), 0),
      read_by_other(document.values().size(), 0);
  for (uint32_t i = document.ops().size(); i-- > 0;) {
    const DocumentOp& op = document.op(i);
    bool only_updates = false, others = false;
    for (uint32_t r = 0; r < op.num_results; ++r) {
      only_updates = only_updates || read_by_update[op.first_result + r] != 0;
      others = others || read_by_other[op.first_result + r] != 0;
    }
    int& role = training->roles[i];
    if (role == kRoleForward && op.num_results > 0) {
      const bool is_behind = i > first_seed;
      if (only_updates && !others) {
        role = is_behind ? kRoleOptimize : kRoleLrSched;
      } else if (is_behind && (only_updates || others)) {
        role = kRoleBackward;
      }
    }
    const bool updates = (role & (kRoleOptimize | kRoleLrSched)) != 0;
    for (const Operand& operand : document.operands(op)) {
      if (operand.value != kNoValue) (updates ? read_by_update : read_by_other)[operand.value] = 1;
    }
  }
}

// Ops in blocks have the role of the op around them.
void AssignBlocks(const Document& document, Training* training) {
  for (uint32_t i = 0; i < document.ops().size(); ++i) {
    if (document.op(i).num_blocks == 0) continue;
    const int role = training->roles[i] & ~kRoleLoss;
    const auto begin = training->roles.begin();
    std::fill(begin + i + 1, begin + document.EndOf(i), role);
  }
}

}  // namespace

void AssignRoles(const Document& document, uint32_t first_seed,
                 const std::vector<bool>& depends_on_loss, Training* training) {
  FollowGradients(document, first_seed, depends_on_loss, training);
  AssignTheRest(document, first_seed, training);
  AssignBlocks(document, training);
}

}  // namespace weft::pir
