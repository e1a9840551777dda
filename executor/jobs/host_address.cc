#include "executor/jobs/host_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

struct Address {
  uint32_t ip = 0;  // in the order of the host, as below
  uint32_t mask = 0;
};

struct Network {
  absl::string_view name;
  std::vector<Address> addresses;
};

std::string ToString(uint32_t ip) {
  return absl::StrCat(ip >> 24, ".", ip >> 16 & 255, ".", ip >> 8 & 255, ".", ip & 255);
}

Network Parse(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  Network network;
  for (const absl::string_view word : words) {
    if (network.name.empty()) {
      network.name = word;
      continue;
    }
    const std::pair<std::string, absl::string_view> parts = absl::StrSplit(word, '/');
    in_addr ip{};
    int bits = 0;
    if (inet_pton(AF_INET, parts.first.c_str(), &ip) != 1 ||
        !absl::SimpleAtoi(parts.second, &bits) || bits < 0 || bits > 32) {
      continue;
    }
    network.addresses.push_back({ntohl(ip.s_addr), bits == 0 ? 0 : ~uint32_t{0} << (32 - bits)});
  }
  return network;
}

uint32_t Ipv4(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

// Of the host and, within it, of its network namespace.
std::string NetworkName() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  if (boot.empty()) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    boot = name;
  }
  char space[256] = "";
  const ssize_t size = readlink("/proc/self/ns/net", space, sizeof space - 1);
  return absl::StrCat(boot, "/", absl::string_view(space, size > 0 ? size : 0));
}

}  // namespace

std::string DescribeNetwork() {
  std::string text = NetworkName();
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return text;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const bool is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    const uint32_t mask = i->ifa_netmask == nullptr ? ~uint32_t{0} : Ipv4(i->ifa_netmask);
    absl::StrAppend(&text, " ", ToString(Ipv4(i->ifa_addr)), "/", __builtin_popcount(mask));
  }
  return text;
}

bool IsOneNetwork(const std::vector<std::string>& networks) {
  const std::string first(Parse(networks[0]).name);
  return absl::c_all_of(networks,
                        [&](const std::string& text) { return Parse(text).name == first; });
}

absl::StatusOr<std::string> ChooseAddress(const std::vector<std::string>& networks, int process) {
  const Network mine = Parse(networks[process]);
  const Address* chosen = nullptr;
  for (const Address& address : mine.addresses) {
    bool is_own = true;
    bool is_near_all = true;
    for (const std::string& text : networks) {
      const Network other = Parse(text);
      if (other.name == mine.name) continue;
      bool is_near = false;
      for (const Address& a : other.addresses) {
        if (a.ip == address.ip) is_own = false;
        if ((a.ip & address.mask) == (address.ip & address.mask)) is_near = true;
      }
      is_near_all = is_near_all && is_near;
    }
    if (!is_own) continue;
    if (chosen == nullptr) chosen = &address;
    if (is_near_all) {
      chosen = &address;
      break;
    }
  }
  if (chosen == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("process ", process, " has no IPv4 address for other hosts: ",
                     mine.addresses.empty() ? "only the loopback is up"
                                            : "other hosts have the same addresses"));
  }
  return ToString(chosen->ip);
}

}  // namespace weft
