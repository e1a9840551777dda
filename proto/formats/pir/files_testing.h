// The PIR programs of tests/data, for tests.
#ifndef WEFT_PROTO_FORMATS_PIR_FILES_TESTING_H_
#define WEFT_PROTO_FORMATS_PIR_FILES_TESTING_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/archive.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/importer.h"
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

// Inserts ops into fit_a_line, after the last.
inline std::string WithOps(const std::string& ops) {
  const std::string& bytes = Files().at("fit_a_line/main.json");
  const size_t end = bytes.rfind("]}]}]}}");
  return absl::StrCat(bytes.substr(0, end), ",", ops, bytes.substr(end));
}

inline std::string TensorJson(const std::string& dtype) {
  return absl::StrCat(R"({"#":"0.t_dtensor","D":[{"#":"0.t_)", dtype, R"("},[1],"NCHW",[],0]})");
}

// A constant: kind and data of the attribute, and the type of the result.
inline std::string ConstantJson(const std::string& op, const std::string& id,
                                const std::string& value, const std::string& dtype) {
  return absl::StrCat(R"({"#":")", op, R"(","A":[{"AT":{"#":"1.a_intarray","D":[1]},"N":"shape"},)",
                      R"({"AT":)", value, R"(,"N":")", op == "1.assign_value_" ? "values" : "value",
                      R"("}],"I":[)", op == "1.assign_value_" ? R"({"%":0})" : "",
                      R"(],"O":[{"%":)", id, R"(,"TT":)", TensorJson(dtype), R"(}],"OA":[]})");
}

inline std::string ListJson(const std::string& kind, const std::string& value) {
  return absl::StrCat(R"({"#":"0.a_array","D":[{"#":")", kind, R"(","D":)", value, "}]}");
}

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_FILES_TESTING_H_
