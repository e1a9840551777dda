// The trainers of a job, and the ranks that they drive.
#ifndef WEFT_TRANSPILER_PIPELINE_CLUSTER_H_
#define WEFT_TRANSPILER_PIPELINE_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace weft {

// As the user says it. Everything may be left out: the rewritten program is then valid for any
// number of ranks. A trainer is a process with an endpoint; it drives one device or several, each
// of which is a rank.
struct ClusterSpec {
  absl::optional<int> nranks;
  // One host:port per trainer, in their order; gives the number of trainers.
  std::vector<std::string> endpoints;
  // The trainer that the startup program is written for.
  absl::optional<int> rank;
  // Defaults to the endpoint of `rank`.
  std::string current_endpoint;
  // The devices that each trainer drives, by their numbers. Not given: one device each.
  absl::optional<std::vector<int>> devices;
};

// The fields that are given, by name: {"nranks", "devices"}.
std::vector<std::string> NamesOfGiven(const ClusterSpec& spec);

// The same, checked: either nothing is known, or the number of ranks is, or the endpoints are too.
class Cluster {
 public:
  // Number of ranks unknown.
  Cluster() = default;

  // InvalidArgument where the description contradicts itself: fewer than `min_trainers` trainers, a
  // negative rank or one beyond the last, a number of ranks that is not trainers x devices, an
  // empty or repeated endpoint, a current endpoint that is not among the endpoints or not at its
  // rank, a rank or current endpoint without endpoints, no device, a negative or repeated one.
  static absl::StatusOr<Cluster> Create(const ClusterSpec& spec, int min_trainers = 2);

  // trainers x devices.
  absl::optional<int> nranks() const { return nranks_; }
  absl::optional<int> trainers() const { return trainers_; }
  // None: not given; each trainer then drives one.
  const absl::optional<std::vector<int>>& devices() const { return devices_; }
  bool has_endpoints() const { return !endpoints_.empty(); }
  // How many different hosts (what precedes the first colon) the endpoints have.
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
