#include "transpiler/passes/devices/offload_branch.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace weft {

OffloadBranch::OffloadBranch(const Op& branch) : op_(branch) {
  for (int block : branch.SubBlocks()) {
    for (OpId id : branch.program().block(block).ops()) {
      const Op op = branch.program().op(id);
      for (Symbol name : op.args()) {
        std::vector<OpId>& ops = uses_[name].ops;
        if (ops.empty() || ops.back() != id) ops.push_back(id);
      }
      for (Symbol name : op.output_args()) uses_[name].writer = id;
    }
  }
}

std::string OffloadBranch::WhoElseNames(absl::string_view variable, const Op& update) const {
  const auto uses = uses_.find(op_.program().FindSymbol(variable));
  if (uses == uses_.end()) return "";
  for (OpId id : uses->second.ops) {
    if (id != update.id()) return op_.program().op(id).DebugName();
  }
  return "";
}

std::string OffloadBranch::WhyUnknown(absl::string_view variable) const {
  const Symbol name = op_.program().FindSymbol(variable);
  if (!op_.program().block(op_.block()).FindVar(name).valid()) return "is a variable of the branch";
  const auto uses = uses_.find(name);
  if (uses == uses_.end() || !uses->second.writer.valid()) return "";
  return absl::StrCat(op_.program().op(uses->second.writer).DebugName(), " computes in the branch");
}

void OffloadBranch::Apply(pb::OpDesc* desc) const {
  const auto replace = [&](auto* slots) {
    for (pb::OpDesc::Var& slot : *slots) {
      const std::vector<std::string> names(slot.arguments().begin(), slot.arguments().end());
      slot.clear_arguments();
      for (const std::string& name : names) {
        const auto found = replaced_.find(name);
        const std::string& named = found == replaced_.end() ? name : found->second;
        if (!named.empty()) slot.add_arguments(named);
      }
    }
  };
  replace(desc->mutable_inputs());
  replace(desc->mutable_outputs());
  for (pb::OpDesc::Var& slot : *desc->mutable_inputs()) {
    if (slot.parameter() != "Input") continue;
    absl::flat_hash_set<std::string> named(slot.arguments().begin(), slot.arguments().end());
    for (const std::string& name : added_) {
      if (named.insert(name).second) slot.add_arguments(name);
    }
  }
}

}  // namespace weft
