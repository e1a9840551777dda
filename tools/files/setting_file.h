// The settings of program files, also of those that cannot carry one.
#ifndef WEFT_TOOLS_FILES_SETTING_FILE_H_
#define WEFT_TOOLS_FILES_SETTING_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

// The file beside a program whose file cannot carry a setting: bytes that are Paddle's alone, or
// protobuf text. "out.pb.setting.json".
std::string SidecarPath(const std::string& program_path);

// A JSON object: the setting, and a hash of the program that it belongs to.
std::string SidecarText(const Program& program, const Setting& setting);

// The setting of a program that was read from `path`: of the file (SettingOf), or, if it has none,
// of the sidecar. A sidecar of another program, which stayed when the file was replaced, does not
// count. Errors begin with the path of the file at fault.
absl::StatusOr<Setting> SettingOfFile(const std::string& path, const Program& program);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_SETTING_FILE_H_
