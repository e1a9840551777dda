// States of which each rank has a part (sharding), as one device has them: in files, whole tensors
// stand under their own names, so that any number of ranks, and a program without shares, goes on
// with them.
#ifndef WEFT_EXECUTOR_RUN_SHARED_STATES_H_
#define WEFT_EXECUTOR_RUN_SHARED_STATES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "executor/files/checkpoint.h"
#include "ops/schema/tensor_type.h"
#include "ops/tensor.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

// Tensors are in host memory.
class SharedStates {
 public:
  using Tensors = std::map<std::string, Tensor>;
  // The value that a rank has; null: none.
  using Find = absl::FunctionRef<const Tensor*(int rank, const std::string& name)>;

  SharedStates() = default;
  // What the setting of a main program says (Setting::shares, Setting::common). The errors of
  // SettingOf; InvalidArgument, naming the variable, for a share that the program does not declare
  // as a vector of as many elements.
  static absl::StatusOr<SharedStates> Of(const Program& main);

  bool empty() const { return shares_.empty() && common_.empty(); }
  // The variables that stand for others, which are always equal.
  const std::map<std::string, std::vector<std::string>>& common() const { return common_; }
  // The variables of which ranks have parts.
  const std::map<std::string, std::vector<SharedTensor>>& shares() const { return shares_; }
  // Whether the name is that of a tensor that the program has as a part of another variable, or has
  // another variable for.
  bool Replaces(const std::string& name) const { return whole_.count(name) > 0; }
  const std::set<std::string>& whole() const { return whole_; }
  // Of these, what the program updates as parameters.
  const std::set<std::string>& parameters() const { return parameters_; }

  // Adds to `whole` the tensors that one device has, from what each of the ranks has. Leaves out
  // those of a variable without a value. FailedPrecondition, naming the variable: another number of
  // elements than the setting says. O(bytes).
  absl::Status Join(int nranks, Find find, Tensors* whole) const;
  // In a checkpoint: whole tensors in the place of shares, and back. A checkpoint that has shares
  // stays as it is. InvalidArgument, naming it, if a tensor is missing or has another type than the
  // others; of those that one variable stands for, if they differ.
  absl::Status JoinIn(Checkpoint* checkpoint) const;
  absl::Status DivideIn(int nranks, Checkpoint* checkpoint) const;

  // InvalidArgument, as CheckParam, if the tensor that a variable of the program replaces has
  // another type.
  absl::Status CheckParam(const Program& main, const std::string& name,
                          const TensorType& type) const;
  // For each master weight that `whole` lacks, the value of its parameter, if `whole` has that.
  absl::Status AddMasters(const Program& main, Tensors* whole) const;

  // Sets the elements of a rank's share that belong to tensors of `whole`; the others stay.
  // InvalidArgument, naming the tensor, for another type or number of elements.
  absl::Status Overwrite(const std::string& variable, int rank, int nranks, const Tensors& whole,
                         Tensor* share) const;
  // What a variable that stands for others gets of `whole`, if anything. InvalidArgument if two of
  // them differ, or if `whole` lacks one, which keeps the variable's current value, and that
  // differs.
  absl::StatusOr<Tensors> CommonOf(const Tensors& whole, const Tensors& current) const;
  // InvalidArgument, naming it, if a tensor that the variable holds or stands for is missing in
  // `whole`, which the message calls `what`.
  absl::Status CheckHas(const std::string& variable, const Tensors& whole,
                        absl::string_view what) const;

 private:
  std::map<std::string, std::vector<SharedTensor>> shares_;
  std::map<std::string, std::vector<std::string>> common_;
  std::set<std::string> parameters_;
  std::set<std::string> whole_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_RUN_SHARED_STATES_H_
