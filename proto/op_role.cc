#include "proto/op_role.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/wire_format.h"

namespace weft {
namespace {

// The strings of op_role_var where they stand in the op: decoding the attribute would take most of
// the time of finding the gradients of a large program.
std::vector<absl::string_view> RoleVars(const Op& op) {
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  size_t last = attrs.size() - 1;
  while (op.program().name(attrs[last].name) != kOpRoleVarAttr) --last;
  std::vector<absl::string_view> names;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (i != last) return true;
    constexpr uint32_t kStrings = wire::LengthDelimited(pb::OpDesc::Attr::kStringsFieldNumber);
    wire::MessageStream in(bytes);
    while (const uint32_t tag = wire::NextTag(&in)) {
      absl::string_view name;
      if (tag == kStrings && wire::ReadBytes(&in, &name)) {
        names.push_back(name);
      } else {
        wire::SkipField(&in, tag);
      }
    }
    return false;
  });
  return names;
}

}  // namespace

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
  const std::vector<absl::string_view> names = RoleVars(op);
  if (names.size() % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.DebugName(), ": attribute op_role_var: expected pairs of parameter and gradient, found ",
        names.size(), " names: ", absl::StrJoin(names, ", ")));
  }
  for (size_t i = 0; i < names.size(); i += 2) {
    pairs.push_back({std::string(names[i]), std::string(names[i + 1])});
  }
  return pairs;
}

}  // namespace weft
