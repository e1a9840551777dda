// Bytes as a file of Paddle 3: refused with a message, or translated, and then written byte for
// byte. With an op inserted, what is written is such a file again.
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/importer.h"
#include "proto/rewriter.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto document = weft::pir::Document::Parse(bytes);
  if (!document.ok()) {
    RequireCleanError(document.status());
    return 0;
  }
  absl::StatusOr<weft::Program> program = weft::pir::ImportProgram(*document);
  if (!program.ok()) {
    RequireCleanError(program.status());
    return 0;
  }
  const absl::StatusOr<std::string> same = weft::pir::ExportProgram(*program);
  RequireOk(same.status(), "written");
  Require(*same == bytes, "written otherwise than read");

  const auto ops = program->block(0).ops();
  if (ops.empty() || program->op(ops.back()).output_args().empty()) return 0;
  const std::string var(program->name(program->op(ops.back()).output_args()[0]));
  weft::pb::OpDesc scale;
  scale.set_type("scale");
  for (auto* slots : {scale.mutable_inputs(), scale.mutable_outputs()}) {
    weft::pb::OpDesc::Var* const slot = slots->Add();
    slot->set_parameter(slots == scale.mutable_inputs() ? "X" : "Out");
    slot->add_arguments(var);
  }
  weft::Rewriter rewriter(&*program);
  rewriter.InsertAfter(ops.back(), scale);
  if (!rewriter.Commit().ok()) return 0;  // the name of no variable
  const absl::StatusOr<std::string> written = weft::pir::ExportProgram(*program);
  if (!written.ok()) {
    RequireCleanError(written.status());
    return 0;
  }
  RequireOk(weft::pir::Document::Parse(*written).status(), "written with an op more");
  return 0;
}
