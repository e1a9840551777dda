#include "transpiler/pipeline/participants.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {
namespace {

absl::Status CheckEndpoints(const std::vector<std::string>& endpoints) {
  absl::flat_hash_map<absl::string_view, size_t> ranks;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the endpoint of rank ", i, " is empty"));
    }
    const auto [it, is_new] = ranks.emplace(endpoints[i], i);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("endpoint ", endpoints[i],
                                                     " is given twice: for rank ", it->second,
                                                     " and for rank ", i));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCurrentEndpoint(const std::vector<std::string>& endpoints,
                                  const std::string& current, int rank) {
  if (std::find(endpoints.begin(), endpoints.end(), current) == endpoints.end()) {
    return absl::InvalidArgumentError(absl::StrCat("current endpoint ", current,
                                                   " is not among the endpoints ",
                                                   absl::StrJoin(endpoints, ",")));
  }
  if (endpoints[rank] != current) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " has endpoint ", endpoints[rank],
                                                   ", not the current endpoint ", current));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Participants> Participants::Create(const ParticipantsSpec& spec) {
  Participants result;
  const bool has_endpoints = !spec.endpoints.empty();
  result.nranks_ = spec.nranks;
  if (has_endpoints) {
    const int count = static_cast<int>(spec.endpoints.size());
    if (spec.nranks.has_value() && *spec.nranks != count) {
      return absl::InvalidArgumentError(absl::StrCat("the number of ranks is given as ",
                                                     *spec.nranks, ", but there are ", count,
                                                     " endpoints"));
    }
    result.nranks_ = count;
  } else if (spec.rank.has_value() || !spec.current_endpoint.empty()) {
    return absl::InvalidArgumentError(
        "a rank or a current endpoint is given without the endpoints of all ranks");
  }
  if (result.nranks_.has_value() && *result.nranks_ < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the number of ranks must be at least 2, found ", *result.nranks_));
  }
  WEFT_RETURN_IF_ERROR(CheckEndpoints(spec.endpoints));
  result.rank_ = spec.rank.value_or(0);
  if (result.rank_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rank must not be negative, found ", result.rank_));
  }
  if (has_endpoints) {
    if (result.rank_ >= *result.nranks_) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", result.rank_,
                                                     " is beyond the last of ", *result.nranks_,
                                                     " ranks, ", *result.nranks_ - 1));
    }
    if (!spec.current_endpoint.empty()) {
      WEFT_RETURN_IF_ERROR(
          CheckCurrentEndpoint(spec.endpoints, spec.current_endpoint, result.rank_));
    }
  }
  result.endpoints_ = spec.endpoints;
  return result;
}

std::vector<std::string> Participants::other_endpoints() const {
  std::vector<std::string> others = endpoints_;
  others.erase(others.begin() + rank_);
  return others;
}

}  // namespace weft
