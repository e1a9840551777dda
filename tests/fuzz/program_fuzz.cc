// Bytes as a program: refused with a message, or read, and then written byte for byte; what
// protobuf makes of the bytes is what the program holds.
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "proto/program.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"
#include "tests/fuzz/fuzz.h"
#include "transpiler/verifier/structure/structure.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<weft::Program> program = weft::Program::Parse(bytes);
  if (!program.ok()) {
    RequireCleanError(program.status());
    return 0;
  }
  Require(program->Serialize() == bytes, "written otherwise than read");

  weft::pb::ProgramDesc desc;
  // Partial: to protobuf, an enum number that it does not know is a missing field.
  Require(desc.ParsePartialFromString(bytes), "protobuf refuses it");
  Require(desc.blocks_size() == program->num_blocks(), "another number of blocks");
  for (int b = 0; b < desc.blocks_size(); ++b) {
    const auto ops = program->block(b).ops();
    Require(desc.blocks(b).ops_size() == static_cast<int>(ops.size()), "another number of ops");
    for (size_t i = 0; i < ops.size(); ++i) {
      Require(desc.blocks(b).ops(i).type() == program->op(ops[i]).type(), "another type");
    }
    Require(desc.blocks(b).vars_size() == static_cast<int>(program->block(b).vars().size()),
            "another number of variables");
  }

  const absl::Status verified = weft::VerifyStructure(*program);
  if (!verified.ok()) RequireCleanError(verified);

  // The text tells all that protobuf keeps.
  const absl::StatusOr<weft::pb::ProgramDesc> read =
      weft::ParseProgramDescText(weft::testing::MessageText(desc));
  RequireOk(read.status(), "its text");
  Require(read->SerializePartialAsString() == desc.SerializePartialAsString(),
          "its text reads back as another program");
  return 0;
}
