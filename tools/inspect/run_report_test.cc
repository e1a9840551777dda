#include "tools/inspect/run_report.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Tensor Floats(const Dims& dims, const std::vector<float>& values) {
  Tensor tensor;
  tensor.Resize(DType::kFloat32, dims);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// Row 7, twice, of a tensor fp32[9, 2].
Tensor RowSevenTwice() {
  Tensor tensor;
  tensor.ResizeRows(DType::kFloat32, {9, 2}, 2);
  for (int i = 0; i < 4; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  for (int64_t& row : tensor.mutable_rows()) row = 7;
  return tensor;
}

const std::vector<std::string>& Loss() {
  static const auto& names = *new std::vector<std::string>{"loss"};
  return names;
}

StepResult Result(int64_t step, int rank, Tensor value) {
  StepResult result;
  result.step = step;
  result.rank = rank;
  result.values = {std::move(value)};
  result.names = &Loss();
  result.ms = 1.5;
  return result;
}

TEST(GraphLine, SaysHowManyStepsRanAsAGraphOrWhyNone) {
  GraphUse use;
  use.steps = 100;
  EXPECT_EQ(GraphLine(use), "");  // not asked for
  use.mode = GraphMode::kAuto;
  use.replayed = 99;
  use.recorded = 1;
  EXPECT_EQ(GraphLine(use), "CUDA graph: 99 of 100 steps\n");
  use.recorded = 2;
  EXPECT_EQ(GraphLine(use), "CUDA graph: 99 of 100 steps, recorded 2 times\n");
  use.replayed = use.recorded = 0;
  use.obstacle = "op 3 (dropout) uses the host";
  EXPECT_EQ(GraphLine(use), "CUDA graph: 0 of 100 steps; op 3 (dropout) uses the host\n");
}

TEST(RowsLine, SaysHowRowsCame) {
  EXPECT_EQ(RowsLine({}), "");
  EXPECT_EQ(RowsLine({/*pulled=*/3, /*prefetched=*/40, /*changed=*/2, /*waited_bytes=*/20}),
            "rows of tables on servers, of rank 0: 40 prefetched, of which 2 changed; 3 "
            "pulled; 20 bytes waited for\n");
}

TEST(ServerMemoryLines, AreOneForEachServer) {
  EXPECT_EQ(ServerMemoryLines({}), "");
  EXPECT_EQ(ServerMemoryLines({{100, 200, 300, 0}, {1, 2, 3, 4}}),
            "server 0: 100 bytes of parameters, 200 of optimizer state; pushes took at most 300 "
            "bytes\n"
            "server 1: 1 bytes of parameters, 2 of optimizer state; pushes took at most 3 bytes, "
            "copies of prefetched rows 4\n");
}

TEST(StepLinesTest, OneRankGivesItsValue) {
  StepLines lines(1);
  EXPECT_EQ(lines.Add(Result(0, 0, Floats({}, {2.5f}))), "step 0: loss 2.5\n");
}

TEST(StepLinesTest, LineComesWithTheLastRankAndHasTheMean) {
  StepLines lines(2);
  EXPECT_THAT(lines.Add(Result(3, 0, Floats({}, {1}))), IsEmpty());
  EXPECT_EQ(lines.Add(Result(3, 1, Floats({}, {2}))), "step 3: loss 1.5 (ranks: 1 2)\n");
}

TEST(StepLinesTest, PartialSumsAreAddedUp) {
  StepLines lines(2, {"loss"});
  lines.Add(Result(3, 0, Floats({}, {1})));
  EXPECT_EQ(lines.Add(Result(3, 1, Floats({}, {2}))), "step 3: loss 3 (sum of ranks: 1 2)\n");
  EXPECT_THAT(lines.Totals(1, 0.5), StartsWith("loss: 3 at step 3\n"));
}

// Ranks have other rows, and other numbers of them.
TEST(StepLinesTest, RowsAreNotAddedUp) {
  StepLines lines(2, {"loss"});
  lines.Add(Result(3, 0, RowSevenTwice()));
  EXPECT_EQ(lines.Add(Result(3, 1, RowSevenTwice())), "step 3: loss (mean) 1.5 (ranks: 1.5 1.5)\n");
  MetricsLines metrics(2, {"loss"});
  metrics.Add(Result(3, 0, RowSevenTwice()));
  EXPECT_THAT(metrics.Add(Result(3, 1, RowSevenTwice())),
              AllOf(HasSubstr("[0.0,1.0,2.0,3.0]"), Not(HasSubstr("of_rank"))));
}

TEST(StepLinesTest, OfSeveralElementsTheMeanCounts) {
  StepLines lines(1);
  EXPECT_EQ(lines.Add(Result(0, 0, Floats({2, 2}, {1, 2, 3, 6}))), "step 0: loss (mean) 3\n");
}

TEST(StepLinesTest, TotalsTellTheCourse) {
  StepLines lines(1);
  lines.Add(Result(0, 0, Floats({}, {4})));
  lines.Add(Result(1, 0, Floats({}, {1})));
  EXPECT_EQ(lines.Totals(2, 0.5),
            "loss: 4 at step 0, 1 at step 1\n2 steps on 1 rank in 0.500 s, 250.000 ms a step\n");
}

TEST(StepLinesTest, OneStepHasNoCourse) {
  StepLines lines(1);
  lines.Add(Result(0, 0, Floats({}, {4})));
  EXPECT_EQ(lines.Totals(1, 0.5),
            "loss: 4 at step 0\n1 step on 1 rank in 0.500 s, 500.000 ms a step\n");
}

TEST(StepLinesTest, NoStepsGiveNoSummary) {
  EXPECT_THAT(StepLines(1).Totals(0, 0), StartsWith("0 steps on 1 rank"));
}

TEST(MetricsLineTest, IsOneJsonObject) {
  EXPECT_EQ(MetricsLine(Result(7, 1, Floats({2}, {2.31f, -1}))),
            "{\"step\":7,\"rank\":1,\"fetch\":{\"loss\":[2.31,-1.0]},\"ms\":1.5}\n");
}

TEST(MetricsLinesTest, PartialSumsAreAddedUp) {
  MetricsLines lines(2, {"loss"});
  EXPECT_THAT(lines.Add(Result(7, 0, Floats({2}, {1, -1}))), IsEmpty());
  EXPECT_EQ(lines.Add(Result(7, 1, Floats({2}, {2, 0.5}))),
            "{\"step\":7,\"rank\":0,\"fetch\":{\"loss\":[3.0,-0.5]},\"ms\":1.5,"
            "\"of_rank\":{\"loss\":[1.0,-1.0]}}\n"
            "{\"step\":7,\"rank\":1,\"fetch\":{\"loss\":[3.0,-0.5]},\"ms\":1.5,"
            "\"of_rank\":{\"loss\":[2.0,0.5]}}\n");
  MetricsLines means(2, {"other"});
  EXPECT_THAT(means.Add(Result(7, 0, Floats({}, {1}))), HasSubstr("[1.0]"));
}

TEST(MetricsLineTest, NanIsAString) {
  EXPECT_THAT(MetricsLine(Result(0, 0, Floats({}, {std::nanf("")}))), HasSubstr("[\"nan\"]"));
}

TEST(WriteFetchedTest, NameHasStepRankAndVariable) {
  const std::string path = ::testing::TempDir() + "/fetched.npz";
  WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter writer, NpzWriter::Create(path));
  WEFT_ASSERT_OK(WriteFetched(Result(4, 2, Floats({3}, {1, 2, 3})), &writer));
  WEFT_ASSERT_OK(writer.Finish());
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, ReadNpz(path));
  ASSERT_EQ(arrays.count("4/2/loss"), 1u);
  EXPECT_THAT(arrays["4/2/loss"].dims(), ElementsAre(3));
}

