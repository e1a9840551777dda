// Bytes as an .npz archive, as feeds, and as a save_combine file: each refused with a message, or
// read whole.
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "executor/run/feed_sources.h"
#include "tests/fuzz/fuzz.h"

using weft::testing::MemoryFile;
using weft::testing::Require;
using weft::testing::RequireCleanError;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  const auto archive = weft::NpzFile::Open(file.path());
  if (archive.ok()) {
    for (const std::string& name : archive->names()) {
      const auto type = archive->Type(name);
      if (!type.ok()) RequireCleanError(type.status());
      const auto tensor = archive->Read(name);
      if (!tensor.ok()) {
        RequireCleanError(tensor.status());
        continue;
      }
      Require(type.ok() && type->dtype == tensor->dtype() && type->dims == tensor->dims(),
              "an array is not what its header says");
    }
  } else {
    RequireCleanError(archive.status());
  }

  const auto feeds = weft::FeedsFromFile(file.path());
  if (feeds.ok()) {
    Require(archive.ok(), "feeds that are no archive");
    const auto types = feeds->types(0);
    if (!types.ok()) RequireCleanError(types.status());
    const auto step = feeds->read(feeds->num_steps);
    if (!step.ok()) RequireCleanError(step.status());
  } else {
    RequireCleanError(feeds.status());
  }

  const auto params = weft::ReadSaveCombine(file.path(), {"a", "b", "c"});
  if (!params.ok()) RequireCleanError(params.status());
  return 0;
}
