#include "tests/support/models.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/testing/archive.h"

namespace weft::testing {
namespace {

[[noreturn]] void Die(const std::string& what, const absl::Status& status) {
  std::fprintf(stderr, "ReadModels: %s: %s\n", what.c_str(), status.ToString().c_str());
  std::abort();
}

Program ParseOrDie(const std::string& path, std::string bytes) {
  absl::StatusOr<Program> program = Program::Parse(std::move(bytes));
  if (!program.ok()) Die(path, program.status());
  return *std::move(program);
}

}  // namespace

std::map<std::string, Model> ReadModels(const std::string& archive) {
  auto files = ReadTarXz(archive);
  if (!files.ok()) Die("programs", files.status());
  std::map<std::string, Model> models;
  for (auto& [path, bytes] : *files) {
    absl::string_view name = path;
    if (!absl::ConsumeSuffix(&name, "/main.pb")) continue;
    const std::string startup = absl::StrCat(name, "/startup.pb");
    const auto found = files->find(startup);
    if (found == files->end()) Die(startup, absl::NotFoundError("missing"));
    models.emplace(name,
                   Model{ParseOrDie(path, bytes), ParseOrDie(startup, std::move(found->second))});
  }
  return models;
}

}  // namespace weft::testing
