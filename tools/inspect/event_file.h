// The files that TensorBoard reads.
#ifndef WEFT_TOOLS_INSPECT_EVENT_FILE_H_
#define WEFT_TOOLS_INSPECT_EVENT_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// The checksum of TFRecord files, Castagnoli's CRC-32 (RFC 3720, B.4), without its mask.
uint32_t Crc32c(absl::string_view bytes);

// Of this moment.
double SecondsSince1970();

// A file of scalars by step, which can be followed while it grows: records of TFRecord, each an
// Event of TensorFlow (tensorflow/core/util/event.proto: wall_time = 1, step = 2, file_version = 3,
// summary = 5). Errors begin with the path.
class EventFile {
 public:
  // FOLDER/events.out.tfevents.<begin_step>.<writer>, which it replaces. Creates the folder, but
  // not the one that it lies in.
  static absl::StatusOr<EventFile> Create(const std::string& folder, int64_t begin_step,
                                          absl::string_view writer);

  // Adds scalars by name. `seconds`: since 1970.
  absl::Status Write(int64_t step, double seconds,
                     const std::vector<std::pair<std::string, double>>& scalars);

  const std::string& path() const { return path_; }

 private:
  static int Close(std::FILE* file) { return std::fclose(file); }
  EventFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file, Close) {}
  absl::Status WriteRecord(absl::string_view event);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_INSPECT_EVENT_FILE_H_
