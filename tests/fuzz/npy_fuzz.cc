// Bytes as the header of a .npy file: refused with a message, or read, and then written as a header
// that says the same.
#include "executor/files/npy.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::Require;
using weft::testing::RequireCleanError;
using weft::testing::RequireOk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = weft::ParseNpyHeader(bytes);
  if (!header.ok()) {
    RequireCleanError(header.status());
    return 0;
  }
  Require(header->header_bytes <= size, "the header is longer than the file");
  const auto written = weft::NpyHeaderFor(header->dtype, header->dims);
  RequireOk(written.status(), "the header that says the same");
  const auto again = weft::ParseNpyHeader(*written);
  RequireOk(again.status(), "reading it");
  Require(again->dtype == header->dtype && again->dims == header->dims &&
              again->data_bytes == header->data_bytes,
          "it says something else");
  return 0;
}
