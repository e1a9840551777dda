// The trainers of a job and the ranks they drive.
#ifndef WEFT_TRANSPILER_PIPELINE_CLUSTER_H_
#define WEFT_TRANSPILER_PIPELINE_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace weft {

// The user's description of a job. All fields are optional; without them, the rewritten program is
// valid for any number of ranks. A trainer is a process with an endpoint. It drives one or more
// devices, and each device is a rank.
struct ClusterSpec {
  absl::optional<int> nranks;
  // One host:port per trainer, in order.
  std::vector<std::string> endpoints;
  // The trainer that the startup program is written for.
  absl::optional<int> rank;
  // Defaults to the endpoint of `rank`.
  absl::optional<std::string> current_endpoint;
  // The device numbers that each trainer drives. Default: one device each.
  absl::optional<std::vector<int>> devices;
};

// A valid ClusterSpec: empty, or with the number of ranks, or with the endpoints too.
class Cluster {
 public:
  // Number of ranks unknown.
  Cluster() = default;

  // InvalidArgument for a contradictory description: fewer than `min_trainers` trainers, a rank out
  // of range, a number of ranks other than trainers x devices, an empty or repeated endpoint, a
  // current endpoint that is empty or not among the endpoints or not at its rank, a rank or current
  // endpoint without endpoints, an empty list of devices, a negative or repeated device.
  static absl::StatusOr<Cluster> Create(const ClusterSpec& spec, int min_trainers = 2);

  // trainers x devices.
  absl::optional<int> nranks() const { return nranks_; }
  absl::optional<int> trainers() const { return trainers_; }
  // None: each trainer drives one device.
  const absl::optional<std::vector<int>>& devices() const { return devices_; }
  bool has_endpoints() const { return !endpoints_.empty(); }
  // The number of distinct hosts in the endpoints. A host is the part before the first colon.
  int hosts() const;
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  int rank() const { return rank_; }
  // Both require endpoints.
  const std::string& current_endpoint() const { return endpoints_[rank_]; }
  std::vector<std::string> other_endpoints() const;

 private:
  absl::optional<int> nranks_;
  absl::optional<int> trainers_;
  absl::optional<std::vector<int>> devices_;
  std::vector<std::string> endpoints_;
  int rank_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_CLUSTER_H_
