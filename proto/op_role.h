// The role of an op in training (op_role), and its gradient pairs (op_role_var).
#ifndef WEFT_PROTO_OP_ROLE_H_
#define WEFT_PROTO_OP_ROLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// Bits of op_role. Paddle writes 0, 1, 2, 4, 8, 0x10, 0x100 (the op that computes the loss), 0x101
// (the op that fills the loss's gradient), 0x12 (learning-rate multipliers) and 0x1000.
inline constexpr int kRoleForward = 0x0000;
inline constexpr int kRoleBackward = 0x0001;
inline constexpr int kRoleOptimize = 0x0002;
inline constexpr int kRoleRpc = 0x0004;
inline constexpr int kRoleDist = 0x0008;
inline constexpr int kRoleLrSched = 0x0010;
inline constexpr int kRoleLoss = 0x0100;
inline constexpr int kRoleNotSpecified = 0x1000;

inline constexpr absl::string_view kOpRoleAttr = "op_role";
inline constexpr absl::string_view kOpRoleVarAttr = "op_role_var";
inline constexpr absl::string_view kGradSuffix = "@GRAD";

inline bool IsBackward(const Op& op) { return (op.role() & kRoleBackward) != 0; }
inline bool IsOptimize(const Op& op) { return (op.role() & kRoleOptimize) != 0; }
// The op that fills the gradient of a loss.
inline bool IsLossGrad(const Op& op) {
  return (op.role() & (kRoleBackward | kRoleLoss)) == (kRoleBackward | kRoleLoss);
}
// "backward", "optimize|lr_sched", "0x2000": for text and messages.
std::string RoleName(int role);

// A pair of op_role_var. The variables may be undeclared.
struct ParamGrad {
  std::string param;
  std::string grad;
};

// The pairs of an op's op_role_var, in order; empty if it has none. InvalidArgument, naming the op,
// if the number of names is odd.
absl::StatusOr<std::vector<ParamGrad>> ParamGrads(const Op& op);

}  // namespace weft

#endif  // WEFT_PROTO_OP_ROLE_H_
