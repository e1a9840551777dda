#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/annotate.h"
#include "base/mapped_files.h"
#include "base/status_macros.h"
#include "base/temporary_files.h"
#include "base/uncached_write.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Files from this size on bypass the page cache: through it, reading and rewriting a program of 300
// MiB takes 1.27 times as long, and 1.5 times the processor time.
constexpr size_t kUncachedBytes = 64 << 20;

absl::Status SystemError(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

// The most that is read from a pipe or another stream of unknown length.
constexpr size_t kMaxStreamBytes = size_t{1} << 31;

// Closes a descriptor that was only read.
struct FdCloser {
  int fd;
  ~FdCloser() {
    if (fd > STDERR_FILENO) close(fd);
  }
};

absl::StatusOr<FileBytes> Map(const std::string& path, int fd, size_t size) {
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return SystemError("cannot map the file");
  auto named = std::make_shared<const MappedFile>(path, data, size);
  std::shared_ptr<const void> owner(data, [size, named](const void* p) mutable {
    named = nullptr;
    munmap(const_cast<void*>(p), size);
  });
  return FileBytes{std::move(owner), absl::string_view(static_cast<const char*>(data), size),
                   /*is_mapped=*/true};
}

absl::StatusOr<FileBytes> ReadToEnd(int fd, size_t max_bytes) {
  max_bytes = std::min(max_bytes, kMaxStreamBytes);
  auto bytes = std::make_shared<std::string>();
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("cannot read");
    if (n == 0) break;
    if (bytes->size() + n > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", max_bytes, " bytes"));
    }
    bytes->append(buffer.data(), n);
  }
  const absl::string_view view = *bytes;
  return FileBytes{std::move(bytes), view};
}

// "." for a name without a directory.
std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The file that writing to a path creates or replaces. Follows links, also those to files that do
// not exist. Returns a path that leads nowhere unchanged.
std::string TargetOf(std::string path) {
  std::error_code error;
  for (int links = 0; links < 40; ++links) {
    const fs::path real = fs::canonical(path, error);
    if (!error) return real.string();
    const fs::path directory = fs::canonical(DirectoryOf(path), error);
    if (error) return path;
    path = (directory / fs::path(path).filename()).string();
    const fs::path link = fs::read_symlink(path, error);
    if (error) return path;
    path = (directory / link).string();
  }
  return path;
}

// Writes all parts: writev may stop early at any byte.
absl::Status WriteAll(int fd, std::vector<iovec>* parts) {
  size_t first = 0;
  while (first < parts->size()) {
    const ssize_t n = writev(fd, &(*parts)[first], static_cast<int>(parts->size() - first));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError("cannot write");
    size_t written = n;
    while (first < parts->size() && written >= (*parts)[first].iov_len) {
      written -= (*parts)[first++].iov_len;
    }
    if (first < parts->size()) {
      (*parts)[first].iov_base = static_cast<char*>((*parts)[first].iov_base) + written;
      (*parts)[first].iov_len -= written;
    }
  }
  return absl::OkStatus();
}

// Distinguishes the names from those of other programs.
constexpr absl::string_view kMark = "weft";

// TARGET.weft.PROCESS.NUMBER.tmp, shortened for file systems that limit names to 255 bytes.
std::string TemporaryName(const std::string& target, unsigned number) {
  constexpr size_t kMaxNameBytes = 200;  // about 28 are added
  const size_t name = target.rfind('/') + 1;
  return absl::StrCat(target.substr(0, name), target.substr(name, kMaxNameBytes), ".", kMark, ".",
                      getpid(), ".", number, ".tmp");
}

// The process in such a name; 0 for other names.
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

// The temporary files of this process, for RemoveTemporaryFiles. It may run in a signal handler, so
// no memory is allocated or freed.
struct Slot {
  std::atomic<bool> is_taken{false};
  std::atomic<bool> has_path{false};  // `path` can be read
  char path[PATH_MAX];
};
Slot slots[64];
static_assert(std::atomic<bool>::is_always_lock_free, "used in signal handlers");

// Returns the slot of the path, or -1 if all are taken or the path is too long.
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

// Files that Replace has put in place and that are not kept yet, and the signal that waits for
// them.
std::atomic<int> replaced_files{0};
std::atomic<int> held_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in signal handlers");

void BeginReplaced() { ++replaced_files; }

void EndReplaced() {
  if (--replaced_files > 0) return;
  const int signal = held_signal.exchange(0);
  if (signal != 0) raise(signal);
}

