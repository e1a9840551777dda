#include "transpiler/passes/devices/place_spec.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/block_text.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kOps[] = R"(
    var w : fp32[2, 2] parameter persistable
    Out=[y] = mul(X=[x], Y=[w])
    Out=[z] = relu(X=[y])
    Y@GRAD=[w@GRAD] = mul_grad(Out@GRAD=[y@GRAD], X=[x], Y=[w])
    Out=[a] = scale(X=[z]) {op_device="cpu"}
    Out=[b] = scale(X=[z]) {op_device="gpu:0"}
)";

// "h" for the host, "a" for the accelerator, "-" for ops that no rule matches.
std::string Found(const PlaceSpec& spec, const Program& program) {
  std::string found;
  for (OpId id : program.block(0).ops()) {
    const absl::optional<DeviceKind> device = spec.Find(program.op(id));
    found += !device.has_value() ? '-' : *device == DeviceKind::kHost ? 'h' : 'a';
  }
  return found;
}

TEST(PlaceSpec, FirstRuleThatMatchesDecides) {
  const Program program = testing::BlockProgram(kOps);
  const auto found = [&](const char* text) { return Found(*PlaceSpec::Parse(text), program); };
  EXPECT_EQ(found(""), "-----");
  EXPECT_EQ(found("type:mul*=cpu"), "h-h--");
  EXPECT_EQ(found("type:mul=cpu, type:mul*=sim"), "h-a--");
  EXPECT_EQ(found("param:w=cpu"), "h-h--");
  EXPECT_EQ(found("param:y=cpu"), "-----");
  EXPECT_EQ(found("name:z=cpu"), "-h---");
  EXPECT_EQ(found("name:*@G*D=cpu"), "--h--");
  EXPECT_EQ(found("type:*=gpu"), "aaaaa");
}

TEST(PlaceSpec, BuffersAreNamedAndNoSlices) {
  const Program program = testing::BlockProgram(R"(
    FusedOutput=[fused], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}
    Out=[a] = relu(X=[x])
    Out=[fused] = scale(X=[fused])
)");
  EXPECT_EQ(Found(*PlaceSpec::Parse("name:a=cpu"), program), "-h-");
  EXPECT_EQ(Found(*PlaceSpec::Parse("name:fused=cpu"), program), "h-h");
}

TEST(PlaceSpec, OtherOpsRunWhereTheySayOrOnTheOtherDevice) {
  const Program program = testing::BlockProgram(kOps);
  const auto rest = [&](const char* text) {
    const PlaceSpec spec = *PlaceSpec::Parse(text);
    std::string found;
    for (OpId id : program.block(0).ops()) {
      found += *spec.Default(program.op(id)) == DeviceKind::kHost ? 'h' : 'a';
    }
    return found;
  };
  EXPECT_EQ(rest("type:relu=cpu"), "aaaha");
  EXPECT_EQ(rest("type:relu=sim"), "hhhha");
  EXPECT_EQ(rest("type:relu=sim,type:mul=cpu"), "aaaha");
}

TEST(PlaceSpec, FindsUpdatesOnTheHostByGradientsOfTheAccelerator) {
  const Program program = testing::BlockProgram(R"(
    var v : fp32[2] parameter persistable
    var w : fp32[2] parameter persistable
    Out=[v@GRAD] = scale(X=[x]) {scale=2.0}
    Out=[w@GRAD] = relu(X=[x])
    ParamOut=[v] = sgd(Param=[v], Grad=[v@GRAD], LearningRate=[lr])
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) {op_device="cpu"}
)");
  const auto found = [&](const char* text) {
    return PlaceSpec::Parse(text)->UpdatedOnHost(program);
  };
  EXPECT_THAT(found("op_device"), ElementsAre("w"));
  EXPECT_THAT(found("type:sgd=cpu"), ElementsAre("v", "w"));
  EXPECT_THAT(found("type:sgd=cpu,type:relu=cpu"), ElementsAre("v"));
  EXPECT_THAT(found("param:v=cpu"), ElementsAre("w"));
  EXPECT_THAT(found("type:s*=sim"), ElementsAre());
}

// "RULE: WHY"
std::vector<std::string> Unused(const char* rules) {
  std::vector<std::string> unused;
  const Program program = testing::BlockProgram(kOps);
  for (const PlaceSpec::UnusedRule& rule : PlaceSpec::Parse(rules)->Unused(program)) {
    unused.push_back(absl::StrCat(rule.text, ": ", rule.why));
  }
  return unused;
}

TEST(PlaceSpec, RulesThatMatchNothingAreListed) {
  EXPECT_THAT(Unused("type:adam=cpu,type:mul=cpu"),
              ElementsAre("type:adam=cpu: found none that matches"));
  EXPECT_THAT(Unused("type:mul=cpu"), IsEmpty());
}

TEST(PlaceSpec, RulesThatEarlierOnesShadowAreListed) {
  EXPECT_THAT(Unused("type:mul=cpu,type:*=sim"), IsEmpty());
  EXPECT_THAT(Unused("type:mul=cpu,type:mul=sim"),
              ElementsAre(AllOf(StartsWith("type:mul=sim: found that earlier rules take all that "
                                           "match: 'type:mul=cpu' takes op "),
                                HasSubstr("(mul); rules are tried in order"))));
  EXPECT_THAT(Unused("type:*=sim,type:mul=cpu"), ElementsAre(StartsWith("type:mul=cpu: ")));
}

TEST(PlaceSpec, MistakesAreNamed) {
  const auto error = [](const char* text) { return PlaceSpec::Parse(text).status(); };
  for (const char* text : {"adam=cpu", "type:adam", "type:=cpu"}) {
    EXPECT_THAT(error(text), IsInvalidArgument("expected type:PATTERN=DEVICE"));
  }
  EXPECT_THAT(error(" ,"), IsInvalidArgument("place ' ,': expected rules"));
  EXPECT_THAT(error("op:adam=cpu"), IsInvalidArgument("expected type, param or name, found 'op'"));
  EXPECT_THAT(error("type:adam=npu"), IsInvalidArgument("expected device cpu, sim or gpu"));
  EXPECT_THAT(error("type:adam=gpu,type:mul=sim"),
              IsInvalidArgument("expected one kind of accelerator, found gpu and sim"));
}

}  // namespace
}  // namespace weft::testing