TEST(WriteFetchedTest, SelectedRowsAreTwoArrays) {
  const std::string path = ::testing::TempDir() + "/fetched_rows.npz";
  WEFT_ASSERT_OK_AND_ASSIGN(NpzWriter writer, NpzWriter::Create(path));
  WEFT_ASSERT_OK(WriteFetched(Result(4, 2, RowSevenTwice()), &writer));
  WEFT_ASSERT_OK(writer.Finish());
  WEFT_ASSERT_OK_AND_ASSIGN(auto arrays, ReadNpz(path));
  const Tensor &rows = arrays["4/2/loss/rows"], &values = arrays["4/2/loss/values"];
  EXPECT_THAT(rows.dims(), ElementsAre(2));
  EXPECT_EQ(rows.data<int64_t>()[1], 7);
  EXPECT_THAT(values.dims(), ElementsAre(2, 2));
  EXPECT_EQ(values.data<float>()[3], 3);
}

TEST(MetricsLineTest, OfSelectedRowsThereAreTheValues) {
  EXPECT_THAT(MetricsLine(Result(0, 0, RowSevenTwice())), HasSubstr("[0.0,1.0,2.0,3.0]"));
}

class LineFileTest : public ::testing::Test {
 protected:
  LineFileTest() { std::ofstream(path_) << "old"; }
  std::string Contents() const {
    std::ifstream in(path_);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  const std::string path_ = ::testing::TempDir() + "/lines.jsonl";
};

TEST_F(LineFileTest, EveryLineIsWrittenAtOnceAndTheFirstReplacesTheOldFile) {
  LineFile file(path_);
  EXPECT_EQ(Contents(), "old");
  WEFT_ASSERT_OK(file.Write("one\n"));
  EXPECT_EQ(Contents(), "one\n");
  WEFT_ASSERT_OK(file.Write("two\n"));
  EXPECT_EQ(Contents(), "one\ntwo\n");
}

TEST_F(LineFileTest, WithoutLinesTheFileIsEmptyOnceFinished) {
  WEFT_ASSERT_OK(LineFile(path_).Finish());
  EXPECT_EQ(Contents(), "");
}

TEST_F(LineFileTest, LinesThatAreKeptStay) {
  std::ofstream(path_) << "a1\nb2\na3\na4, cut";
  const auto begins_with_a = [](absl::string_view line) -> absl::StatusOr<bool> {
    if (line == "bad\n") return absl::InvalidArgumentError("it is bad");
    return line[0] == 'a';
  };
  LineFile file(path_, begins_with_a);
  EXPECT_EQ(Contents(), "a1\nb2\na3\na4, cut");
  WEFT_ASSERT_OK(file.Write("b5\n"));
  EXPECT_EQ(Contents(), "a1\na3\nb5\n");
  WEFT_ASSERT_OK(LineFile(path_, begins_with_a).Finish());
  EXPECT_EQ(Contents(), "a1\na3\n");
  std::ofstream(path_) << "a\nbad\n";
  EXPECT_THAT(LineFile(path_, begins_with_a).Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, path_ + ": line 2: it is bad"));
  EXPECT_EQ(Contents(), "a\nbad\n");
  const std::string missing = ::testing::TempDir() + "/new_lines.jsonl";
  WEFT_ASSERT_OK(LineFile(missing, begins_with_a).Write("x\n"));
}

