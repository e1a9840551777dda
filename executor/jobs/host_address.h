// The addresses of hosts, so that processes find each other without being told.
#ifndef WEFT_EXECUTOR_JOBS_HOST_ADDRESS_H_
#define WEFT_EXECUTOR_JOBS_HOST_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// What a process says about its network: a name that all processes with the same network share, and
// its IPv4 addresses, but for the loopback: "NAME 10.0.0.1/24 172.17.0.1/16". One line.
std::string DescribeNetwork();

// Whether all processes share one network, and so reach each other by the loopback.
bool IsOneNetwork(const std::vector<std::string>& networks);

// The IPv4 address at which the others reach a process, given what all processes say: one in a
// subnet that all others are in, if there is any, else the first. An address that a process with
// another network has, too, is not one (such as those of container bridges). Unavailable: none is
// left.
absl::StatusOr<std::string> ChooseAddress(const std::vector<std::string>& networks, int process);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_HOST_ADDRESS_H_
