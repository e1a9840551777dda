#include "executor/jobs/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

// The first bytes of a file of /proc; empty and errno if it cannot be read.
std::string ReadStart(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::array<char, 1024> bytes;
  const ssize_t size = read(fd, bytes.data(), bytes.size());
  const int error = errno;
  close(fd);
  errno = error;
  return size <= 0 ? std::string() : std::string(bytes.data(), size);
}

std::string ReadLink(const char* path) {
  std::array<char, 256> bytes;
  const ssize_t size = readlink(path, bytes.data(), bytes.size());
  return size <= 0 ? std::string() : std::string(bytes.data(), size);
}

struct Stat {
  char state = '?';
  uint64_t flags = 0;
  uint64_t start_time = 0;
};

// Parses /proc/PID/stat: "4711 (name) S ...". The name may have spaces and parentheses.
bool ParseStat(absl::string_view text, Stat* stat) {
  const size_t name_end = text.rfind(')');
  if (name_end == absl::string_view::npos) return false;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  // Fields 3, 9 and 22 in proc(5).
  if (fields.size() < 20 || fields[0].size() != 1) return false;
  stat->state = fields[0][0];
  return absl::SimpleAtoi(fields[6], &stat->flags) &&
         absl::SimpleAtoi(fields[19], &stat->start_time);
}

}  // namespace

ProcessIdentity ThisProcess() {
  ProcessIdentity process;
  process.pid = getpid();
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) == 0) process.hostname = name.data();
  if (process.hostname.empty()) process.hostname = "unknown";
  const std::string boot(absl::StripAsciiWhitespace(ReadStart("/proc/sys/kernel/random/boot_id")));
  const std::string pids = ReadLink("/proc/self/ns/pid");
  Stat stat;
  if (!boot.empty() && !pids.empty() && ParseStat(ReadStart("/proc/self/stat"), &stat)) {
    process.host = absl::StrCat(boot, " ", pids);
    process.start_time = stat.start_time;
  }
  return process;
}

bool IsStopped(int64_t pid) {
  Stat stat;
  return ParseStat(ReadStart(absl::StrCat("/proc/", pid, "/stat")), &stat) &&
         (stat.state == 'T' || stat.state == 't');
}

ProcessState StateOf(const ProcessIdentity& process) {
  const std::string text = ReadStart(absl::StrCat("/proc/", process.pid, "/stat"));
  if (text.empty()) {
    return errno == ENOENT || errno == ESRCH ? ProcessState::kGone : ProcessState::kUnknown;
  }
  Stat stat;
  if (!ParseStat(text, &stat)) return ProcessState::kUnknown;
  if (stat.start_time != process.start_time) return ProcessState::kGone;
  // A large process that was killed gives its memory back before it is a zombie. That takes long.
  constexpr uint64_t kExiting = 4;  // PF_EXITING of the kernel
  if ((stat.flags & kExiting) != 0) return ProcessState::kGone;
  switch (stat.state) {
    case 'T':
    case 't':
      return ProcessState::kStopped;
    case 'X':
    case 'x':
    case 'Z':
      return ProcessState::kGone;
    default:
      return ProcessState::kRunning;
  }
}

}  // namespace weft