// Removes temporary files in a directory whose process has ended: no process here has its number,
// and none, not even of another container or host, holds its lock. O(names).
void RemoveStaleTemporaryFiles(const std::string& directory) {
  DIR* const names = opendir(directory.c_str());
  if (names == nullptr) return;
  while (const dirent* entry = readdir(names)) {
    const pid_t process = ProcessOf(entry->d_name);
    if (process != 0 && !IsRunning(process)) RemoveIfUnlocked(dirfd(names), entry->d_name);
  }
  closedir(names);
}

struct TemporaryFile {
  int fd = -1;  // open for writing
  std::string path;
  int slot = -1;  // see Remember
};

// Frees the slot of a file that has been removed, or renamed to its target.
void ForgetTemporaryFile(int slot) {
  if (slot < 0) return;
  slots[slot].has_path = false;
  slots[slot].is_taken = false;
}

// Creates an empty file of this mode beside `target`, and locks it until it is closed.
absl::StatusOr<TemporaryFile> CreateTemporaryFile(const std::string& target, mode_t mode) {
  static std::atomic<unsigned> counter{0};
  RemoveStaleTemporaryFiles(DirectoryOf(target));
  TemporaryFile file;
  do {
    ForgetTemporaryFile(file.slot);
    file.path = TemporaryName(target, counter++);
    file.slot = Remember(file.path);  // before a signal may come
    file.fd = open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (file.fd < 0 && errno == EEXIST);
  if (file.fd < 0) {
    const int error = errno;
    ForgetTemporaryFile(file.slot);
    return absl::ErrnoToStatus(error,
                               absl::StrCat("cannot create a file in ", DirectoryOf(target)));
  }
  // Without locks in the file system, the number of the process alone protects the file.
  flock(file.fd, LOCK_EX | LOCK_NB);
  return file;
}

}  // namespace

void FileBytes::Unload() const {
  if (!is_mapped) return;
  const auto* const begin = static_cast<const char*>(owner.get());
  // The pages equal the file's, as nobody writes to them.
  madvise(const_cast<char*>(begin), bytes.data() + bytes.size() - begin, MADV_DONTNEED);
}

absl::StatusOr<FileBytes> ReadFile(const std::string& path, size_t max_bytes) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError("cannot open");
  FdCloser closer{is_stdin ? -1 : fd};
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("cannot read");
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("is a directory");
  // /dev/zero has no end. A terminal has, and /dev/stdin may be one.
  if (S_ISBLK(info.st_mode) || (S_ISCHR(info.st_mode) && isatty(fd) == 0)) {
    return absl::InvalidArgumentError("is a device");
  }
  // Part of stdin may have been read already. Files of /proc report a size of 0.
  if (is_stdin || !S_ISREG(info.st_mode) || info.st_size == 0) return ReadToEnd(fd, max_bytes);
  if (static_cast<size_t>(info.st_size) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("has ", info.st_size, " bytes, more than ", max_bytes));
  }
  return Map(path, fd, info.st_size);
}

