#include "tests/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weft::testing {

void Require(bool holds, absl::string_view message) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", std::string(message).c_str());
  std::abort();
}

void RequireOk(const absl::Status& status, absl::string_view what) {
  Require(status.ok(), absl::StrCat(what, ": ", status.ToString()));
}

void RequireCleanError(const absl::Status& status) {
  const absl::StatusCode code = status.code();
  Require(code == absl::StatusCode::kInvalidArgument ||
              code == absl::StatusCode::kFailedPrecondition ||
              code == absl::StatusCode::kUnimplemented,
          absl::StrCat("expected an error about the input, found ", status.ToString()));
  Require(!status.message().empty(), "an error without a message");
  Require(status.message().find('\n') == absl::string_view::npos,
          absl::StrCat("expected one line, found ", status.message()));
}

MemoryFile::MemoryFile(const uint8_t* data, size_t size) : fd_(memfd_create("input", 0)) {
  Require(fd_ >= 0, "memfd_create failed");
  path_ = absl::StrCat("/proc/self/fd/", fd_);
  size_t written = 0;
  while (written < size) {
    const ssize_t n = write(fd_, data + written, size - written);
    Require(n > 0, "write failed");
    written += n;
  }
}

MemoryFile::~MemoryFile() { close(fd_); }

}  // namespace weft::testing
