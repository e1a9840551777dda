// weft run and what cannot be trained: one line that names step, rank, op and variable, exit status
// 1, and files as they were.
#include <zip.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/testing/test.h"
#include "executor/files/npy.h"
#include "executor/files/npz.h"
#include "executor/files/params_file.h"
#include "ops/tensor.h"
#include "proto/testing/program_builder.h"
#include "tools/job/process.h"

namespace weft::testing {
namespace {

using ::testing::EndsWith;

using Arrays = std::map<std::string, Tensor>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
Tensor Make(const Dims& dims, const std::vector<T>& values) {
  Tensor tensor;
  tensor.Resize(DTypeOf<T>::value, dims);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

std::string TestPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  const absl::StatusOr<FileBytes> file = ReadFile(path);
  return file.ok() ? std::string(file->bytes) : file.status().ToString();
}

std::string MakeFile(const std::string& name, const std::string& bytes) {
  std::ofstream(TestPath(name), std::ios::binary) << bytes;
  return TestPath(name);
}

// Runs with these arguments and outputs that are there already. Expects one line on standard error,
// "weft run: error: <start><part>...", status 1, and the outputs as they were.
void ExpectFails(std::vector<std::string> args, const std::string& start, const std::string& part) {
  const std::string save = MakeFile("old.npz", "old"), fetched = MakeFile("old_fetched.npz", "old"),
                    trace = MakeFile("old.json", "old");
  const std::vector<std::string> outputs = {"--save", save,      "--fetch_npz",
                                            fetched,  "--trace", trace};
  args.insert(args.begin(), {"tools/weft", "run"});
  args.insert(args.end(), outputs.begin(), outputs.end());
  const ProcessResult run = RunProcess(args);
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err,
              AllOf(StartsWith("weft run: error: " + start), HasSubstr(part), EndsWith("\n")));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  for (const std::string& path : {save, fetched, trace}) EXPECT_EQ(Contents(path), "old") << path;
}

// --- Values that ops cannot take ----------------------------------------------------------------

// A data variable of any number of rows.
ProgramBuilder& Data(ProgramBuilder& builder, const std::string& name,
                     std::vector<int64_t> dims = {-1, 1},
                     pb::VarType::Type type = pb::VarType::FP32) {
  builder.Var(name, std::move(dims), type);
  builder.last_var().set_need_check_feed(true);
  return builder;
}

struct BadStep {
  const char* name;
  std::function<void(ProgramBuilder&)> build;
  Arrays feeds;  // step 0 is right, step 1 is not
  std::string message;
  std::vector<std::string> flags = {};
};

void Lookup(ProgramBuilder& builder) {
  Data(builder, "ids", {-1}, pb::VarType::INT64).Param("table", {10, 2}).Var("out", {-1, 2});
  builder.Op("lookup_table_v2", {{"W", {"table"}}, {"Ids", {"ids"}}}, {{"Out", {"out"}}});
}

void CrossEntropy(ProgramBuilder& builder) {
  Data(builder, "logits", {-1, 3});
  Data(builder, "label", {-1, 1}, pb::VarType::INT64).Var("softmax", {-1, 3}).Var("loss", {-1, 1});
  builder.Op("softmax_with_cross_entropy", {{"Logits", {"logits"}}, {"Label", {"label"}}},
             {{"Softmax", {"softmax"}}, {"Loss", {"loss"}}});
}

void Divide(ProgramBuilder& builder) {
  Data(builder, "x", {-1}, pb::VarType::INT64);
  Data(builder, "y", {-1}, pb::VarType::INT64).Var("out", {-1}, pb::VarType::INT64);
  builder.Op("elementwise_div", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}});
}

void Add(ProgramBuilder& builder) {
  Data(builder, "x");
  Data(builder, "y").Var("out", {-1, 1});
  builder.Op("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"out"}}});
}

void Multiply(ProgramBuilder& builder) {
  Data(builder, "x", {-1, -1}).Param("w", {2, 2}).Var("out", {-1, 2});
  builder.Op("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}});
}

// root = sqrt(x) is not finite for a negative x; loss hides it.
void Root(ProgramBuilder& builder) {
  Data(builder, "x").Var("more", {-1, 1}).Var("root", {-1, 1}).Var("none", {-1, 1});
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"more"}}});
  builder.Op("sqrt", {{"X", {"more"}}}, {{"Out", {"root"}}});
  builder.Op("scale", {{"X", {"root"}}}, {{"Out", {"none"}}});
}

