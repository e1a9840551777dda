// A compiler that embeds Weft: adds a pass before Weft's passes, runs them on the programs of a
// model with one linear layer, and checks the result.
//
//   embed MAIN.pb STARTUP.pb        exit status 0 if all checks pass, else 1
#include <cstdio>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "drop_attr.h"
#include "proto/formats/program_file.h"
#include "transpiler/passes/builtin_passes.h"
#include "transpiler/transpile.h"

namespace embed {
namespace {

constexpr char kPipeline[] =
    "drop-attr{attr=op_namescope},comm-init{nrings=2},broadcast-params{nrings=2},scale-loss-grad,"
    "grad-all-reduce{nrings=2}";

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError("expected " + what);
}

std::map<std::string, int> CountOps(const weft::Program& program) {
  std::map<std::string, int> counts;
  for (weft::OpId id : program.block(0).ops()) ++counts[std::string(program.op(id).type())];
  return counts;
}

bool AnyOpHas(const weft::Program& program, const std::string& attr) {
  for (weft::OpId id : program.block(0).ops()) {
    if (program.op(id).HasAttr(attr)) return true;
  }
  return false;
}

absl::Status Run(const std::string& main_path, const std::string& startup_path) {
  WEFT_ASSIGN_OR_RETURN(weft::Program main, weft::ReadProgram(main_path));
  WEFT_ASSIGN_OR_RETURN(weft::Program startup, weft::ReadProgram(startup_path));
  const std::map<std::string, int> before = CountOps(main);
  WEFT_RETURN_IF_ERROR(Expect(AnyOpHas(main, "op_namescope"), "op_namescope before the pass"));

  weft::PassRegistry registry = weft::BuiltinPasses();
  registry.Add<DropAttr>();
  weft::TranspileOptions options;
  options.passes = kPipeline;
  options.cluster.nranks = 4;
  options.verification = weft::Verification::kAfterEachPass;
  options.explain = true;
  weft::ProgramPair programs{&main, &startup};
  WEFT_ASSIGN_OR_RETURN(const weft::TranspileResult result,
                        weft::Transpile(options, programs, registry));

  for (const weft::PassReport& report : result.passes) {
    std::printf("%-18s %s, %zu ops in the main program\n", report.pass.c_str(),
                report.changed ? "changed" : "no change", report.main_ops);
  }
  for (const weft::Remark& remark : result.remarks) {
    std::printf("%-18s %s: %s\n", remark.pass.c_str(), remark.subject.c_str(), remark.what.c_str());
  }

  WEFT_RETURN_IF_ERROR(Expect(!AnyOpHas(main, "op_namescope"), "no op_namescope after the pass"));
  std::map<std::string, int> after = CountOps(main);
  WEFT_RETURN_IF_ERROR(Expect(after["c_allreduce_sum"] == 2, "weight and bias to be reduced"));
  WEFT_RETURN_IF_ERROR(Expect(after["scale"] == 1, "the loss's gradient to be divided"));
  for (const auto& [type, count] : before) {
    WEFT_RETURN_IF_ERROR(Expect(after[type] == count, absl::StrCat(count, " ops ", type)));
  }
  WEFT_RETURN_IF_ERROR(
      Expect(CountOps(startup)["c_broadcast"] == 2, "weight and bias to be broadcast"));

  // Weft refuses to reduce gradients twice; the contract of its pass says so.
  const absl::Status again = weft::Transpile(options, programs, registry).status();
  return Expect(again.code() == absl::StatusCode::kFailedPrecondition,
                "a second run to be refused, found " + again.ToString());
}

}  // namespace
}  // namespace embed

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: embed MAIN.pb STARTUP.pb\n");
    return 1;
  }
  const absl::Status status = embed::Run(argv[1], argv[2]);
  if (!status.ok()) {
    std::fprintf(stderr, "embed: error: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("embed: everything is as it should be\n");
  return 0;
}
