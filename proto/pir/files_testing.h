// The PIR programs of tests/data, for tests.
#ifndef WEFT_PROTO_PIR_FILES_TESTING_H_
#define WEFT_PROTO_PIR_FILES_TESTING_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/testing/archive.h"
#include "gtest/gtest.h"
#include "proto/pir/document.h"
#include "proto/pir/importer.h"
#include "proto/program.h"

namespace weft::pir {

// By path: "fit_a_line/main.json".
inline const std::map<std::string, std::string>& Files() {
  static const auto* const files = new std::map<std::string, std::string>(
      *weft::testing::ReadTarXz("tests/data/paddle3_pir.tar.xz"));
  return *files;
}

inline absl::StatusOr<Program> ImportBytes(const std::string& bytes) {
  const auto document = Document::Parse(bytes);
  if (!document.ok()) return document.status();
  return ImportProgram(*document);
}

// A file with each `from`, which it must have, replaced.
inline std::string Edited(const std::string& file, const std::string& from, const std::string& to) {
  EXPECT_TRUE(absl::StrContains(Files().at(file), from)) << from;
  return absl::StrReplaceAll(Files().at(file), {{from, to}});
}

}  // namespace weft::pir

#endif  // WEFT_PROTO_PIR_FILES_TESTING_H_
