#include "tools/cmd/transpile_copy.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "proto/formats/malformed_program.h"
#include "proto/formats/program_file.h"
#include "tools/flags/command_line.h"
#include "transpiler/verifier/verify.h"

namespace weft {
namespace {

// Copies programs byte for byte, as nothing can write malformed ones.
absl::Status CopyFiles(const std::vector<std::pair<std::string, std::string>>& copies,
                       const std::vector<ReadableProgram>& programs) {
  std::vector<std::pair<std::string, AtomicFile>> files;
  for (size_t i = 0; i < copies.size(); ++i) {
    const auto& [in, out] = copies[i];
    for (const std::string& line : programs[i].malformed) {
      PrintWarning("transpile", absl::StrCat(in, ": ", line));
    }
    if (programs[i].format != *ProgramFormatOf(out)) {
      return absl::InvalidArgumentError(absl::StrCat(out, ": expected the kind of file of ", in,
                                                     ", as a malformed program is only copied"));
    }
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(out);
    WEFT_RETURN_IF_ERROR(Annotate(out, file.status()));
    WEFT_RETURN_IF_ERROR(Annotate(out, file->Write(programs[i].file.bytes)));
    files.emplace_back(out, *std::move(file));
  }
  return ReplaceTogether(std::move(files));
}

}  // namespace

std::vector<Said> SaidOfCopy(const TranspileFlags& flags, const ConstProgramPair& programs,
                             const Setting& setting) {
  VerifyOptions verify;
  verify.setting = setting;
  const Findings findings = Verify({programs}, verify);
  std::vector<Said> said;
  for (const Finding& finding : findings.all()) {
    if (finding.severity != Severity::kError) continue;
    said.push_back({Severity::kWarning,
                    absl::StrCat(finding.program.is_startup ? flags.startup_in : flags.in, ": ",
                                 finding.rule, ": ", finding.message),
                    /*names_command=*/true});
  }
  return said;
}

absl::StatusOr<absl::optional<std::vector<Program>>> ReadOrCopy(const TranspileFlags& flags) {
  std::vector<std::pair<std::string, std::string>> copies = {{flags.in, flags.out}};
  if (!flags.startup_in.empty()) copies.emplace_back(flags.startup_in, flags.startup_out);
  std::vector<ReadableProgram> programs;
  bool malformed = false;
  for (const auto& [in, out] : copies) {
    absl::StatusOr<ReadableProgram> program = ReadMalformedProgram(in);
    WEFT_RETURN_IF_ERROR(Annotate(in, program.status()));
    malformed |= !program->malformed.empty();
    programs.push_back(*std::move(program));
  }
  if (malformed) {
    WEFT_RETURN_IF_ERROR(CopyFiles(copies, programs));
    return absl::nullopt;
  }
  std::vector<Program> read = {std::move(programs.front().program)};
  if (programs.size() > 1) {
    absl::StatusOr<Program> startup = StartupOf(programs.back().program);
    WEFT_RETURN_IF_ERROR(Annotate(flags.startup_in, startup.status()));
    read.push_back(*std::move(startup));
  }
  return read;
}

}  // namespace weft
