// Trains what rewrite has written, on four ranks of this process: run MAIN STARTUP FEEDS.npz.
#include <cstdio>
#include <string>

#include "weft/base/status_macros.h"
#include "weft/executor/run/feed_sources.h"
#include "weft/executor/run/runner.h"
#include "weft/ops/kernel.h"
#include "weft/proto/formats/program_file.h"

absl::Status Train(const std::string& main_path, const std::string& startup_path,
                   const std::string& feeds_path) {
  WEFT_ASSIGN_OR_RETURN(const weft::Program main, weft::ReadProgram(main_path));
  WEFT_ASSIGN_OR_RETURN(const weft::Program startup, weft::ReadProgram(startup_path));
  weft::RunInputs inputs;
  inputs.main = &main;
  inputs.startup = &startup;
  WEFT_ASSIGN_OR_RETURN(inputs.feeds, weft::FeedsFromFile(feeds_path));
  inputs.feeds.layouts = {{"x", {/*axis=*/0}}, {"y", {/*axis=*/0}}};
  inputs.on_result = [](const weft::StepResult& result) {
    if (result.rank == 0) {
      std::printf("step %d: %g\n", static_cast<int>(result.step), *result.values[0].data<float>());
    }
    return absl::OkStatus();
  };
  weft::RunOptions options;
  options.kernels = &weft::CpuKernels();
  options.nranks = 4;
  options.steps = 5;
  return weft::RunProgram(inputs, options).status();
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const absl::Status status = Train(argv[1], argv[2], argv[3]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
