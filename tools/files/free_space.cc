#include "tools/files/free_space.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "ops/schema/tensor_type.h"

namespace weft {

int64_t PersistableBytes(const Program& program) {
  int64_t bytes = 0;
  for (VarId id : program.block(0).vars()) {
    const Var var = program.var(id);
    if (!var.persistable()) continue;
    const absl::optional<TensorType> type = DeclaredType(var);
    if (!type.has_value() || NumElements(type->dims) < 0) continue;
    bytes += NumElements(type->dims) * static_cast<int64_t>(SizeOf(type->dtype));
  }
  return bytes;
}

absl::Status CheckFreeSpace(const std::string& path, int64_t bytes) {
  if (path.empty() || AtomicFile::WritesDirectly(path)) return absl::OkStatus();
  const size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : path.substr(0, slash);
  struct statvfs system;
  if (statvfs(directory.c_str(), &system) != 0) return absl::OkStatus();
  const uint64_t free_bytes = static_cast<uint64_t>(system.f_bavail) * system.f_frsize;
  if (static_cast<uint64_t>(bytes) <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path, ": expected ", bytes, " free bytes in ",
                                                   directory, ", found ", free_bytes));
}

}  // namespace weft
