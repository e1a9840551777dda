#include "drop_attr.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/rewriter.h"

namespace embed {
namespace {

weft::pb::OpDesc Without(weft::pb::OpDesc op, const std::string& name) {
  auto* attrs = op.mutable_attrs();
  attrs->erase(std::remove_if(attrs->begin(), attrs->end(),
                              [&](const auto& attr) { return attr.name() == name; }),
               attrs->end());
  return op;
}

// Returns how many ops changed.
absl::StatusOr<int> Drop(weft::Program* program, const std::string& name) {
  weft::Rewriter rewriter(program);
  int changed = 0;
  for (const weft::Op& op : weft::AllOps(*program)) {
    if (!op.HasAttr(name)) continue;
    rewriter.Replace(op.id(), Without(op.ToProto(), name));
    ++changed;
  }
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return changed;
}

}  // namespace

void DropAttr::Options::Bind(weft::OptionBinder& bind) {
  bind.String("attr", &attr, "name of the attribute");
}

absl::StatusOr<bool> DropAttr::Run(const weft::PassContext& context,
                                   weft::ProgramPair& programs) const {
  if (options_.attr == weft::kOpRoleAttr || options_.attr == weft::kOpRoleVarAttr) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute ", options_.attr, " defines training and must stay"));
  }
  WEFT_ASSIGN_OR_RETURN(int changed, Drop(programs.main, options_.attr));
  if (programs.startup != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const int in_startup, Drop(programs.startup, options_.attr));
    changed += in_startup;
  }
  context.sink.Explain(kName, options_.attr, "removed", "as asked",
                       {{"ops", absl::StrCat(changed)}});
  return changed > 0;
}

}  // namespace embed
