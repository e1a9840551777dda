#include "proto/op_role.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

std::string RoleName(int role) {
  struct Bit {
    int bit;
    absl::string_view name;
  };
  static constexpr Bit kBits[] = {
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
  for (const Bit& bit : kBits) {
    if ((role & bit.bit) != 0) names.push_back(bit.name);
    rest &= ~bit.bit;
  }
  if (rest != 0) return absl::StrCat("0x", absl::Hex(static_cast<uint32_t>(role)));
  return absl::StrJoin(names, "|");
}

absl::StatusOr<std::vector<ParamGrad>> ParamGrads(const Op& op) {
  std::vector<ParamGrad> pairs;
  if (!op.has_role_vars()) return pairs;
  const absl::optional<pb::OpDesc::Attr> attr = op.FindAttr(kOpRoleVarAttr);
  const auto& names = attr->strings();
  if (names.size() % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.DebugName(), ": attribute op_role_var: expected pairs of parameter and gradient, found ",
        names.size(), " names: ", absl::StrJoin(names, ", ")));
  }
  for (int i = 0; i < names.size(); i += 2) pairs.push_back({names[i], names[i + 1]});
  return pairs;
}

}  // namespace weft
