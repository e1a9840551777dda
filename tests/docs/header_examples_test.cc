// The examples in the comments of headers that embedders use. header_examples_test.py compares
// them: every line of an example stands here too, in its order, under the name of its header.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/option_binder.h"
#include "base/status_macros.h"
#include "base/testing/test.h"
#include "proto/formats/program_file.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// base/file.h
absl::Status Write(const std::string& path, absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  WEFT_RETURN_IF_ERROR(file.Write(bytes));
  WEFT_RETURN_IF_ERROR(file.Commit());
  return absl::OkStatus();
}

// base/option_binder.h
struct Options {
  int nrings = 1;  // communication rings
  void Bind(OptionBinder& bind) { bind.Int("nrings", &nrings, "communication rings", /*min=*/1); }
};

absl::StatusOr<int> Rings() {
  Options options;
  OptionBinder bind;
  options.Bind(bind);
  WEFT_RETURN_IF_ERROR(bind.Set({{"nrings", "2"}}));
  return options.nrings;
}

std::vector<std::string> used;
void Use(absl::string_view name) { used.emplace_back(name); }

// proto/program.h
absl::Status Parse(const std::string& bytes) {
  WEFT_ASSIGN_OR_RETURN(Program program, Program::Parse(bytes));
  for (OpId id : program.block(0).ops()) {
    Op op = program.op(id);
    if (op.type() == "sgd") Use(program.name(op.Input("Param")[0]));
  }
  return absl::OkStatus();
}

// proto/formats/program_file.h
absl::Status Stage(const std::vector<ProgramOutput>& outputs) {
  WEFT_ASSIGN_OR_RETURN(StagedPrograms staged, StagedPrograms::Write(outputs));
  WEFT_RETURN_IF_ERROR(staged.Commit());
  return absl::OkStatus();
}

// proto/rewriter.h
absl::Status Insert(OpId completes_gradient, const pb::OpDesc& all_reduce, Program program) {
  Rewriter rewriter(&program);
  rewriter.InsertAfter(completes_gradient, all_reduce);
  WEFT_RETURN_IF_ERROR(rewriter.Commit());
  return program.num_ops() == 14 ? absl::OkStatus() : absl::InternalError("expected one more op");
}

// transpiler/passes/support/op_builder.h
absl::Status Assign(const std::vector<std::pair<std::string, std::string>>& pairs,
                    Program program) {
  const int role = kRoleForward;
  Rewriter rewriter(&program);
  OpTemplate assign(BuildOp({"assign", {{"X", {}}}, {{"Out", {}}}, {}, role}));
  for (const auto& [from, to] : pairs) rewriter.Append(0, assign.Over({from}, {to}));
  return rewriter.Commit();
}

// transpiler/transpile.h
absl::Status TrainOnFourRanks(Program& main, Program& startup) {
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.mode = "grad_allreduce";
  options.cluster.nranks = 4;
  WEFT_ASSIGN_OR_RETURN(TranspileResult result, Transpile(options, programs));
  return result.passes.empty() ? absl::InternalError("no pass") : absl::OkStatus();
}

// transpiler/verifier/verify.h
bool IsVerified(const Program& main, const Program& startup, const Program& before,
                const Program& startup_before) {
  VerifyOptions options;
  options.setting.nranks = 4;
  options.original = {&before, &startup_before};
  const Findings findings = Verify({{&main, &startup}}, options);
  for (const Finding& finding : findings.all()) std::cerr << ToString(finding) << "\n";
  return !findings.HasErrors();
}

TEST(HeaderExamplesTest, ExamplesDoWhatTheirHeadersSay) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program before, ReadProgram(kMain));
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup_before, ReadProgram(kStartup));
  WEFT_EXPECT_OK(Write(TestPath("bytes"), "bytes"));
  WEFT_ASSERT_OK_AND_ASSIGN(const int rings, Rings());
  EXPECT_EQ(rings, 2);
  WEFT_EXPECT_OK(Parse(before.Serialize()));
  EXPECT_EQ(used, (std::vector<std::string>{"fc_0.b_0", "fc_0.w_0"}));
  WEFT_EXPECT_OK(Stage({{&before, TestPath("staged.pb")}}));
  const OpId last = before.block(0).ops().back();
  WEFT_EXPECT_OK(Insert(last, before.op(last).ToProto(), before));
  WEFT_EXPECT_OK(Assign({{"x", "fc_0.tmp_0"}}, before));

  Program main = before, startup = startup_before;
  WEFT_EXPECT_OK(TrainOnFourRanks(main, startup));
  EXPECT_TRUE(IsVerified(main, startup, before, startup_before));
}

}  // namespace
}  // namespace weft::testing
