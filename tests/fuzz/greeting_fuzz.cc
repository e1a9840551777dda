// Bytes as what a stranger or a process of the job says: a greeting, an error, a message between a
// process and the launcher. Refused, or read, and then written as what says the
// same.
#include "executor/jobs/job_messages.h"
#include "tests/fuzz/fuzz.h"
#include "tools/job/generations.h"

using weft::testing::Require;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto hello = weft::DecodeHello(bytes);
  if (hello.ok() && hello->version == weft::JobHello::kVersion) {
    const std::string written = weft::EncodeHello(*hello);
    const auto again = weft::DecodeHello(written);
    RequireOk(again.status(), "reading the greeting that says the same");
    Require(weft::EncodeHello(*again) == written, "it says something else");
  }
  Require(!weft::DecodeError(bytes).ok(), "an error that is none");
  const auto texts = weft::DecodeTexts(bytes);
  Require(!texts.ok() || weft::EncodeTexts({texts->begin(), texts->end()}) == bytes, "other texts");
  const auto control = weft::ControlMessage::Decode(bytes);
  Require(!control.has_value() || control->Encode() == bytes, "another message of the launcher");
  return 0;
}
