#include "transpiler/passes/devices/offload_masters.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

constexpr char kMain[] = R"(
    var w : fp16[2, 2] parameter persistable
    var w@GRAD : fp16[2, 2]
    var v : fp16[2, 2] persistable
    var lr : fp32[1] persistable
    Out=[w@GRAD] = scale(X=[w]) role=backward {scale=2.0}
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Grad=[w@GRAD], Velocity=[v], LearningRate=[lr]) role=optimize {mu=0.9}
)";
constexpr char kStartup[] = R"(
    var w, v : fp16[2, 2] persistable
    Out=[w] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.5}
    Out=[v] = fill_constant() {shape=longs[2, 2], dtype=4, value=0.0}
)";

struct Result {
  absl::Status status;
  std::string main, startup;  // canonical text
};

// Keeps or drops the master weight of the last op.
Result Rewrite(bool keeps, const std::string& main_text, const std::string& startup_text) {
  Program main = CompactProgram(main_text), startup = CompactProgram(startup_text);
  const ProgramPair programs{&main, startup_text.empty() ? nullptr : &startup};
  ProgramEdits edits(programs);
  OffloadMasters masters(programs, &edits);
  const Op op = main.op(main.block(0).ops().back());
  pb::OpDesc desc = op.ToProto();
  Result result{keeps ? masters.Keep(op, &desc) : masters.Drop(op, &desc), "", ""};
  edits.main.Replace(op.id(), desc);
  if (result.status.ok()) result.status = edits.Commit().status();
  result.main = CanonicalText(main.ToProto());
  result.startup = CanonicalText(startup.ToProto());
  return result;
}

TEST(OffloadMasters, MasterAndStateBecomeFp32) {
  const Result kept = Rewrite(true, kMain, kStartup);
  WEFT_ASSERT_OK(kept.status);
  for (const std::string* text : {&kept.main, &kept.startup}) {
    EXPECT_THAT(*text, HasSubstr("var w@MASTER : fp32[2, 2] persistable"));
    EXPECT_THAT(*text, HasSubstr("var v : fp32[2, 2] persistable"));
  }
  EXPECT_THAT(kept.main,
              AllOf(HasSubstr("MasterParamOut=[w@MASTER]"), HasSubstr("MasterParam=[w@MASTER]"),
                    HasSubstr("multi_precision=true")));
  EXPECT_THAT(kept.startup, AllOf(HasSubstr("Out=[w@MASTER] = cast(X=[w])"),
                                  HasSubstr("Out=[v] = fill_constant() role=forward {shape")));
  EXPECT_EQ(Rewrite(true, kept.main, kept.startup).main, kept.main)
      << "there is nothing left to do";
}

TEST(OffloadMasters, DropIsTheInverseButForTheState) {
  const Result kept = Rewrite(true, kMain, kStartup),
               dropped = Rewrite(false, kept.main, kept.startup);
  WEFT_ASSERT_OK(dropped.status);
  EXPECT_THAT(dropped.main, Not(HasSubstr("MASTER")));
  EXPECT_THAT(dropped.startup, Not(HasSubstr("MASTER")));
  EXPECT_THAT(dropped.main, Not(HasSubstr("multi_precision=true")));
  EXPECT_THAT(dropped.main, HasSubstr("var v : fp32[2, 2] persistable"));
}

TEST(OffloadMasters, SaysWhichUpdatesItChanges) {
  const auto of = [](const std::string& text) {
    const Program program = CompactProgram(text);
    const Op op = program.op(program.block(0).ops().back());
    return std::pair(OffloadMasters::WouldKeep(op), OffloadMasters::WouldDrop(op));
  };
  EXPECT_EQ(of(kMain), std::pair(true, true)) << "state in half precision";
  EXPECT_EQ(of(absl::StrReplaceAll(kMain, {{"fp16", "fp32"}})), std::pair(false, false));
  const Result kept = Rewrite(true, kMain, kStartup);
  EXPECT_EQ(of(kept.main), std::pair(false, true));
}

TEST(OffloadMasters, RefusesWhatItCannotBegin) {
  EXPECT_THAT(Rewrite(true, kMain, "").status,
              IsFailedPrecondition("state in half precision (v) changes the startup program"));
  EXPECT_THAT(Rewrite(true, kMain,
                      absl::StrReplaceAll(
                          kStartup, {{"[v] = fill_constant() {", "[v] = uniform_random() {"}}))
                  .status,
              IsFailedPrecondition("begins with a constant of the startup program, found fp16"));
  EXPECT_THAT(Rewrite(false, kMain, kStartup).status,
              IsFailedPrecondition("op 1 (momentum) input Velocity (v): expected state in fp32"));
}

}  // namespace
}  // namespace weft::testing