bool AtomicFile::WritesDirectly(const std::string& path) {
  struct stat info;
  if (path == "-") return true;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  if (path == "-") {
    file.fd_ = STDOUT_FILENO;
    file.direct_ = true;
    return file;
  }
  file.target_ = TargetOf(path);
  struct stat info;
  const bool exists = stat(file.target_.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return SystemError("cannot open for writing");
  if (exists && S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("is a directory");
  if (exists && !S_ISREG(info.st_mode)) {
    file.fd_ = open(file.target_.c_str(), O_WRONLY | O_CLOEXEC);
    file.direct_ = true;
    if (file.fd_ < 0) return SystemError("cannot open for writing");
    return file;
  }
  // Renaming needs rights on the directory only, but must not replace a read-only file.
  if (exists && access(file.target_.c_str(), W_OK) != 0) return SystemError("cannot write");

  WEFT_ASSIGN_OR_RETURN(TemporaryFile temporary,
                        CreateTemporaryFile(file.target_, exists ? (info.st_mode & 0777) : 0666));
  file.fd_ = temporary.fd;
  file.temporary_ = std::move(temporary.path);
  file.temporary_slot_ = temporary.slot;
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Discard();
  fd_ = std::exchange(other.fd_, -1);
  direct_ = other.direct_;
  synced_ = other.synced_;
  is_replaced_ = std::exchange(other.is_replaced_, false);
  has_old_ = other.has_old_;
  was_missing_ = other.was_missing_;
  temporary_ = std::exchange(other.temporary_, "");
  temporary_slot_ = std::exchange(other.temporary_slot_, -1);
  target_ = std::move(other.target_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::PutBack() {
  if (has_old_) {
    renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE);
  } else if (was_missing_) {
    unlink(target_.c_str());
  }
  is_replaced_ = false;
}

void AtomicFile::Discard() {
  const bool was_replaced = is_replaced_;
  if (was_replaced) PutBack();
  if (fd_ > STDERR_FILENO) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  ForgetTemporaryFile(std::exchange(temporary_slot_, -1));
  if (was_replaced) EndReplaced();
}

absl::Status AtomicFile::Write(absl::Span<const absl::string_view> pieces) {
  synced_ = false;
  size_t size = 0;
  for (absl::string_view piece : pieces) size += piece.size();
  if (!direct_ && size >= kUncachedBytes && lseek(fd_, 0, SEEK_CUR) == 0) {
    return WriteUncached(fd_, pieces);
  }
  std::vector<iovec> parts;
  for (size_t begin = 0; begin < pieces.size(); begin += IOV_MAX) {
    parts.clear();
    for (absl::string_view piece : pieces.subspan(begin, IOV_MAX)) {
      parts.push_back({const_cast<char*>(piece.data()), piece.size()});
    }
    WEFT_RETURN_IF_ERROR(WriteAll(fd_, &parts));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  if (direct_ || synced_) return absl::OkStatus();
  if (fsync(fd_) != 0) return SystemError("cannot write");
  synced_ = true;
  return absl::OkStatus();
}

absl::Status AtomicFile::Replace() {
  WEFT_RETURN_IF_ERROR(Sync());
  if (!direct_) {
    BeginReplaced();
    // Renamed while it is locked: another process could take it for a stale file.
    has_old_ =
        renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
    was_missing_ = !has_old_ && errno == ENOENT;
    if (!has_old_ && rename(temporary_.c_str(), target_.c_str()) != 0) {
      const absl::Status error = SystemError("cannot replace");
      EndReplaced();
      return error;
    }
    is_replaced_ = true;
  }
  const int fd = std::exchange(fd_, -1);
  if (fd > STDERR_FILENO && close(fd) != 0) return SystemError("cannot write");
  return absl::OkStatus();
}

void AtomicFile::Keep() {
  if (direct_) return;
  if (has_old_) unlink(temporary_.c_str());
  is_replaced_ = false;
  temporary_.clear();
  ForgetTemporaryFile(std::exchange(temporary_slot_, -1));
  // The new name is durable once the directory is. Some file systems cannot sync a directory.
  const int directory = open(DirectoryOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  EndReplaced();
}

absl::Status AtomicFile::Commit() {
  WEFT_RETURN_IF_ERROR(Replace());
  Keep();
  return absl::OkStatus();
}

absl::Status ReplaceTogether(std::vector<std::pair<std::string, AtomicFile>> files) {
  for (auto& one : files) WEFT_RETURN_IF_ERROR(Annotate(one.first, one.second.Sync()));
  for (auto& one : files) WEFT_RETURN_IF_ERROR(Annotate(one.first, one.second.Replace()));
  for (auto& one : files) one.second.Keep();
  return absl::OkStatus();
}

RemovedOnSignal::RemovedOnSignal(const std::string& path) : slot_(Remember(path)) {}

RemovedOnSignal::~RemovedOnSignal() { ForgetTemporaryFile(slot_); }

bool HoldSignal(int signal) {
  held_signal = signal;
  if (replaced_files > 0) return true;
  return held_signal.exchange(0) == 0;  // or raised since
}

void RemoveTemporaryFiles() {
  for (Slot& slot : slots) {
    if (slot.has_path.exchange(false)) unlink(slot.path);
  }
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  WEFT_RETURN_IF_ERROR(file.Write(bytes));
  return file.Commit();
}

bool IsSameFile(const std::string& a, const std::string& b) {
  if (a == "-" || b == "-") return false;
  struct stat info_a, info_b;
  const bool exists_a = stat(a.c_str(), &info_a) == 0, exists_b = stat(b.c_str(), &info_b) == 0;
  if (exists_a && exists_b) return info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
  return !exists_a && !exists_b && TargetOf(a) == TargetOf(b);
}

}  // namespace weft
