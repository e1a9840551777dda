// A branch with updates that runs on the host, while their parameters stay on the accelerator.
#ifndef WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_BRANCH_H_
#define WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_BRANCH_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

class OffloadBranch {
 public:
  // O(arguments of the branch).
  explicit OffloadBranch(const Op& branch);

  const Op& op() const { return op_; }

  // Empty, or which other op of the branch than `update` names the variable.
  std::string WhoElseNames(absl::string_view variable, const Op& update) const;
  // Empty, or why a variable does not have, next to the branch, the value that its ops read.
  std::string WhyUnknown(absl::string_view variable) const;

  // The branch takes variable `to` instead of `from`; empty: none.
  void Replace(const std::string& from, const std::string& to) { replaced_[from] = to; }
  // The branch also reads the variable.
  void AddInput(const std::string& variable) { added_.push_back(variable); }
  // Makes these changes to the message of the branch. O(its arguments).
  void Apply(pb::OpDesc* desc) const;

 private:
  struct Uses {
    std::vector<OpId> ops;  // that name it
    OpId writer;
  };

  const Op op_;
  absl::flat_hash_map<Symbol, Uses> uses_;
  absl::flat_hash_map<std::string, std::string> replaced_;
  std::vector<std::string> added_;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PASSES_DEVICES_OFFLOAD_BRANCH_H_
