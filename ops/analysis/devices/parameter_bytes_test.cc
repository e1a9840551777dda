#include "ops/analysis/devices/parameter_bytes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

Program Parse(const std::string& body) {
  const std::string vars = R"(
    var w : fp32[8] persistable parameter
    var lr : fp32[1] persistable
    var v : fp32[8] persistable
    var w@GRAD : fp32[8]
    var h : fp16[8]
    var h@GRAD : fp16[8]
    var g : fp16[8]
    var x : fp16[8]
    var y : fp16[8]
)";
  const absl::StatusOr<Program> program =
      ParseProgramText(absl::StrCat("program {\nblock 0 parent=-1 {", vars, body, "\n}\n}\n"));
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

constexpr char kUpdate[] =
    "ParamOut=[w], VelocityOut=[v] = momentum(Grad=[w@GRAD], LearningRate=[lr], Param=[w], "
    "Velocity=[v]) {mu=0.9}";

TEST(ParameterBytesTest, CountParameterGradientAndState) {
  const Program program = Parse(kUpdate);
  EXPECT_EQ(FindParameterBytes(program).elements, 8);
  EXPECT_EQ(FindParameterBytes(program).Of(DeviceKind::kAccelerator), 12);
}

// Half precision next to parameters in fp32: the copy that is computed with, and its gradient.
TEST(ParameterBytesTest, CountWhatIsCast) {
  const Program program = Parse(absl::StrCat(R"(
    Out=[h] = cast(X=[w]) {in_dtype=5, out_dtype=4}
    Out=[y] = elementwise_mul(X=[x], Y=[h]) {axis=-1}
    Out=[h@GRAD] = relu(X=[y])
    Out=[w@GRAD] = cast(X=[h@GRAD]) {in_dtype=4, out_dtype=5}
    )",
                                             kUpdate));
  EXPECT_EQ(FindParameterBytes(program).Of(DeviceKind::kAccelerator), 16);
}

// On the other device, a copy of the gradient is cast.
TEST(ParameterBytesTest, CountWhatIsCastAfterACopy) {
  const std::string on_host = absl::StrCat(kUpdate);
  const Program program =
      Parse(absl::StrCat(R"(
    Out=[h] = relu(X=[x])
    Out=[g] = memcpy_d2h(X=[h])
    Out=[g] = stream_wait(X=[g]) {stream="cpu", awaited="d2h"}
    Out=[w@GRAD] = cast(X=[g]) {in_dtype=4, out_dtype=5, op_device="cpu"}
    )",
                         on_host.substr(0, on_host.size() - 1), ", op_device=\"cpu\"}"));
  EXPECT_EQ(FindParameterBytes(program).Of(DeviceKind::kAccelerator), 2);
  EXPECT_EQ(FindParameterBytes(program).Of(DeviceKind::kHost), 14);
}

}  // namespace
}  // namespace weft
