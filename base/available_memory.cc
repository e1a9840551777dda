#include "base/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::string Contents(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  return contents.str();
}

// The number that follows `key` in a file of lines "key number ..."; with an empty key, the only
// number of the file.
uint64_t NumberIn(const std::string& path, absl::string_view key, uint64_t otherwise) {
  for (absl::string_view line : absl::StrSplit(Contents(path), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const size_t at = key.empty() ? 0 : 1;
    uint64_t number = 0;
    if (words.size() > at && (at == 0 || words[0] == key) && absl::SimpleAtoi(words[at], &number)) {
      return number;
    }
  }
  return otherwise;
}

uint64_t DifferenceOrZero(uint64_t limit, uint64_t used) {
  if (limit == kUnlimited) return kUnlimited;
  return limit > used ? limit - used : 0;
}

uint64_t LeftByMachine(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const uint64_t available = NumberIn(path, "MemAvailable:", kUnlimited);
  if (available == kUnlimited) return kUnlimited;
  return (available + NumberIn(path, "SwapFree:", 0)) * 1024;
}

// The files of control groups, by version.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat: the kernel takes it back before it refuses
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file"};

// The rest of the limits of a group and of its ancestors. In a container, the mount often begins at
// the group itself; then only the last iteration finds files.
uint64_t LeftByGroups(const std::string& root, const GroupFiles& files, std::string group) {
  uint64_t left = kUnlimited;
  while (true) {
    const std::string directory = absl::StrCat(root, files.mount, group, "/");
    const uint64_t usage = NumberIn(directory + files.usage, "", 0);
    const uint64_t reclaimable = NumberIn(directory + "memory.stat", files.reclaimable, 0);
    const uint64_t limit = NumberIn(directory + files.limit, "", kUnlimited);
    left = std::min(left, DifferenceOrZero(limit, DifferenceOrZero(usage, reclaimable)));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return left;
    group.resize(slash);
  }
}

uint64_t LeftByGroups(const std::string& root) {
  uint64_t left = kUnlimited;
  // Lines "id:controllers:group"; version 2 has no controllers.
  for (absl::string_view line : absl::StrSplit(Contents(root + "/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
    const bool is_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (!is_memory && !parts[1].empty()) continue;
    left = std::min(left, LeftByGroups(root, is_memory ? kVersion1 : kVersion2, parts[2]));
  }
  return left;
}

uint64_t LeftByAddressSpace(const std::string& root) {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const uint64_t pages = NumberIn(root + "/proc/self/statm", "", 0);
  return DifferenceOrZero(limit.rlim_cur, pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  return std::min({LeftByMachine(root), LeftByGroups(root), LeftByAddressSpace(root)});
}

absl::Status CheckFitsMemory(absl::string_view what, uint64_t bytes, uint64_t available) {
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, " takes ", bytes >> 20, " MiB, but only ",
                                                   available >> 20,
                                                   " MiB of memory are available"));
}

}  // namespace weft
