#include "transpiler/passes/lowering/executor_order.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/testing/message_lines.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Part of lower-to-target.
constexpr char kPass[] = "lower-to-target";

RewriteOptions Options() {
  RewriteOptions options = OnRanks(2);
  options.verification = Verification::kNever;  // fragments
  return options;
}

constexpr char kVars[] = R"(
    var a, b : fp32[64]
    var f : fp32[128]
    var a16, b16 : fp16[64]
    var f16 : fp16[128]
    var u : fp32[64]
)";
constexpr char kCoalesce[] =
    "    FusedOutput=[f], Output=[a, b] = coalesce_tensor(Input=[a, b]) {dtype=5}\n"
    "    Out=[a] = fill_constant() {shape=longs[64], dtype=5, value=1.0}\n"
    "    Out=[b] = fill_constant() {shape=longs[64], dtype=5, value=1.0}\n";
constexpr char kReduce[] =
    "    Out=[f] = c_allreduce_sum(X=[f]) {ring_id=0, use_calc_stream=true}\n";
constexpr char kHalve[] = "    Out=[f] = scale(X=[f]) {scale=0.5}\n";
constexpr char kHalveParts[] =
    "    Out=[a] = scale(X=[a]) {scale=0.5}\n    Out=[b] = scale(X=[b]) {scale=0.5}\n";
constexpr char kUse[] = "    Out=[u] = relu(X=[a])\n";

std::string Ops(std::initializer_list<absl::string_view> ops) {
  std::string text;
  for (absl::string_view op : ops) absl::StrAppend(&text, op);
  return text;
}

TEST(PartOrder, ADivisionBehindTheSumIsPerPart) {
  ExpectRewrite(kPass, Ops({kVars, kCoalesce, kReduce, kHalve, kUse}),
                Ops({kCoalesce, kReduce, kHalveParts, kUse}), Options());
}

TEST(PartOrder, ADivisionBeforeTheSumIsPerPart) {
  ExpectRewrite(kPass, Ops({kVars, kCoalesce, kHalve, kReduce, kUse}),
                Ops({kCoalesce, kHalveParts, kReduce, kUse}), Options());
}

// A later buffer of the same name has other parts.
TEST(PartOrder, PartsAreThoseThatTheBufferHasThen) {
  const std::string again =
      "    FusedOutput=[f], Output=[b, a] = coalesce_tensor(Input=[b, a]) {dtype=5}\n";
  ExpectRewrite(kPass, Ops({kVars, kCoalesce, kReduce, kHalve, kUse, again}),
                Ops({kCoalesce, kReduce, kHalveParts, kUse, again}), Options());
}

TEST(PartOrder, OneOpOnTheBufferIsInOrder) {
  ExpectNoRewrite(kPass, Ops({kVars, kCoalesce, kReduce, kUse}), Options());
}

// As when parameters are averaged at the end of a step.
TEST(PartOrder, NothingNeedsAnOrderWhereNoPartIsUsedBehindIt) {
  ExpectNoRewrite(kPass, Ops({kVars, kCoalesce, kReduce, kHalve}), Options());
}

TEST(PartOrder, OpsThatCommunicateOneAfterTheOtherAreInOrder) {
  ExpectNoRewrite(kPass,
                  Ops({kVars, kCoalesce, "    Out=[f] = c_wait_compute(X=[f]) {ring_id=0}\n",
                       "    Out=[f] = c_allreduce_sum(X=[f]) {ring_id=0}\n",
                       "    Out=[f] = c_wait_comm(X=[f]) {ring_id=0}\n", kUse}),
                  Options());
}

// A wait that names the parts orders all before it, wherever it stands.
TEST(PartOrder, WaitsThatNameThePartsOrderThem) {
  const std::string wait = "    Out=[a, b, f] = c_wait_comm(X=[a, b, f]) {ring_id=0}\n";
  const std::string reduce = "    Out=[f] = c_allreduce_sum(X=[f]) {ring_id=0}\n";
  const std::string other = "    Out=[u] = fill_constant() {shape=longs[64], dtype=5, value=1.0}\n";
  ExpectNoRewrite(kPass, Ops({kVars, kCoalesce, kHalve, reduce, other, wait, kUse}), Options());
  ExpectRewrite(kPass, Ops({kVars, kCoalesce, reduce, other, wait, kHalve, kUse}),
                Ops({kCoalesce, reduce, other, wait, kHalveParts, kUse}), Options());
}

// Both buffers: what returns to the gradients reads the parts of the other one.
TEST(PartOrder, CastsBackArePerPart) {
  const std::string half =
      "    FusedOutput=[f16], Output=[a16, b16] = coalesce_tensor(Input=[a16, b16]) {dtype=4}\n"
      "    Out=[f16] = cast(X=[f]) {in_dtype=5, out_dtype=4}\n"
      "    Out=[f16] = c_wait_compute(X=[f16]) {ring_id=0}\n"
      "    Out=[f16] = c_allreduce_sum(X=[f16]) {ring_id=0}\n";
  ExpectRewrite(kPass,
                Ops({kVars, kCoalesce, half, "    Out=[f16] = c_wait_comm(X=[f16]) {ring_id=0}\n",
                     "    Out=[f] = cast(X=[f16]) {in_dtype=4, out_dtype=5}\n", kHalve, kUse}),
                Ops({kCoalesce, half,
                     "    Out=[a16, b16, f16] = c_wait_comm(X=[a16, b16, f16]) {ring_id=0}\n",
                     "    Out=[a] = cast(X=[a16]) {in_dtype=4, out_dtype=5}\n",
                     "    Out=[b] = cast(X=[b16]) {in_dtype=4, out_dtype=5}\n", kHalveParts, kUse}),
                Options());
  // An op on the other buffer after its sum becomes per part, too.
  ExpectRewrite(kPass,
                Ops({kVars, kCoalesce, half, "    Out=[f16] = scale(X=[f16]) {scale=0.5}\n",
                     "    Out=[f] = cast(X=[f16]) {in_dtype=4, out_dtype=5}\n", kUse}),
                R"(
  - Out=[f16] = scale(X=[f16]) {scale=0.5}
  - Out=[f] = cast(X=[f16]) {in_dtype=4, out_dtype=5}
  + Out=[a16] = scale(X=[a16]) {scale=0.5}
  + Out=[b16] = scale(X=[b16]) {scale=0.5}
  + Out=[a] = cast(X=[a16]) {in_dtype=4, out_dtype=5}
  + Out=[b] = cast(X=[b16]) {in_dtype=4, out_dtype=5}
  )",
                Options());
}

TEST(PartOrder, OtherOpsStayWithAWarning) {
  const auto result = ExpectNoRewrite(
      kPass,
      Ops({kVars, kCoalesce, kReduce, "    Out=[f] = elementwise_add(X=[f], Y=[f])\n", kUse}),
      OnRanks(2));
  EXPECT_THAT(testing::ResultLines(result.messages),
              ElementsAre(HasSubstr("W412: op 5 (relu) reads a after op 4 "
                                    "(elementwise_add) writes f")));
  EXPECT_THAT(ExpectNoRewrite(kPass, Ops({kVars, kCoalesce, kReduce, kUse}), OnRanks(2)).messages,
              IsEmpty());
}

}  // namespace
}  // namespace weft::testing
