// Files with the times of ops and collectives, for plans.
#ifndef WEFT_TOOLS_FILES_STEP_TIMES_FILE_H_
#define WEFT_TOOLS_FILES_STEP_TIMES_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/file.h"
#include "proto/program.h"
#include "transpiler/buckets/collective_time.h"

namespace weft {

// {"points": [{"bytes": 4096, "seconds": 1.2e-05}, ...]}, as `weft comm_bench` prints it, or
// {"latency_s": 0.001, "bytes_per_s": 4e9}, the alpha-beta model. Other keys are ignored.
// InvalidArgument with what is wrong.
absl::StatusOr<CollectiveTime> ParseCollectiveTable(absl::string_view json);

// {"ops": [{"op": "op 17 (mul)", "seconds": 1e-05}, ...]}, as `weft run --profile` writes it: the
// times of the ops of the root block of this program, by position; 0 for those that the file does
// not have. InvalidArgument for an op that the program does not have.
absl::StatusOr<std::vector<double>> ParseProfile(absl::string_view json, const Program& program);

// Reads a file and parses its text; errors begin with the path.
template <typename Parse>
auto ReadAs(const std::string& path, Parse parse) -> decltype(parse(absl::string_view())) {
  const absl::StatusOr<FileBytes> bytes = ReadFile(path);
  if (!bytes.ok()) return Annotate(path, bytes.status());
  auto parsed = parse(bytes->bytes);
  if (!parsed.ok()) return Annotate(path, parsed.status());
  return parsed;
}

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_STEP_TIMES_FILE_H_
