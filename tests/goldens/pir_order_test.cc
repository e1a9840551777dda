// Files of PIR whose collectives data does not order (W518): Paddle's executor may run them in
// another order than they have in the file.
#include <zlib.h>

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/testing/archive.h"
#include "base/testing/test.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/importer.h"
#include "proto/formats/program_file.h"
#include "tools/job/process.h"
#include "transpiler/transpile.h"
#include "transpiler/verifier/verify.h"

namespace weft::testing {
namespace {

std::string FileOfPaddle(const std::string& name) {
  return weft::testing::ReadTarXz("tests/data/paddle3_pir.tar.xz")->at(name);
}

// The findings of W518 in the bytes of a file.
std::vector<std::string> OutOfOrder(const std::string& bytes) {
  std::vector<std::string> found;
  const auto document = pir::Document::Parse(bytes);
  WEFT_EXPECT_OK(document);
  if (!document.ok()) return found;
  const absl::StatusOr<Program> program = pir::ImportProgram(*document);
  WEFT_EXPECT_OK(program);
  if (!program.ok()) return found;
  VerifyOptions options;
  options.setting.nranks = 2;
  options.setting.ordered_by_data = true;
  const Findings findings = Verify({{&*program, nullptr}}, options);
  for (const Finding& finding : findings.all()) {
    if (finding.rule == "W518") found.push_back(finding.message);
  }
  return found;
}

// What a page shows, which it holds compressed and in base64.
std::string DataOf(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t from = page.find(begin) + begin.size();
  std::string packed;
  EXPECT_TRUE(absl::Base64Unescape(page.substr(from, page.find('<', from) - from), &packed));
  std::string plain(1 << 20, '\0');
  uLongf size = plain.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  plain.resize(size);
  return plain;
}

// A rewritten program broadcasts parameters in a block, which reads a result of the collective
// before it for that only.
TEST(PirOrderTest, ANewBlockWaitsByWhatItReads) {
  const std::string in = absl::StrCat(::testing::TempDir(), "/order.json");
  WEFT_ASSERT_OK(WriteFile(in, FileOfPaddle("fit_a_line/main.json")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program main, ReadProgram(in));
  WEFT_ASSERT_OK(WriteFile(in, FileOfPaddle("fit_a_line/startup.json")));
  WEFT_ASSERT_OK_AND_ASSIGN(Program startup, ReadProgram(in));
  ProgramPair programs{&main, &startup};
  TranspileOptions options;
  options.mode = "megengine";
  options.mode_flags = {{"reduce_method", "mean"}, {"bcast_period", "2"}};
  options.cluster.nranks = 2;
  options.device_kind = TargetDevice::kCpu;
  WEFT_ASSERT_OK(Transpile(options, programs));
  WEFT_ASSERT_OK(WriteProgram(main, in));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes file, ReadFile(in));
  const std::string written(file.bytes);
  EXPECT_THAT(OutOfOrder(written), IsEmpty());
  const std::regex reads(R"re("0\.combine","A":\[\],"I":\[\{"%":[0-9]+\}\])re");
  const std::string without =
      std::regex_replace(written, reads, R"("0.combine","A":[],"I":[{"%":1}])");
  ASSERT_NE(without, written);
  EXPECT_THAT(OutOfOrder(without),
              ElementsAre(AllOf(HasSubstr("(conditional_block) with collectives inside"),
                                HasSubstr("found nothing that orders them"))));
  // The page has what the verifier finds.
  const auto page_of = [&](const std::string& bytes) {
    WEFT_EXPECT_OK(WriteFile(in, bytes));
    const auto page = weft::testing::RunProcess({"tools/weft", "view", in, "-o", "-"});
    EXPECT_EQ(page.status, 0) << page.err;
    return DataOf(page.out);
  };
  EXPECT_THAT(page_of(written), Not(HasSubstr("W518")));
  EXPECT_THAT(page_of(without), HasSubstr("W518"));
}

// Adds value `id` over the ranks, as value `sum`; in place for "1.all_reduce_".
std::string AllReduce(const std::string& type, int id, int sum) {
  const auto attribute = [](const std::string& name) {
    return absl::StrCat(R"({"AT":{"#":"0.a_i32","D":0},"N":")", name, R"("})");
  };
  return absl::StrCat(
      R"({"#":")", type, R"(","A":[)", attribute("ring_id"), ",", attribute("reduce_type"),
      R"(],"I":[{"%":)", id, R"(}],"O":[{"%":)", sum,
      R"(,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,16],"NCHW",[],0]}}],"OA":[]},)");
}

// The program has two ops, of which Paddle runs one: nothing needs to order them.
TEST(PirOrderTest, BothBranchesAreOneOp) {
  std::string bytes = FileOfPaddle("cond_mlp/main.json");
  for (int id : {15, 17}) {
    const std::string yield = absl::StrCat(R"({"#":"2.yield","A":[],"I":[{"%":)", id, "}]");
    ASSERT_TRUE(absl::StrContains(bytes, yield));
    const int sum = 900 + id;
    bytes = absl::StrReplaceAll(
        bytes, {{yield, absl::StrCat(AllReduce("1.all_reduce_", id, sum),
                                     R"({"#":"2.yield","A":[],"I":[{"%":)", sum, "}]")}});
  }
  EXPECT_THAT(OutOfOrder(bytes), IsEmpty());
  // One before them, whose result one branch reads, or the other one, or none.
  const auto before = [&](const std::string& from, const std::string& to) {
    std::string one = bytes;
    one.insert(one.find(R"({"#":"1.if")"), AllReduce("1.all_reduce", 6, 999));
    EXPECT_TRUE(absl::StrContains(one, from));
    return absl::StrReplaceAll(one, {{from, to}});
  };
  const std::string tanh = R"("1.tanh","A":[],"I":[{"%":)", scale = R"(},{"%":16}])";
  EXPECT_THAT(OutOfOrder(before(tanh + "6", tanh + "999")), IsEmpty());
  EXPECT_THAT(OutOfOrder(before("6" + scale, "999" + scale)), IsEmpty());
  EXPECT_THAT(OutOfOrder(before(tanh, tanh)), SizeIs(1));
  // One after them that reads a result of theirs, and one that reads what there was before them.
  const std::string matmul = R"({"#":"1.matmul","A")";
  const auto with = [&](int id) {
    std::string one = bytes;
    one.insert(one.find(matmul, one.find("\"1.if\"")), AllReduce("1.all_reduce", id, 999));
    return one;
  };
  EXPECT_THAT(OutOfOrder(with(12)), IsEmpty());
  EXPECT_THAT(OutOfOrder(with(6)),
              ElementsAre(AllOf(HasSubstr("(all_reduce): expected to depend on data of"),
                                HasSubstr("(conditional_block) with collectives inside"))));
}

}  // namespace
}  // namespace weft::testing
