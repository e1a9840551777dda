// Any text as the text of a pipeline: refused with a message, or read, and then printed as a text
// that reads back as the same pipeline. Names and options may not exist.

#include "base/spec_text.h"
#include "tests/fuzz/fuzz.h"
#include "transpiler/buckets/bucket_policy.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/pipeline/pipeline.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto specs = weft::ParseSpecs(text);
  if (!specs.ok()) {
    RequireCleanError(specs.status());
  } else {
    const auto again = weft::ParseSpecs(weft::ToString(*specs));
    RequireOk(again.status(), "the printed text");
    Require(*again == *specs, "the printed text reads back as another pipeline");
    const auto pipeline = weft::Pipeline::FromSpecs(*specs, weft::BuiltinPasses());
    if (!pipeline.ok()) RequireCleanError(pipeline.status());
  }
  const auto buckets = weft::BucketPolicy::Parse(text);
  if (!buckets.ok()) RequireCleanError(buckets.status());
  return 0;
}
