#include "tools/cmd/transpile_outputs.h"

#include <utility>

#include "base/annotate.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/files/setting_file.h"

namespace weft {
namespace {

// The file of --remarks, JSON:
//   {"passes": [{"pass", "changed", "main_ops", "startup_ops"}],
//    "notes": [{"pass", "subject", "what", "why", ...details}]}
// Equal results give equal bytes: it has no times.
absl::StatusOr<AtomicFile> StageText(const std::string& path, const std::string& text) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, file.status()));
  absl::Status status = file->Write(text);
  if (status.ok()) status = file->Sync();
  WEFT_RETURN_IF_ERROR(Annotate(path, status));
  return file;
}

// Whether the file of the main program says less than is known. Programs of Paddle 3 always carry
// what is known.
bool LosesSetting(const Program& main, const std::string& path, const TranspileResult& result) {
  const ProgramFormat format = *ProgramFormatOf(path);
  const bool is_of_paddle3 = main.origin() != nullptr && main.origin()->OrdersByData();
  if (!result.says_setting || is_of_paddle3 || format == ProgramFormat::kPt2) return false;
  return main.setting().empty() || format == ProgramFormat::kProtoText;
}

}  // namespace

std::string ExplainJson(const TranspileResult& result) {
  using Json = nlohmann::ordered_json;
  Json passes = Json::array();
  for (const PassReport& report : result.passes) {
    passes.push_back({{"pass", report.pass},
                      {"changed", report.changed},
                      {"main_ops", report.main_ops},
                      {"startup_ops", report.startup_ops}});
  }
  Json remarks = Json::array();
  for (const Remark& remark : result.remarks) {
    Json json = {{"pass", remark.pass},
                 {"subject", remark.subject},
                 {"what", remark.what},
                 {"why", remark.why}};
    for (const auto& [key, value] : remark.details) json[key] = value;
    remarks.push_back(std::move(json));
  }
  // Names are UTF-8; attribute strings do not occur here.
  return Json{{"passes", std::move(passes)}, {"notes", std::move(remarks)}}.dump(2) + "\n";
}

absl::Status StagedOutputs::Replace() {
  WEFT_RETURN_IF_ERROR(programs.Replace());
  if (server.has_value()) WEFT_RETURN_IF_ERROR(server->Replace());
  if (setting.has_value()) WEFT_RETURN_IF_ERROR(Annotate(setting_path, setting->Replace()));
  return explain.has_value() ? Annotate(explain_path, explain->Replace()) : absl::OkStatus();
}

void StagedOutputs::Keep() {
  programs.Keep();
  if (server.has_value()) server->Keep();
  for (absl::optional<AtomicFile>* file : {&setting, &explain}) {
    if (file->has_value()) (*file)->Keep();
  }
}

absl::StatusOr<StagedOutputs> StageAll(absl::StatusOr<StagedPrograms> programs,
                                       const OutputPaths& paths, const TranspileResult& result,
                                       const Program& main) {
  if (result.server.has_value() == paths.server.empty()) {
    return absl::InvalidArgumentError(
        paths.server.empty()
            ? "the passes make a program for parameter servers: expected --server_out"
            : "--server_out: no parameter is on servers; expected \"parameter_server\": "
              "true for one in --param_attrs");
  }
  absl::optional<StagedPrograms> server;
  if (!paths.server.empty()) {
    WEFT_ASSIGN_OR_RETURN(server, StagedPrograms::Write({{&*result.server, paths.server}}));
  }
  absl::optional<AtomicFile> explain, setting;
  if (!paths.explain.empty()) {
    WEFT_ASSIGN_OR_RETURN(explain, StageText(paths.explain, ExplainJson(result)));
  }
  const std::string setting_path = SidecarPath(paths.main);
  if (!paths.main.empty() && paths.main != "-" && LosesSetting(main, paths.main, result)) {
    WEFT_ASSIGN_OR_RETURN(setting, StageText(setting_path, SidecarText(main, result.setting)));
  }
  WEFT_RETURN_IF_ERROR(programs.status());
  return StagedOutputs{*std::move(programs), std::move(server),  std::move(explain),
                       paths.explain,        std::move(setting), setting_path};
}

}  // namespace weft
