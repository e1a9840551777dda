// Metrics of padded sequences of labels. //tests/training:trained_programs_test compares them with
// Paddle's.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

const SlotCounts kOutputs = {{"F1-Score", 1},       {"NumCorrectChunks", 1}, {"NumInferChunks", 1},
                             {"NumLabelChunks", 1}, {"Precision", 1},        {"Recall", 1}};

// The numbers of chunks that were found, that are expected, and that are both.
absl::StatusOr<std::vector<int64_t>> Chunks(const std::string& scheme, const Tensor& found,
                                            const Tensor& expected, const Tensor& lengths,
                                            std::vector<int32_t> excluded = {}) {
  WEFT_ASSIGN_OR_RETURN(
      auto out,
      RunOp("chunk_eval", {{"Inference", {found}}, {"Label", {expected}}, {"SeqLength", {lengths}}},
            {{"chunk_scheme", scheme},
             {"num_chunk_types", 2},
             {"excluded_chunk_types", std::move(excluded)}},
            kOutputs));
  return std::vector<int64_t>{*out["NumInferChunks"][0].data<int64_t>(),
                              *out["NumLabelChunks"][0].data<int64_t>(),
                              *out["NumCorrectChunks"][0].data<int64_t>()};
}

// Of two types: B and I of each, and 4 outside.
TEST(ChunkEvalTest, ChunkHasOneTypeAndEndsBeforeTheNextBegins) {
  const Tensor expected = Int64s({1, 6}, {0, 1, 0, 4, 2, 3});  // 0-1, 2, 4-5
  const Tensor found = Int64s({1, 6}, {0, 1, 1, 4, 1, 3});     // 0-2, 4, 5
  EXPECT_THAT(Chunks("IOB", found, expected, Int64s({1}, {6})), IsOkAndHolds(ElementsAre(3, 3, 0)));
  EXPECT_THAT(Chunks("IOB", expected, expected, Int64s({1}, {6})),
              IsOkAndHolds(ElementsAre(3, 3, 3)));
  EXPECT_THAT(Chunks("IOB", expected, expected, Int64s({1}, {6}), {0}),
              IsOkAndHolds(ElementsAre(1, 1, 1)));
}

TEST(ChunkEvalTest, SchemesSayWhatEndsAChunk) {
  const Tensor lengths = Int64s({1}, {4});
  // I E I E of type 0: two chunks.
  const Tensor ends = Int64s({1, 4}, {0, 1, 0, 1});
  EXPECT_THAT(Chunks("IOE", ends, ends, lengths), IsOkAndHolds(ElementsAre(2, 2, 2)));
  // B E S S of type 0: three.
  const Tensor single = Int64s({1, 4}, {0, 2, 3, 3});
  EXPECT_THAT(Chunks("IOBES", single, single, lengths), IsOkAndHolds(ElementsAre(3, 3, 3)));
  // Types alone: 0 0 1 2, where 2 is outside.
  const Tensor types = Int64s({1, 4}, {0, 0, 1, 2});
  EXPECT_THAT(Chunks("plain", types, types, lengths), IsOkAndHolds(ElementsAre(2, 2, 2)));
}

TEST(ChunkEvalTest, PaddingDoesNotCount) {
  const Tensor labels = Int64s({2, 3}, {0, -1, -1, 0, 0, 9});
  EXPECT_THAT(Chunks("IOB", labels, labels, Int64s({2}, {1, 2})),
              IsOkAndHolds(ElementsAre(3, 3, 3)));
  EXPECT_THAT(Chunks("IOB", labels, labels, Int64s({2}, {1, 3})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("input Inference: 9 in sequence 1 is not in [0, 5)")));
}

TEST(ChunkEvalTest, RatesAreThoseOfTheCounts) {
  const Tensor expected = Int64s({1, 4}, {0, 4, 2, 4}), found = Int64s({1, 4}, {0, 4, 4, 4});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("chunk_eval",
            {{"Inference", {found}}, {"Label", {expected}}, {"SeqLength", {Int64s({1}, {4})}}},
            {{"num_chunk_types", 2}}, kOutputs));
  EXPECT_EQ(*out["Precision"][0].data<float>(), 1);
  EXPECT_EQ(*out["Recall"][0].data<float>(), 0.5f);
  EXPECT_FLOAT_EQ(*out["F1-Score"][0].data<float>(), 2.0f / 3);
}

absl::StatusOr<std::vector<float>> Distances(const std::vector<int64_t>& found_lengths,
                                             const std::vector<int64_t>& lengths,
                                             bool is_normalized) {
  WEFT_ASSIGN_OR_RETURN(auto out,
                        RunOp("edit_distance",
                              {{"Hyps", {Int64s({2, 3}, {1, 2, 3, 4, 5, 6})}},
                               {"HypsLength", {Int64s({2}, found_lengths)}},
                               {"Refs", {Int64s({2, 4}, {2, 3, 3, 1, 4, 5, 6, 7})}},
                               {"RefsLength", {Int64s({2}, lengths)}}},
                              {{"normalized", is_normalized}}, {{"Out", 1}, {"SequenceNum", 1}}));
  EXPECT_EQ(*out["SequenceNum"][0].data<int64_t>(), 2);
  return Values<float>(out["Out"][0]);
}

TEST(EditDistanceTest, CountsInsertionsDeletionsAndReplacements) {
  // 123 to 2331: without 1, with 3 and 1. 45 to 4567: with 6 and 7.
  EXPECT_THAT(Distances({3, 2}, {4, 4}, false), IsOkAndHolds(ElementsAre(3, 2)));
  EXPECT_THAT(Distances({3, 2}, {4, 4}, true), IsOkAndHolds(ElementsAre(0.75f, 0.5f)));
  EXPECT_THAT(Distances({3, 0}, {1, 4}, false), IsOkAndHolds(ElementsAre(2, 4)));
  EXPECT_THAT(Distances({3, 2}, {0, 4}, false), IsOkAndHolds(ElementsAre(3, 2)));
}

TEST(EditDistanceTest, EmptyReferenceHasNoNormalizedDistance) {
  EXPECT_THAT(Distances({3, 2}, {4, 0}, true), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        HasSubstr("RefsLength: 0 in sequence 1")));
}

TEST(CtcAlignTest, DropsBlanksAndRepetitions) {
  const Tensor input = Int64s({2, 5}, {0, 1, 1, 0, 1, 2, 2, 3, 0, 0});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("ctc_align", {{"Input", {input}}, {"InputLength", {Int64s({2, 1}, {5, 3})}}},
                      {{"padding_value", -1}}, {{"Output", 1}, {"OutputLength", 1}}));
  EXPECT_THAT(Values<int64_t>(out["Output"][0]), ElementsAre(1, 1, -1, -1, -1, 2, 3, -1, -1, -1));
  EXPECT_THAT(Values<int64_t>(out["OutputLength"][0]), ElementsAre(2, 2));
}

TEST(LabelMetricsTest, NeedLengths) {
  const Tensor labels = Int64s({1, 2}, {0, 1});
  EXPECT_THAT(RunOp("chunk_eval", {{"Inference", {labels}}, {"Label", {labels}}},
                    {{"num_chunk_types", 2}}, kOutputs)
                  .status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("input SeqLength")));
  EXPECT_THAT(RunOp("ctc_align", {{"Input", {labels}}}, {}, {{"Output", 1}}).status(),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("input InputLength")));
}

}  // namespace
}  // namespace weft::testing
