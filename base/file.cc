#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status_macros.h"
#include "base/temporary_file.h"
#include "base/uncached_write.h"

namespace weft {
namespace {

// Files from this size on are written past the page cache: four times as fast for 400 MiB.
constexpr size_t kUncachedBytes = 64 << 20;

absl::Status SystemError(absl::string_view what) { return absl::ErrnoToStatus(errno, what); }

// What is kept in memory of a pipe, or of another stream that does not say how long it is.
constexpr size_t kMaxStreamBytes = size_t{1} << 31;

// Closes a descriptor that is only read from.
struct FdCloser {
  int fd;
  ~FdCloser() {
    if (fd > STDERR_FILENO) close(fd);
  }
};

absl::StatusOr<FileBytes> Map(int fd, size_t size) {
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) return SystemError("cannot map the file");
  std::shared_ptr<const void> owner(data,
                                    [size](const void* p) { munmap(const_cast<void*>(p), size); });
  return FileBytes{std::move(owner), absl::string_view(static_cast<const char*>(data), size)};
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

// The path without links in it; none where it leads nowhere.
absl::optional<std::string> RealPath(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return absl::nullopt;
  std::string result = real;
  free(real);
  return result;
}

// Where writing to a path puts the file: RealPath, and for a file that does not exist yet, its name
// in the directory that it would be made in. A link to nowhere leads to what it names.
std::string TargetOf(std::string path) {
  for (int links = 0; links < 40; ++links) {
    if (absl::optional<std::string> real = RealPath(path)) return *real;
    const size_t name = path.rfind('/') + 1;
    const absl::optional<std::string> directory = RealPath(DirectoryOf(path));
    if (!directory.has_value()) return path;
    path = absl::StrCat(*directory == "/" ? "" : *directory, "/", path.substr(name));
    char link[PATH_MAX];
    const ssize_t size = readlink(path.c_str(), link, sizeof(link));
    if (size <= 0) return path;
    const absl::string_view to(link, size);
    path = to[0] == '/' ? std::string(to) : absl::StrCat(*directory, "/", to);
  }
  return path;
}

// Writes all of it: writev may stop early at any byte.
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

}  // namespace

absl::StatusOr<FileBytes> ReadFile(const std::string& path, size_t max_bytes) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError("cannot open");
  FdCloser closer{is_stdin ? -1 : fd};
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError("cannot read");
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError("is a directory");
  // /dev/zero has no end. A terminal has: /dev/stdin may be one.
  if (S_ISBLK(info.st_mode) || (S_ISCHR(info.st_mode) && isatty(fd) == 0)) {
    return absl::InvalidArgumentError("is a device");
  }
  // Part of stdin may have been read. Files of /proc and the like say that they are empty.
  if (is_stdin || !S_ISREG(info.st_mode) || info.st_size == 0) return ReadToEnd(fd, max_bytes);
  if (static_cast<size_t>(info.st_size) > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("has ", info.st_size, " bytes, more than ", max_bytes));
  }
  return Map(fd, info.st_size);
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
  // Renaming needs rights on the directory only, but a file that may not be written shall stay.
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
  temporary_ = std::exchange(other.temporary_, "");
  temporary_slot_ = std::exchange(other.temporary_slot_, -1);
  target_ = std::move(other.target_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ > STDERR_FILENO) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  ForgetTemporaryFile(std::exchange(temporary_slot_, -1));
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

absl::Status AtomicFile::Commit() {
  WEFT_RETURN_IF_ERROR(Sync());
  if (direct_) {
    const int fd = std::exchange(fd_, -1);
    if (fd > STDERR_FILENO && close(fd) != 0) return SystemError("cannot write");
    return absl::OkStatus();
  }
  // Renamed while it is locked, or it could be taken for one that a killed process has left.
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return SystemError("cannot replace");
  temporary_.clear();
  ForgetTemporaryFile(std::exchange(temporary_slot_, -1));
  if (close(std::exchange(fd_, -1)) != 0) return SystemError("cannot write");
  // The new name is durable once the directory is. Some file systems cannot sync a directory.
  const int directory = open(DirectoryOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return absl::OkStatus();
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
  if (exists_a && exists_b) {
    return info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
  }
  return !exists_a && !exists_b && TargetOf(a) == TargetOf(b);
}

}  // namespace weft
