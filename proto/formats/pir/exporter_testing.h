// Rewritten programs, for tests.
#ifndef WEFT_PROTO_FORMATS_PIR_EXPORTER_TESTING_H_
#define WEFT_PROTO_FORMATS_PIR_EXPORTER_TESTING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/files_testing.h"
#include "proto/rewriter.h"
#include "proto/testing/program_builder.h"

namespace weft::pir {

// "1.add 7 <- 6 2" for every op of a file.
inline std::vector<std::string> Lines(const std::string& bytes) {
  const auto document = Document::Parse(bytes);
  WEFT_EXPECT_OK(document);
  std::vector<std::string> lines;
  if (!document.ok()) return lines;
  for (const DocumentOp& op : (*document)->ops()) {
    std::string line(op.name);
    for (const Value& result : (*document)->results(op)) absl::StrAppend(&line, " ", result.id);
    absl::StrAppend(&line, " <-");
    for (const Operand& operand : (*document)->operands(op)) {
      absl::StrAppend(&line, " ",
                      operand.value == kNoValue ? 0 : (*document)->value(operand.value).id);
    }
    lines.push_back(line);
  }
  return lines;
}

class Edit {
 public:
  explicit Edit(const std::string& file) : Edit(*ImportBytes(Files().at(file))) {}
  explicit Edit(Program program) : program_(std::move(program)) {}

  OpId op(size_t position) const { return program_.block(0).ops()[position]; }
  Program& program() { return program_; }

  absl::StatusOr<std::string> InsertAfter(size_t position, const std::vector<pb::OpDesc>& ops,
                                          const std::vector<pb::VarDesc>& vars = {}) {
    Rewriter rewriter(&program_);
    for (const pb::OpDesc& op : ops) rewriter.InsertAfter(this->op(position), op);
    for (const pb::VarDesc& var : vars) rewriter.AddVar(0, var);
    const absl::Status status = rewriter.Commit();
    if (!status.ok()) return status;
    return ExportProgram(program_);
  }

 private:
  Program program_;
};

inline pb::OpDesc InPlace(const std::string& type, const std::string& var) {
  weft::testing::ProgramBuilder builder;
  const bool is_collective = type == "all_reduce" || type == "broadcast";
  builder.Op(type, {{is_collective ? "x" : "X", {var}}}, {{is_collective ? "out" : "Out", {var}}});
  if (type == "all_reduce") builder.IntAttr("ring_id", 2).IntAttr("reduce_type", 0);
  if (type == "scale") builder.FloatAttr("scale", 0.5f);
  return builder.last_op();
}

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_EXPORTER_TESTING_H_
