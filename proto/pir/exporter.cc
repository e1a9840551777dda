#include "proto/pir/exporter.h"

#include <memory>
#include <utility>

#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/pir/document.h"
#include "proto/pir/document_writer.h"
#include "proto/pir/importer.h"

namespace weft::pir {

absl::optional<absl::string_view> UneditedFile(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr || program.revision() != 0) return absl::nullopt;
  return import->bytes;
}

absl::StatusOr<std::string> ExportProgram(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr) {
    return absl::InvalidArgumentError(
        "expected a program that was read from a .json file of Paddle 3; write .pb or .prog");
  }
  if (const auto bytes = UneditedFile(program)) return std::string(*bytes);
  constexpr size_t kLarge = 4 << 20;
  if (import->bytes.size() >= kLarge) ReturnFreeMemory();
  std::string text;
  {
    WEFT_ASSIGN_OR_RETURN(const auto document, Document::Parse(import->owner, import->bytes));
    WEFT_ASSIGN_OR_RETURN(text, DocumentWriter(program, *import, *document).Run());
  }
  // Paddle's loader accepts undefined operands, and computes nonsense.
  const absl::Status status = Document::Parse(nullptr, text).status();
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat("the file that was written: ", status.message()));
  }
  return text;
}

}  // namespace weft::pir
