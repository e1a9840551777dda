// Writes a large training program: generate_program NUM_OPS NUM_GRADIENTS OUT.pb
// [few_attributes|startup]
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "base/file.h"
#include "tests/benchmarks/generated_program.h"

int main(int argc, char** argv) {
  weft::GeneratedProgramOptions options;
  const std::string more = argc == 5 ? argv[4] : "";
  const bool few = more == "few_attributes", startup = more == "startup";
  if ((argc != 4 && !few && !startup) || !absl::SimpleAtoi(argv[1], &options.num_ops) ||
      !absl::SimpleAtoi(argv[2], &options.num_gradients)) {
    std::cerr << "usage: generate_program NUM_OPS NUM_GRADIENTS OUT.pb [few_attributes|startup]\n";
    return 2;
  }
  if (few) options.attributes = weft::GeneratedProgramOptions::Attributes::kFew;
  const absl::Status status = weft::WriteFile(
      argv[3], startup ? weft::GenerateStartup(options) : weft::GenerateProgram(options));
  if (!status.ok()) std::cerr << "generate_program: error: " << argv[3] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
