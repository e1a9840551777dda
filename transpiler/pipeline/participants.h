// Who takes part in training.
#ifndef WEFT_TRANSPILER_PIPELINE_PARTICIPANTS_H_
#define WEFT_TRANSPILER_PIPELINE_PARTICIPANTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace weft {

// As the user says it. Everything may be left out: the rewritten program is then valid for any
// number of ranks.
struct ParticipantsSpec {
  absl::optional<int> nranks;
  // One host:port per rank, in rank order; gives the number of ranks.
  std::vector<std::string> endpoints;
  // The rank that the startup program is written for.
  absl::optional<int> rank;
  // Defaults to the endpoint of `rank`.
  std::string current_endpoint;
};

// The same, checked: either nothing is known, or the number of ranks is, or the endpoints are too.
class Participants {
 public:
  // Number of ranks unknown.
  Participants() = default;

  // InvalidArgument where the description contradicts itself: fewer than 2 ranks, a negative rank
  // or one beyond the last, a number of ranks that is not that of the endpoints, an empty or
  // repeated endpoint, a current endpoint that is not among the endpoints or not at its rank, a
  // rank or current endpoint without endpoints.
  static absl::StatusOr<Participants> Create(const ParticipantsSpec& spec);

  absl::optional<int> nranks() const { return nranks_; }
  bool has_endpoints() const { return !endpoints_.empty(); }
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  int rank() const { return rank_; }
  // Both require endpoints.
  const std::string& current_endpoint() const { return endpoints_[rank_]; }
  std::vector<std::string> other_endpoints() const;

 private:
  absl::optional<int> nranks_;
  std::vector<std::string> endpoints_;
  int rank_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_PARTICIPANTS_H_
