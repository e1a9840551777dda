// Reading the archives of test data.
#ifndef WEFT_BASE_TESTING_ARCHIVE_H_
#define WEFT_BASE_TESTING_ARCHIVE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace weft::testing {

// The regular files of a .tar.xz, by their names in it. `path` is relative to the directory that a
// test runs in, the root of its workspace: "tests/data/programs.tar.xz".
// NotFound where it cannot be opened, DataLoss where it cannot be read to its end.
absl::StatusOr<std::map<std::string, std::string>> ReadTarXz(const std::string& path);

}  // namespace weft::testing

#endif  // WEFT_BASE_TESTING_ARCHIVE_H_
