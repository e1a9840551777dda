#include "proto/op_role.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
std::string RoleName(int role) {
  static constexpr std::pair<int, absl::string_view> kBits[] = {
      {kRoleBackward, "backward"},
      {kRoleOptimize, "optimize"},
      {kRoleRpc, "rpc"},
      {kRoleDist, "dist"},
      {kRoleLrSched, "lr_sched"},
      {kRoleLoss, "loss"},
      {kRoleNotSpecified, "not_specified"},
  };
  if (role == kRoleForward) return "forward";
  std::vector<absl::string_view> names;
  int rest = role;
  for (const auto& [bit, name] : kBits) {
    if ((role & bit) != 0) names.push_back(name);
    rest &= ~bit;
  }
  if (rest != 0) return absl::StrCat("0x", absl::Hex(static_cast<uint32_t>(role)));
  return absl::StrJoin(names, "|");
}

absl::StatusOr<std::vector<ParamGrad>> ParamGrads(const Op& op) {
  std::vector<ParamGrad> pairs;
  if (!op.has_role_vars()) return pairs;
  const std::vector<std::string> names =
      *op.StringsAttr(kOpRoleVarAttr);  // the reader checks the type
  if (names.size() % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.DebugName(), ": attribute op_role_var: expected pairs of parameter and gradient, found ",
        names.size(), " names: ", absl::StrJoin(names, ", ")));
  }
  for (size_t i = 0; i < names.size(); i += 2) pairs.push_back({names[i], names[i + 1]});
  return pairs;
}

}  // namespace weft