TEST(MetricsLineTest, StepIsReadBack) {
  EXPECT_THAT(StepOfMetricsLine(MetricsLine(Result(7, 1, Floats({1}, {1})))),
              ::weft::testing::IsOkAndHolds(7));
  for (const char* line : {"", "1", "{}", "{\"step\":-1}", "{\"step\":\"1\"}", "{\"step\":1"}) {
    EXPECT_THAT(StepOfMetricsLine(line).status(), IsInvalidArgument("a JSON object with a step"))
        << line;
  }
}

TEST(CsvLinesTest, NamesComeOnceAndStay) {
  CsvLines lines;
  EXPECT_THAT(lines.Add(3, {{"loss", 0.5}, {"acc", 1}}),
              ::weft::testing::IsOkAndHolds("step,loss,acc\n3,0.5,1\n"));
  EXPECT_THAT(lines.Add(4, {{"loss", 0.25}, {"acc", 1}}),
              ::weft::testing::IsOkAndHolds("4,0.25,1\n"));
  EXPECT_THAT(lines.Add(5, {{"loss", 0}}).status(),
              IsInvalidArgument("expected the columns step,loss of this run, found step,loss,acc"));
}

TEST(CsvLinesTest, StepsFollowTheNamesThatWereRead) {
  CsvLines lines;
  EXPECT_THAT(lines.ReadStep("step,loss\n"), ::weft::testing::IsOkAndHolds(absl::nullopt));
  EXPECT_THAT(lines.ReadStep("12,0.5\n"),
              ::weft::testing::IsOkAndHolds(absl::optional<int64_t>(12)));
  for (const char* line : {"", "loss\n", "-1,2\n", "a,1\n"}) {
    EXPECT_THAT(lines.ReadStep(line).status(), IsInvalidArgument("expected a step")) << line;
  }
  EXPECT_THAT(lines.Add(13, {{"loss", 2}}), ::weft::testing::IsOkAndHolds("13,2\n"));
}

TEST_F(LineFileTest, ErrorsNameTheFile) {
  EXPECT_THAT(LineFile("/dev/full").Write("one\n"),
              IsResourceExhausted(StartsWith("/dev/full: cannot write")));
  EXPECT_THAT(std::string(LineFile(path_ + "/x").Write("one\n").message()),
              ::testing::StartsWith(path_ + "/x: cannot open for writing"));
}

TEST(MeanOfTest, IntegersCountAsNumbersAndNothingHasNoMean) {
  Tensor tensor;
  tensor.Resize(DType::kInt64, {2});
  tensor.data<int64_t>()[0] = 1;
  tensor.data<int64_t>()[1] = 2;
  EXPECT_EQ(MeanOf(tensor), 1.5);
  tensor.Resize(DType::kInt64, {0});
  EXPECT_TRUE(std::isnan(MeanOf(tensor)));
}

}  // namespace
}  // namespace weft::testing
