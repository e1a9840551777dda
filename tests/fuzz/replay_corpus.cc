// Gives a fuzz target the files that are named, one after the other: its corpus as an ordinary
// test.
#include <cstdio>

#include "base/file.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE...\n", argv[0]);
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    // The last one named is the one that fails.
    std::printf("%s\n", argv[i]);
    std::fflush(stdout);
    const auto file = weft::ReadFile(argv[i]);
    weft::testing::RequireOk(file.status(), argv[i]);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file->bytes.data()),
                           file->bytes.size());
  }
  std::printf("%d inputs\n", argc - 1);
  return 0;
}
