#include "tests/support/paddle_programs.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "base/testing/archive.h"

namespace weft::testing {
namespace {

void DieUnlessOk(const std::string& where, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", where.c_str(), status.ToString().c_str());
  std::abort();
}

std::vector<NamedProgram> ParseArchive(const std::string& path) {
  const auto files = ReadTarXz(path);
  DieUnlessOk(path, files.status());
  std::vector<NamedProgram> programs;
  for (const auto& [name, bytes] : *files) {
    if (!absl::EndsWith(name, ".pb")) continue;
    absl::StatusOr<Program> program = Program::Parse(bytes);
    DieUnlessOk(name, program.status());
    programs.push_back({name, *std::move(program)});
  }
  return programs;
}

}  // namespace

const std::vector<NamedProgram>& PaddlePrograms() {
  static const auto* const programs =
      new std::vector<NamedProgram>(ParseArchive("tests/data/programs.tar.xz"));
  return *programs;
}

const std::vector<NamedProgram>& PaddleGoldens() {
  static const auto* const programs =
      new std::vector<NamedProgram>(ParseArchive("tests/data/goldens.tar.xz"));
  return *programs;
}

}  // namespace weft::testing