// Goes round for ever where x < 1.
void Loop(ProgramBuilder& builder) {
  Data(builder, "x", {1}).Var("one", {1}).Var("more", {1}, pb::VarType::BOOL);
  builder.Op("fill_constant", {}, {{"Out", {"one"}}}).IntAttr("dtype", pb::VarType::FP32);
  builder.LongsAttr("shape", {1}).FloatAttr("value", 1);
  builder.Op("less_than", {{"X", {"x"}}, {"Y", {"one"}}}, {{"Out", {"more"}}});
  builder.Op("while", {{"X", {}}, {"Condition", {"more"}}}, {{"Out", {}}, {"StepScopes", {}}});
  builder.BlockAttr("sub_block", 1).NewBlock(0);
  builder.Op("less_than", {{"X", {"x"}}, {"Y", {"one"}}}, {{"Out", {"more"}}});
}

const BadStep kBadSteps[] = {
    {"IdBeyondTheTable",
     Lookup,
     {{"0/ids", Make<int64_t>({2}, {0, 9})}, {"1/ids", Make<int64_t>({2}, {3, 10})}},
     "step 1, rank 0: op 0 (lookup_table_v2): input Ids: 10 at position 1 is not in [0, 10), the "
     "rows of W"},
    {"NegativeId",
     Lookup,
     {{"0/ids", Make<int64_t>({1}, {0})}, {"1/ids", Make<int64_t>({1}, {-1})}},
     "step 1, rank 0: op 0 (lookup_table_v2): input Ids: -1 at position 0 is not in [0, 10)"},
    {"LabelBeyondTheClasses",
     CrossEntropy,
     {{"0/logits", Make<float>({1, 3}, {1, 2, 3})},
      {"0/label", Make<int64_t>({1, 1}, {2})},
      {"1/logits", Make<float>({1, 3}, {1, 2, 3})},
      {"1/label", Make<int64_t>({1, 1}, {3})}},
     "step 1, rank 0: op 0 (softmax_with_cross_entropy): input Label: 3 "},
    {"IntegerDividedByZero",
     Divide,
     {{"0/x", Make<int64_t>({1}, {7})},
      {"0/y", Make<int64_t>({1}, {2})},
      {"1/x", Make<int64_t>({2}, {7, 7})},
      {"1/y", Make<int64_t>({2}, {1, 0})}},
     "step 1, rank 0: op 0 (elementwise_div): input Y: 0 at position 1: division by zero"},
    {"ResultThatIsNotFinite",
     Root,
     {{"0/x", Make<float>({2, 1}, {1, 4})}, {"1/x", Make<float>({2, 1}, {1, -4})}},
     "step 1, rank 0: op 1 (sqrt): makes nan in variable root",
     {"--check_nan"}},
    {"LoopThatDoesNotEnd",
     Loop,
     {{"0/x", Make<float>({1}, {2})}, {"1/x", Make<float>({1}, {0})}},
     "step 1, rank 0: op 2 (while): its block has run for more than 0.2 s, in iteration ",
     {"--timeout_s", "0.2"}},
};

// Steps that the headers of their arrays rule out.
const BadStep kBadHeaders[] = {
    {"RowsThatDiffer",
     Add,
     {{"0/x", Make<float>({2, 1}, {1, 2})},
      {"0/y", Make<float>({2, 1}, {1, 2})},
      {"1/x", Make<float>({3, 1}, {1, 2, 3})},
      {"1/y", Make<float>({2, 1}, {1, 2})}},
     "step 1: op 0 (elementwise_add) input Y (y): "},
    {"ColumnsThatDoNotFit",
     Multiply,
     {{"0/x", Make<float>({1, 2}, {1, 2})}, {"1/x", Make<float>({1, 3}, {1, 2, 3})}},
     "step 1: op 0 (matmul_v2) "},
};

