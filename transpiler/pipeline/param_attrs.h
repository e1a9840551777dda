// What a program file cannot say about parameters.
#ifndef WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_
#define WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "transpiler/pipeline/cluster.h"

namespace weft {

// Some of the ranks, with a ring of their own.
struct RankGroup {
  std::string name;
  std::vector<int> ranks;  // ascending
  // Set by ResolveGroups: the position of the group among those that parameters have, by name. The
  // rings of groups follow those of all ranks in this order.
  int index = -1;

  friend bool operator==(const RankGroup& a, const RankGroup& b) {
    return a.name == b.name && a.ranks == b.ranks && a.index == b.index;
  }
};

struct ParamAttrs {
  // MindSpore keeps these in its Parameter objects.
  // Gradients of equal numbers may share a bucket under the policy `mindspore`; 0: never fused.
  int comm_fusion = 1;
  // Ranks hold different values of the parameter, or servers hold it: its gradient is not reduced.
  bool layerwise_parallel = false;
  bool in_shard = false;
  bool parameter_server = false;
  // The ranks that the parameter is equal on, over which its gradient is reduced. On each other
  // rank it is that rank's own. None: all ranks.
  absl::optional<RankGroup> group;

  // Of the update of the parameter, which pass param-options changes. None: as the program has it.
  absl::optional<double> lr_ratio;      // a factor of the learning rate
  absl::optional<double> weight_decay;  // 0: none

  bool HasUpdateOptions() const { return lr_ratio.has_value() || weight_decay.has_value(); }
  bool is_replicated() const { return !layerwise_parallel && !in_shard && !parameter_server; }
};

using ParamAttrsByName = std::map<std::string, ParamAttrs>;

// Names of groups are not longer.
inline constexpr size_t kMaxGroupName = 127;

// Sorts the ranks of a group. InvalidArgument: no name or a long one, no ranks, a rank that is
// negative, repeated, or not below the number of ranks.
absl::Status CheckGroup(const absl::optional<int>& nranks, RankGroup* group);

// Sorts the ranks of the groups, removes groups of all ranks, and numbers the others.
// InvalidArgument, naming parameter and group: those of CheckGroup, two groups of one name, a
// parameter that is not replicated, trainers that drive several devices.
// O(parameters * ranks of their groups).
absl::Status ResolveGroups(const Cluster& cluster, ParamAttrsByName* params);

// InvalidArgument, naming the parameter: the main program has no such variable, or one with a group
// is neither marked as a parameter nor updated by an optimizer. O(ops).
absl::Status CheckParamAttrs(const ParamAttrsByName& params, const Program& main);

// The groups that parameters have, by index. After ResolveGroups.
std::vector<RankGroup> GroupsOf(const ParamAttrsByName& params);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PARAM_ATTRS_H_
