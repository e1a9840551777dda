#include "transpiler/pipeline/cluster.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {
namespace {

bool IsHostAndPort(absl::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  int port = 0;
  return colon != absl::string_view::npos && colon > 0 &&
         absl::SimpleAtoi(endpoint.substr(colon + 1), &port) && port > 0 && port < 65536 &&
         absl::c_none_of(endpoint, absl::ascii_isspace);
}

absl::Status CheckEndpoints(const std::vector<std::string>& endpoints) {
  absl::flat_hash_map<absl::string_view, size_t> ranks;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the endpoint of rank ", i, " is empty"));
    }
    if (!IsHostAndPort(endpoints[i])) {
      return absl::InvalidArgumentError(absl::StrCat("the endpoint of rank ", i,
                                                     ": expected host:port, found '",
                                                     absl::CEscape(endpoints[i]), "'"));
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
  if (current.empty()) return absl::InvalidArgumentError("the current endpoint is empty");
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

absl::Status CheckDevices(const std::vector<int>& devices) {
  if (devices.empty()) return absl::InvalidArgumentError("the list of devices is empty");
  absl::flat_hash_set<int> seen;
  for (int device : devices) {
    if (device < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the number of a device must not be negative, found ", device));
    }
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(absl::StrCat("device ", device, " is given twice"));
    }
  }
  return absl::OkStatus();
}

// None where neither endpoints nor the number of ranks are given.
absl::StatusOr<absl::optional<int>> CountTrainers(const ClusterSpec& spec, int devices) {
  const int endpoints = static_cast<int>(spec.endpoints.size());
  absl::optional<int> trainers;
  if (endpoints > 0) {
    trainers = endpoints;
  } else if (spec.nranks.has_value()) {
    trainers = *spec.nranks / devices;
  }
  if (spec.nranks.has_value() && *spec.nranks != *trainers * devices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the number of ranks is given as ", *spec.nranks,
        endpoints == 0
            ? absl::StrCat(", expected a multiple of the ", devices, " devices of each trainer")
            : absl::StrCat(", but there are ", endpoints, " endpoints"),
        endpoints > 0 && devices > 1 ? absl::StrCat(" with ", devices, " devices each") : ""));
  }
  return trainers;
}

}  // namespace

absl::StatusOr<Cluster> Cluster::Create(const ClusterSpec& spec, int min_trainers) {
  Cluster result;
  const bool has_endpoints = !spec.endpoints.empty();
  if (!has_endpoints && (spec.rank.has_value() || spec.current_endpoint.has_value())) {
    return absl::InvalidArgumentError(
        "a rank or a current endpoint is given without the endpoints of all ranks");
  }
  if (spec.devices.has_value()) WEFT_RETURN_IF_ERROR(CheckDevices(*spec.devices));
  result.devices_ = spec.devices;
  const int devices = spec.devices.has_value() ? static_cast<int>(spec.devices->size()) : 1;
  WEFT_ASSIGN_OR_RETURN(result.trainers_, CountTrainers(spec, devices));
  if (result.trainers_.has_value()) {
    result.nranks_ = *result.trainers_ * devices;
    if (*result.trainers_ < min_trainers) {
      return absl::InvalidArgumentError(
          absl::StrCat("the number of ", spec.devices.has_value() ? "trainers" : "ranks",
                       " must be at least ", min_trainers, ", found ", *result.trainers_));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckEndpoints(spec.endpoints));
  result.rank_ = spec.rank.value_or(0);
  if (result.rank_ < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rank must not be negative, found ", result.rank_));
  }
  if (has_endpoints && result.rank_ >= *result.trainers_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", result.rank_, " is out of range: expected at most ", *result.trainers_ - 1));
  }
  if (spec.current_endpoint.has_value()) {
    WEFT_RETURN_IF_ERROR(
        CheckCurrentEndpoint(spec.endpoints, *spec.current_endpoint, result.rank_));
  }
  result.endpoints_ = spec.endpoints;
  return result;
}

int Cluster::hosts() const {
  absl::flat_hash_set<absl::string_view> hosts;
  for (absl::string_view endpoint : endpoints_) {
    hosts.insert(endpoint.substr(0, endpoint.find(':')));
  }
  return static_cast<int>(hosts.size());
}

std::vector<std::string> Cluster::other_endpoints() const {
  std::vector<std::string> others = endpoints_;
  others.erase(others.begin() + rank_);
  return others;
}

}  // namespace weft
