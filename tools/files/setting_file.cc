#include "tools/files/setting_file.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/json_input.h"
#include "base/status_macros.h"
#define XXH_INLINE_ALL
#include "xxhash.h"

namespace weft {
namespace {

constexpr char kHash[] = "program_xxh3", kSetting[] = "setting";

// Of the program without its setting.
std::string HashOf(const Program& program) {
  absl::optional<Program> bare;
  if (!program.setting().empty()) bare.emplace(program).set_setting("");
  const std::string bytes = (bare.has_value() ? *bare : program).Serialize();
  return absl::StrCat(absl::Hex(XXH3_64bits(bytes.data(), bytes.size()), absl::kZeroPad16));
}

// None if it belongs to another program.
absl::StatusOr<absl::optional<Setting>> ParseSidecar(absl::string_view text,
                                                     const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text));
  if (!json.contains(kHash) || !json.contains(kSetting)) {
    return absl::InvalidArgumentError(absl::StrCat("expected the keys ", kHash, " and ", kSetting));
  }
  if (json[kHash] != HashOf(program)) return absl::optional<Setting>();
  WEFT_ASSIGN_OR_RETURN(Setting setting, ParseSetting(json[kSetting].dump()));
  return absl::optional<Setting>(std::move(setting));
}

}  // namespace

std::string SidecarPath(const std::string& program_path) {
  return absl::StrCat(program_path, ".setting.json");
}

std::string SidecarText(const Program& program, const Setting& setting) {
  const std::string text = ToJson(setting);
  return absl::StrCat("{\"", kHash, "\":\"", HashOf(program), "\",\"", kSetting,
                      "\":", text.empty() ? "{}" : text, "}\n");
}

absl::StatusOr<Setting> SettingOfFile(const std::string& path, const Program& program) {
  absl::StatusOr<Setting> of_file = SettingOf(program);
  WEFT_RETURN_IF_ERROR(Annotate(path, of_file.status()));
  // Programs of Paddle 3 carry theirs.
  if (!program.setting().empty() || path == "-" || program.origin() != nullptr) return of_file;
  const std::string sidecar = SidecarPath(path);
  const absl::StatusOr<FileBytes> file = ReadFile(sidecar);
  if (absl::IsNotFound(file.status())) return of_file;
  WEFT_RETURN_IF_ERROR(Annotate(sidecar, file.status()));
  absl::StatusOr<absl::optional<Setting>> setting = ParseSidecar(file->bytes, program);
  WEFT_RETURN_IF_ERROR(Annotate(sidecar, setting.status()));
  return setting->has_value() ? *std::move(*setting) : *std::move(of_file);
}

}  // namespace weft
