#include "proto/formats/pir/exporter.h"

#include "absl/strings/str_join.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/export_ops.h"
#include "proto/formats/pir/importer.h"

namespace weft::pir {

absl::StatusOr<SerializedProgram> ExportToPieces(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr) {
    return absl::InvalidArgumentError(
        "expected a program that was read from a .json file of Paddle 3; write .pb or .prog");
  }
  if (program.revision() == 0) {
    SerializedProgram file;
    file.pieces = {import->file.bytes};
    file.size = import->file.bytes.size();
    return file;
  }
  constexpr size_t kLarge = 4 << 20;
  if (import->file.bytes.size() >= kLarge) ReturnFreeMemory();
  WEFT_ASSIGN_OR_RETURN(const auto document, Document::Parse(import->file));
  document->file().Unload();
  if (document->blocks()[0].ops.empty()) {
    return absl::UnimplementedError("expected a file with at least one op");
  }
  return Exporter(program, *import, *document).Run();
}

absl::StatusOr<std::string> ExportProgram(const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const SerializedProgram file, ExportToPieces(program));
  return absl::StrJoin(file.pieces, "");
}

}  // namespace weft::pir
