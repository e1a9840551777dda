// Times the layers of the verifier on a large training program.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "benchmark/benchmark.h"
#include "proto/program.h"
#include "tests/benchmarks/generated_program.h"
#include "transpiler/verifier/findings/finding.h"
#include "transpiler/verifier/structure/structure.h"
#include "transpiler/verifier/structure/types.h"
#include "transpiler/verifier/structure/uninitialized_reads.h"

namespace weft {
namespace {

constexpr int64_t kOps = 1000000;

const Program& TheProgram() {
  static const Program* const program = [] {
    GeneratedProgramOptions options;
    options.num_ops = kOps;
    absl::StatusOr<Program> parsed = Program::Parse(GenerateProgram(options));
    if (!parsed.ok()) {
      std::fprintf(stderr, "verify_benchmark: %s\n", parsed.status().ToString().c_str());
      std::abort();
    }
    return new Program(*std::move(parsed));
  }();
  return *program;
}

// `check` is called with findings to add to, which must stay empty.
template <typename Check>
void RunLayer(benchmark::State& state, const Check& check) {
  TheProgram();
  for (auto _ : state) {
    Findings findings;
    check(&findings);
    if (!findings.all().empty()) {
      state.SkipWithError(ToString(findings.all()[0]).c_str());
      break;
    }
  }
  state.counters["op"] = benchmark::Counter(
      kOps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_Structure(benchmark::State& state) {
  RunLayer(state, [](Findings* f) {
    CheckStructure(TheProgram(), ProgramRef(), f);
    CheckUninitializedReads(TheProgram(), ProgramRef(), f);
  });
}
BENCHMARK(BM_Structure)->Unit(benchmark::kMillisecond);

void BM_Types(benchmark::State& state) {
  RunLayer(state, [](Findings* f) { CheckTypes(TheProgram(), ProgramRef(), f); });
}
BENCHMARK(BM_Types)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
