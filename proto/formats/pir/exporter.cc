#include "proto/formats/pir/exporter.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/export_ops.h"
#include "proto/formats/pir/importer.h"

namespace weft::pir {

namespace {

// Replaces the value of the setting in the file by another, or adds it.
void PutSetting(absl::string_view in_file, std::string setting, SerializedProgram* file) {
  if (setting.empty()) setting = "{}";
  const bool is_new = in_file.empty();
  // A new one comes before the brace that ends the file.
  const size_t last = file->pieces.back().rfind('}');
  if (is_new) {
    in_file = file->pieces.back().substr(last, 0);
    setting = absl::StrCat(",\"", kSettingKey, "\":", setting);
  }
  file->owned.push_back(std::move(setting));
  for (size_t i = file->pieces.size(); i-- > 0;) {
    const absl::string_view piece = file->pieces[i];
    if (in_file.data() < piece.data() || in_file.data() >= piece.data() + piece.size()) continue;
    const size_t begin = in_file.data() - piece.data();
    file->pieces[i] = piece.substr(0, begin);
    file->pieces.insert(file->pieces.begin() + i + 1,
                        {file->owned.back(), piece.substr(begin + in_file.size())});
    break;
  }
  file->size += file->owned.back().size() - in_file.size();
}

absl::StatusOr<SerializedProgram> ExportOps(const Program& program, const Import& import) {
  if (program.revision() == 0) {
    SerializedProgram file;
    file.pieces = {import.file.bytes};
    file.size = import.file.bytes.size();
    return file;
  }
  constexpr size_t kLarge = 4 << 20;
  if (import.file.bytes.size() >= kLarge) ReturnFreeMemory();
  WEFT_ASSIGN_OR_RETURN(const auto document, Document::Parse(import.file));
  document->file().Unload();
  if (document->blocks()[0].ops.empty()) {
    return absl::UnimplementedError("expected a file with at least one op");
  }
  return Exporter(program, import, *document).Run();
}

}  // namespace

absl::StatusOr<SerializedProgram> ExportToPieces(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr) {
    return absl::InvalidArgumentError(
        "expected a program that was read from a .json file of Paddle 3; write .pb or .prog");
  }
  WEFT_ASSIGN_OR_RETURN(SerializedProgram file, ExportOps(program, *import));
  const std::string setting = program.setting();
  if (setting != import->setting) PutSetting(import->setting, setting, &file);
  return file;
}

absl::StatusOr<std::string> ExportProgram(const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const SerializedProgram file, ExportToPieces(program));
  return absl::StrJoin(file.pieces, "");
}

}  // namespace weft::pir
