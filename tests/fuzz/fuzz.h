// What fuzz targets share.
#ifndef WEFT_TESTS_FUZZ_FUZZ_H_
#define WEFT_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// One input. Returns, or dies where something is wrong. Each target defines it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft::testing {

// Dies with the message.
void Require(bool holds, absl::string_view message);
// Dies unless ok.
void RequireOk(const absl::Status& status, absl::string_view what);
// Dies unless the status is an error as users get to see it: one line that says something.
void RequireCleanError(const absl::Status& status);

// A file in memory that can be opened by its path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_FUZZ_FUZZ_H_
