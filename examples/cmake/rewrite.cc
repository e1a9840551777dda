// Rewrites a training program for four ranks: rewrite IN OUT.
#include <cstdio>
#include <string>

#include "weft/base/status_macros.h"
#include "weft/proto/formats/program_file.h"
#include "weft/transpiler/transpile.h"

absl::Status TrainOnFourRanks(const std::string& in, const std::string& out) {
  WEFT_ASSIGN_OR_RETURN(weft::Program main, weft::ReadProgram(in));
  weft::ProgramPair programs{&main, /*startup=*/nullptr};
  weft::TranspileOptions options;
  options.mode = "grad_allreduce";
  options.cluster.nranks = 4;
  WEFT_RETURN_IF_ERROR(weft::Transpile(options, programs).status());
  return weft::WriteProgram(main, out);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = TrainOnFourRanks(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