constexpr char kBadMain[] = "bad_step.pb";
constexpr char kBadFeeds[] = "bad_feeds.npz";

// Runs kBadMain over kBadFeeds; expects an error of `file`, which is one of the two.
void ExpectBadStep(const BadStep& bad, const char* file) {
  ProgramBuilder builder;
  bad.build(builder);
  const std::string main = MakeFile(kBadMain, builder.desc().SerializeAsString());
  const std::string feeds = TestPath(kBadFeeds), params = TestPath("bad_params.npz");
  WEFT_ASSERT_OK(WriteNpz(feeds, bad.feeds));
  Arrays state;
  for (const auto& var : builder.desc().blocks(0).vars()) {
    if (!var.persistable()) continue;
    const auto& dims = var.type().lod_tensor().tensor().dims();
    Tensor& tensor = state[var.name()];
    tensor.Resize(DType::kFloat32, Dims(dims.begin(), dims.end()));
    std::fill_n(tensor.data<float>(), tensor.size(), 0.5f);
  }
  WEFT_ASSERT_OK(WriteNpz(params, state));
  const std::string out = builder.desc().blocks(0).ops(0).outputs(0).arguments(0);
  std::vector<std::string> args = {main, "--feeds", feeds, "--fetch", out};
  if (!state.empty()) args.insert(args.end(), {"--params", params});
  args.insert(args.end(), bad.flags.begin(), bad.flags.end());
  ExpectFails(args, absl::StrCat(TestPath(file), ": "), bad.message);
}

class BadStepTest : public ::testing::TestWithParam<BadStep> {};

TEST_P(BadStepTest, NamesStepRankOpAndValue) { ExpectBadStep(GetParam(), kBadMain); }

class BadHeaderTest : public ::testing::TestWithParam<BadStep> {};

TEST_P(BadHeaderTest, IsRefusedBeforeAnythingRuns) { ExpectBadStep(GetParam(), kBadFeeds); }

INSTANTIATE_TEST_SUITE_P(Headers, BadHeaderTest, ValuesIn(kBadHeaders),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Steps, BadStepTest, ValuesIn(kBadSteps),
                         [](const auto& info) { return std::string(info.param.name); });

// --- Files --------------------------------------------------------------------------------------

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";
constexpr char kFeeds[] = "tests/data/fit_a_line/feeds.npz";

struct BadState {
  const char* name;
  std::function<void(Arrays&)> spoil;  // parameters and state of fit_a_line
  std::string message;
};

const BadState kBadStates[] = {
    {"NoneOfTheProgram",
     [](Arrays& state) {
       state.clear();
       state["fc_0.tmp_0"] = Make<float>({1}, {0});
     },
     "none of the 1 arrays is a persistable variable of the program; the first is fc_0.tmp_0"},
    {"Shape",
     [](Arrays& state) {
       state["fc_0.w_0"] = Make<float>({1, 13}, std::vector<float>(13));
     },
     "parameter fc_0.w_0: expected fp32[13, 1], found fp32[1, 13]"},
    {"ElementType", [](Arrays& state) { state["fc_0.b_0"] = Make<double>({1}, {0}); },
     "parameter fc_0.b_0: expected fp32[1], found fp64[1]"},
};

class BadStateTest : public ::testing::TestWithParam<BadState> {};

