// Bytes as a program that is rewritten in every mode: refused with a message, or rewritten, and
// then a sound program.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/program.h"
#include "tests/fuzz/fuzz.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/structure/structure.h"

namespace weft {
namespace {

using testing::RequireCleanError;
using testing::RequireOk;

struct Config {
  const char* mode;
  std::map<std::string, std::string> flags = {};
};

void Rewrite(const Config& config, Dialect dialect, bool with_startup, const Program& program) {
  TranspileOptions options;
  options.mode = config.mode;
  options.mode_flags = config.flags;
  options.dialect = dialect;
  options.explain = with_startup;
  if (dialect == Dialect::kPaddle) {
    options.cluster.endpoints = {"a:1", "b:1"};
    if (options.mode != "grad_allreduce" && options.mode != "local_sgd") {
      options.cluster.devices = {{0}};
    }
  } else {
    options.cluster.nranks = 2;
  }
  Program main = program, startup = program;
  ProgramPair programs{&main, with_startup ? &startup : nullptr};
  static const auto* passes = new PassRegistry(BuiltinPasses());
  const auto result = Transpile(options, programs, *passes);
  if (!result.ok()) {
    RequireCleanError(result.status());
    return;
  }
  for (const Program* rewritten : {&main, &startup}) {
    const auto again = Program::Parse(rewritten->Serialize());
    RequireOk(again.status(), absl::StrCat(config.mode, ", written and read"));
    RequireOk(VerifyStructure(*again), absl::StrCat(config.mode, ", verified"));
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::Dialect;
  static const auto* weft_configs = new std::vector<weft::Config>{
      {"grad_allreduce", {{"nrings", "2"}}},
      {"grad_allreduce", {{"buckets", "bytes{first_bytes=64,max_bytes=256}"}}},
      {"multi_thread", {{"trans_mode", "all_gather"}}},
      {"multi_thread", {{"buckets", "count{count=3}"}, {"sparse", "dense"}}},
      {"single_process_multi_thread"},
      {"local_sgd"},
      {"local_sgd", {{"k_steps", "2"}, {"state", "reset"}, {"statistics", "true"}}}};
  static const auto* paddle_configs =
      new std::vector<weft::Config>{{"grad_allreduce"},
                                    {"multi_thread"},
                                    {"multi_thread", {{"trans_mode", "all_gather"}}},
                                    {"single_process_multi_thread"},
                                    {"local_sgd"}};
  const auto program = weft::Program::Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!program.ok() || !weft::VerifyStructure(*program).ok()) return 0;
  const bool kWithStartup = true;
  for (const auto& config : *weft_configs) {
    weft::Rewrite(config, Dialect::kWeft, kWithStartup, *program);
  }
  for (const auto& config : *paddle_configs) {
    weft::Rewrite(config, Dialect::kPaddle, kWithStartup, *program);
  }
  weft::Rewrite(weft_configs->front(), Dialect::kWeft, !kWithStartup, *program);
  weft::Rewrite(paddle_configs->front(), Dialect::kPaddle, !kWithStartup, *program);
  return 0;
}
