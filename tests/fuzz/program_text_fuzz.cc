// Any text as program text: refused with line and column, or read, and then printed as a text that
// reads back as the same program.
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<weft::pb::ProgramDesc> desc = weft::ParseProgramDescText(text);
  if (!desc.ok()) {
    RequireCleanError(desc.status());
    return 0;
  }
  const std::string printed = weft::testing::MessageText(*desc);
  const absl::StatusOr<weft::pb::ProgramDesc> again = weft::ParseProgramDescText(printed);
  RequireOk(again.status(), "the printed text");
  Require(again->SerializePartialAsString() == desc->SerializePartialAsString(),
          "the printed text reads back as another program");
  Require(weft::testing::MessageText(*again) == printed, "printed otherwise the second time");

  const absl::StatusOr<weft::Program> program = weft::ParseProgramText(text);
  if (!program.ok()) RequireCleanError(program.status());
  return 0;
}