TEST_P(BadStateTest, IsAnErrorOfItsFileInBothFormats) {
  Arrays state;
  state["fc_0.w_0"] = Make<float>({13, 1}, std::vector<float>(13));
  state["fc_0.b_0"] = Make<float>({1}, {0});
  GetParam().spoil(state);
  const std::string npz = TestPath("bad_state.npz"), combine = TestPath("bad_state.params");
  WEFT_ASSERT_OK(SaveParams(npz, state));
  WEFT_ASSERT_OK(SaveParams(combine, state));
  std::string names;
  for (const auto& [name, tensor] : state) absl::StrAppend(&names, name, "\n");
  const std::string list = MakeFile("bad_state.names", names);
  const std::vector<std::string> args = {kMain, "--startup", kStartup, "--feeds", kFeeds};
  std::vector<std::string> with_npz = args, with_combine = args;
  with_npz.insert(with_npz.end(), {"--params", npz});
  with_combine.insert(with_combine.end(), {"--params", combine, "--params_names", list});
  ExpectFails(with_npz, absl::StrCat(npz, ": "), GetParam().message);
  ExpectFails(with_combine, absl::StrCat(combine, ": "), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(States, BadStateTest, ValuesIn(kBadStates),
                         [](const auto& info) { return std::string(info.param.name); });

// Cut off anywhere, a file of parameters or feeds is refused before the first step.
TEST(BadFileTest, TruncatedFilesAreRefused) {
  Arrays state;
  state["fc_0.w_0"] = Make<float>({13, 1}, std::vector<float>(13));
  state["fc_0.b_0"] = Make<float>({1}, {0});
  const std::string names = MakeFile("names", "fc_0.b_0\nfc_0.w_0\n");
  for (const char* extension : {".npz", ".params"}) {
    const std::string whole = TestPath(absl::StrCat("whole", extension));
    WEFT_ASSERT_OK(SaveParams(whole, state));
    const std::string bytes = Contents(whole);
    for (size_t size : {size_t{0}, bytes.size() / 3, bytes.size() / 2, bytes.size() - 1}) {
      const std::string part = MakeFile(absl::StrCat("part", extension), bytes.substr(0, size));
      std::vector<std::string> args = {kMain,  "--startup", kStartup, "--feeds",
                                       kFeeds, "--params",  part};
      if (!absl::EndsWith(part, ".npz")) args.insert(args.end(), {"--params_names", names});
      ExpectFails(args, absl::StrCat(part, ": "), "");
    }
  }
  const std::string bytes = Contents(kFeeds);
  for (size_t size : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string part = MakeFile("part_feeds.npz", bytes.substr(0, size));
    ExpectFails({kMain, "--startup", kStartup, "--feeds", part}, absl::StrCat(part, ": "), "");
  }
}

TEST(BadFileTest, WithoutParametersTheFirstReaderIsNamed) {
  ExpectFails({kMain, "--feeds", kFeeds}, absl::StrCat(kMain, ": op 0 (mul): "),
              "reads variable fc_0.w_0, which nothing has written: it is persistable, so pass a "
              "startup program or parameters");
}

TEST(BadFileTest, StartupProgramWithoutThePartsOfRanksIsAnotherOne) {
  const std::string main = TestPath("zero.pb"), startup = TestPath("zero_startup.pb");
  const ProcessResult made =
      RunProcess({"tools/transpile", "--mode", "zero", "--nranks", "2", "--startup_in", kStartup,
                  "--startup_out", startup, kMain, main});
  ASSERT_EQ(made.status, 0) << made.err;
  ExpectFails({main, "--startup", kStartup, "--feeds", kFeeds, "--ranks", "2"},
              absl::StrCat(kStartup, ": expected the startup program that transpile wrote with ",
                           main, ", which makes param_share_0, of which"),
              "");
}

TEST(BadFileTest, FeedThatIsMissingIsNamedWithItsReader) {
  WEFT_ASSERT_OK_AND_ASSIGN(Arrays feeds, ReadNpz(kFeeds));
  for (auto it = feeds.begin(); it != feeds.end();) {
    it = absl::EndsWith(it->first, "/y") ? feeds.erase(it) : std::next(it);
  }
  const std::string path = TestPath("without_y.npz");
  WEFT_ASSERT_OK(WriteNpz(path, feeds));
  ExpectFails({kMain, "--startup", kStartup, "--feeds", path}, absl::StrCat(path, ": "),
              "feed y: missing, but op 2 (elementwise_sub) reads it; data variables of the "
              "program: x (fp32[-1, 13]), y (fp32[-1, 1])");
  ExpectFails({kMain, "--startup", kStartup, "--steps", "1"}, absl::StrCat(kMain, ": "),
              "feed x: missing, but op 0 (mul) reads it");
}

TEST(BadFileTest, BatchThatDoesNotDivideIsReportedWithItsNumbers) {
  ExpectFails(
      {kMain, "--startup", kStartup, "--feeds", kFeeds, "--ranks", "3", "--allow_unsynchronized"},
      absl::StrCat(kFeeds, ": "), "step 0: feed x: 20 rows cannot be split equally over 3 ranks");
}

// A rank that fails ends the run for the others, which wait for it.
TEST(BadFileTest, StepThatFailsOnOneRankNamesThatRank) {
  WEFT_ASSERT_OK_AND_ASSIGN(Arrays feeds, ReadNpz(kFeeds));
  feeds.at("1/y").data<float>()[19] = kNan;
  const std::string path = TestPath("nan_on_rank_1.npz"), main = TestPath("two_ranks.pb");
  WEFT_ASSERT_OK(WriteNpz(path, feeds));
  ASSERT_EQ(RunProcess({"tools/transpile", "--mode", "grad_allreduce", kMain, main}).status, 0);
  ExpectFails({main, "--startup", kStartup, "--feeds", path, "--ranks", "2", "--check_nan"},
              absl::StrCat(main, ": "),
              "step 1, rank 1: op 2 (elementwise_sub): makes nan in variable ");
}

#ifndef __SANITIZE_ADDRESS__  // which takes more address space than any limit leaves

// Zeros shrink to a thousandth in an archive.
std::string MakeArrayOfZeros(const std::string& file, const std::string& name, const Dims& dims) {
  std::string bytes = *NpyHeaderFor(DType::kFloat32, dims);
  bytes.resize(bytes.size() + NumElements(dims) * sizeof(float));
  zip_t* archive = zip_open(TestPath(file).c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  zip_file_add(archive, (name + ".npy").c_str(), source, 0);
  EXPECT_EQ(zip_close(archive), 0);
  EXPECT_LT(Contents(TestPath(file)).size(), size_t{1} << 20);
  return TestPath(file);
}

// Runs weft with 256 to 512 MiB of address space besides what its libraries take, those of CUDA
// among them.
ProcessResult RunInLittleMemory(const std::string& args) {
  constexpr char kFindLimit[] =
      "limit=262144; "
      "until (ulimit -v $limit; tools/weft --help >/dev/null 2>&1) || [ $limit -gt 33554432 ]; do "
      "limit=$((limit + 262144)); done; "
      "ulimit -v $((limit + 262144)); exec tools/weft run ";
  return RunProcess({"/bin/sh", "-c", kFindLimit + args});
}

TEST(BadFileTest, ArraysThatExceedTheMemoryAreRefusedByTheirHeaders) {
  const std::string zeros = MakeArrayOfZeros("zeros.npz", "0/x", {12000000, 13});
  ProgramBuilder builder;
  Data(builder, "x", {-1, 13}).Var("out", {-1, 13});
  builder.Op("scale", {{"X", {"x"}}}, {{"Out", {"out"}}});
  const std::string main = MakeFile("large.pb", builder.desc().SerializeAsString());
  const ProcessResult run =
      RunInLittleMemory(absl::StrCat(main, " --feeds ", zeros, " --fetch out"));
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err,
              StartsWith(absl::StrCat("weft run: error: ", zeros,
                                      ": step 0: the batch, with the parts of the ranks and those "
                                      "read ahead, takes 1190 MiB, but only ")));
}

TEST(BadFileTest, ParametersThatExceedTheMemoryAreRefusedByTheirHeaders) {
  const std::string zeros = MakeArrayOfZeros("large_params.npz", "w", {12000000, 13});
  ProgramBuilder builder;
  builder.Param("w", {12000000, 13}).Var("out", {12000000, 13});
  builder.Op("scale", {{"X", {"w"}}}, {{"Out", {"out"}}});
  const std::string main = MakeFile("large_params.pb", builder.desc().SerializeAsString());
  const ProcessResult run =
      RunInLittleMemory(absl::StrCat(main, " --steps 1 --params ", zeros, " --fetch out"));
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err,
              StartsWith(absl::StrCat("weft run: error: ", zeros,
                                      ": the sum of the arrays takes 595 MiB, but only ")));
}

#endif

}  // namespace
}  // namespace weft::testing
