// Bytes as a training step of PyTorch: an archive, or its entry models/model.json and, after a NUL,
// what the archive says of weights. Refused with a message, or translated, and then written byte
// for byte. With an op inserted, what is written is such a file again.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/zip_archive.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/formats/pt2/exporter.h"
#include "proto/formats/pt2/importer.h"
#include "proto/rewriter.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

namespace {

weft::FileBytes FileOf(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  return {owner, *owner};
}

// An archive with weights of zeros.
std::string ArchiveOf(absl::string_view text) {
  const size_t end = std::min(text.find('\0'), text.size());
  std::map<std::string, std::string> entries = {
      {"a/archive_format", "pt2"},
      {"a/archive_version", "0"},
      {"a/byteorder", "little"},
      {"a/models/model.json", std::string(text.substr(0, end))},
      {"a/data/constants/model_constants_config.json", R"({"config": {}})"},
      {"a/data/weights/model_weights_config.json",
       std::string(text.substr(end == text.size() ? end : end + 1))},
      {"a/data/weights/weight_0", std::string(24, '\0')},
      {"a/data/weights/weight_1", std::string(24, '\0')},
  };
  const std::string empty = std::string("PK\5\6", 4) + std::string(18, '\0');
  const auto archive = weft::WithEntries(empty, entries);
  RequireOk(archive.status(), "an archive");
  return *archive;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (!absl::StartsWith(bytes, "PK")) bytes = ArchiveOf(bytes);
  const auto values = weft::pt2::ReadStartValues(FileOf(bytes));
  if (!values.ok()) RequireCleanError(values.status());
  const auto startup = weft::pt2::ImportStartup(FileOf(bytes));
  if (!startup.ok()) RequireCleanError(startup.status());
  absl::StatusOr<weft::Program> program = weft::pt2::ImportProgram(FileOf(bytes));
  if (!program.ok()) {
    RequireCleanError(program.status());
    return 0;
  }
  const absl::StatusOr<std::string> same = weft::pt2::ExportProgram(*program);
  RequireOk(same.status(), "written");
  Require(*same == bytes, "written otherwise than read");

  const auto ops = program->block(0).ops();
  if (ops.empty() || !program->block(0).FindVar("loss").valid()) return 0;
  weft::pb::OpDesc scale;
  scale.set_type("scale");
  for (auto* slots : {scale.mutable_inputs(), scale.mutable_outputs()}) {
    weft::pb::OpDesc::Var* const slot = slots->Add();
    slot->set_parameter(slots == scale.mutable_inputs() ? "X" : "Out");
    slot->add_arguments("loss");
  }
  weft::Rewriter rewriter(&*program);
  rewriter.InsertAfter(ops.back(), scale);
  RequireOk(rewriter.Commit(), "an op more");
  const absl::StatusOr<std::string> written = weft::pt2::ExportProgram(*program);
  if (!written.ok()) {
    RequireCleanError(written.status());
    return 0;
  }
  RequireOk(weft::pt2::ImportProgram(FileOf(*written)).status(), "written with an op more");
  return 0;
}
