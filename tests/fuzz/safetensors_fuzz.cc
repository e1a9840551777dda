// Bytes as a safetensors file, and as a checkpoint: each refused with a message, or read whole.
#include "executor/files/checkpoint.h"
#include "executor/files/safetensors.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::MemoryFile;
using weft::testing::Require;
using weft::testing::RequireCleanError;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const auto tensors = weft::SafetensorsFile::Open(file.path());
  if (tensors.ok()) {
    for (const auto& [name, type] : tensors->types()) {
      const auto tensor = tensors->Read(name);
      if (!tensor.ok()) {
        RequireCleanError(tensor.status());
        continue;
      }
      Require(type.dtype == tensor->dtype() && type.dims == tensor->dims(),
              "a tensor is not what the header says");
    }
  } else {
    RequireCleanError(tensors.status());
  }

  const auto checkpoint = weft::ReadCheckpoint(file.path());
  if (checkpoint.ok()) {
    Require(tensors.ok(), "a checkpoint that is no safetensors file");
    Require(checkpoint->own.size() == static_cast<size_t>(checkpoint->nranks),
            "a checkpoint without a place for each rank");
  } else {
    RequireCleanError(checkpoint.status());
  }
  return 0;
}
