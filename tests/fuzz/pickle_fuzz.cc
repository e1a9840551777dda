// Bytes as a .pdparams file: refused with a message, or read.
#include "executor/files/pickle.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::MemoryFile;
using weft::testing::Require;
using weft::testing::RequireCleanError;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const auto tensors = weft::ReadPickle(file.path());
  if (!tensors.ok()) {
    RequireCleanError(tensors.status());
    return 0;
  }
  for (const auto& [name, tensor] : *tensors) {
    // Several arrays may be made of the same bytes.
    Require(tensor.bytes() <= size, "an array is larger than the file");
  }
  return 0;
}
