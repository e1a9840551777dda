// The checker has lists of its own, which must have what the schemas of ops say.
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checker/pir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/schema/algebra.h"
#include "ops/schema/op_schema.h"
#include "proto/formats/pir/op_table.h"
#include "proto/text/program_text.h"
#include "tools/files/certificate.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

// The line on states that ranks have for themselves, or why there is no certificate. The op writes
// state s from s.
std::string OwnStates(const std::string& op_type) {
  const auto program = [&](const std::string& reduction) {
    const auto parsed = ParseProgramText(absl::StrCat(
        "program {\n  block 0 parent=-1 {\n    var s : fp32[4] persistable\n"
        "    var w : fp32[4] persistable\n    var w@GRAD : fp32[4]\n    Out=[s] = ",
        op_type,
        "(X=[s])\n    Y@GRAD=[w@GRAD] = mul_grad(X=[s], Y=[w]) role=backward vars=[w, w@GRAD]\n",
        reduction, "\n  }\n}\n"));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed->ToProto().SerializeAsString();
  };
  const std::string original = program("");
  const std::string result =
      program("Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) {use_calc_stream=true}");
  const auto certificate =
      MakeCertificate({original, result, "", ""}, {2, Setting::Reduction::kMean});
  if (!certificate.ok()) return std::string(certificate.status().message());
  const size_t at = certificate->claim.find("- states of which each rank");
  return certificate->claim.substr(at, certificate->claim.find('\n', at) - at);
}

constexpr char kRefused[] = "no certificate for originals that communicate or share memory";

TEST(CheckerLists, HaveAllOpsThatDraw) {
  EXPECT_THAT(OwnStates("relu"), HasSubstr(": none"));
  int num_found = 0;
  for (const OpSchema* schema : AllOpSchemas()) {
    if (AlgebraOf(schema->type(), schema) != Algebra::kRandom || schema->outputs().empty())
      continue;
    const std::string found = OwnStates(schema->type());
    EXPECT_TRUE(absl::StrContains(found, ": s") || absl::StrContains(found, kRefused))
        << schema->type() << ": " << found;
    ++num_found;
  }
  EXPECT_GT(num_found, 20);
}

TEST(CheckerLists, HaveAllOpsThatGiveTwoNamesToOneMemory) {
  int num_found = 0;
  for (const OpSchema* schema : AllOpSchemas()) {
    for (const SlotSchema& slot : schema->outputs()) {
      // Of print, versions count (tools/files/certificate_test.cc).
      if (slot.memory_of.empty() || schema->type() == "print") continue;
      EXPECT_THAT(OwnStates(schema->type()), HasSubstr(kRefused)) << schema->type();
      ++num_found;
    }
  }
  EXPECT_GT(num_found, 5);
}

TEST(CheckerLists, HaveTheOperandsThatOpsOfPirOverwrite) {
  int num_found = 0;
  for (const pir::OpRule& rule : pir::AllRules()) {
    const std::string_view places = checker::PirInPlace(std::string(pir::BaseName(rule.pir)));
    if (!pir::IsInPlace(rule.pir) || places.empty()) continue;
    std::string expected;
    for (const pir::ResultRule& result : rule.results) {
      expected += result.in_place_of < 0 ? "-" : absl::StrCat(result.in_place_of);
    }
    EXPECT_EQ(places, expected) << rule.pir;
    ++num_found;
  }
  EXPECT_EQ(num_found, 24);
}

}  // namespace
}  // namespace weft::testing
