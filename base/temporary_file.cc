#include "base/temporary_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"

namespace weft {
namespace {

// What sets the names apart from those of other programs.
constexpr absl::string_view kMark = "weft";

// Short enough for any file system.
std::string TemporaryName(const std::string& target, unsigned number) {
  constexpr size_t kMaxNameBytes = 200;  // of 255, and 28 or so are added
  const size_t name = target.rfind('/') + 1;
  return absl::StrCat(target.substr(0, name), target.substr(name, kMaxNameBytes), ".", kMark, ".",
                      getpid(), ".", number, ".tmp");
}

// The process that such a name has in it; 0 for another name.
pid_t ProcessOf(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  const size_t n = parts.size();
  pid_t process;
  unsigned number;
  if (n < 5 || parts[n - 1] != "tmp" || parts[n - 4] != kMark) return 0;
  if (!absl::SimpleAtoi(parts[n - 2], &number)) return 0;
  return absl::SimpleAtoi(parts[n - 3], &process) && process > 0 ? process : 0;
}

bool IsRunning(pid_t process) { return kill(process, 0) == 0 || errno != ESRCH; }

void RemoveIfUnlocked(int directory, const char* name) {
  const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
    unlinkat(directory, name, 0);
  }
  close(fd);
}

// Those of this process, for RemoveTemporaryFiles, which may run in a signal handler: no memory is
// allocated or freed.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<bool> has_path{false};  // `path` can be read
  char path[PATH_MAX];
};
Slot slots[64];
static_assert(std::atomic<bool>::is_always_lock_free, "used in signal handlers");

// The slot; -1 where all are taken, or the path is too long for any file.
int Remember(const std::string& path) {
  if (path.size() >= sizeof(Slot::path)) return -1;
  for (size_t i = 0; i < std::size(slots); ++i) {
    Slot& slot = slots[i];
    if (slot.is_taken.exchange(true)) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.has_path = true;
    return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<TemporaryFile> CreateTemporaryFile(const std::string& target, mode_t mode) {
  static std::atomic<unsigned> counter{0};
  RemoveStaleTemporaryFiles(DirectoryOf(target));
  TemporaryFile file;
  do {
    file.path = TemporaryName(target, counter++);
    file.fd = open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (file.fd < 0 && errno == EEXIST);
  if (file.fd < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot create a file in ", DirectoryOf(target)));
  }
  // Where the file system has no locks, nobody will find this one stale.
  flock(file.fd, LOCK_EX | LOCK_NB);
  file.slot = Remember(file.path);
  return file;
}

void ForgetTemporaryFile(int slot) {
  if (slot < 0) return;
  slots[slot].has_path = false;
  slots[slot].is_taken = false;
}

void RemoveStaleTemporaryFiles(const std::string& directory) {
  DIR* const names = opendir(directory.c_str());
  if (names == nullptr) return;
  while (const dirent* entry = readdir(names)) {
    const pid_t process = ProcessOf(entry->d_name);
    if (process != 0 && !IsRunning(process)) RemoveIfUnlocked(dirfd(names), entry->d_name);
  }
  closedir(names);
}

void RemoveTemporaryFiles() {
  for (Slot& slot : slots) {
    if (slot.has_path.exchange(false)) unlink(slot.path);
  }
}

}  // namespace weft
