#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/test.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

Tensor Table() { return Floats({3, 2}, {1, 2, 3, 4, 5, 6}); }
Tensor Ids(const Dims& dims, const std::vector<int64_t>& ids) {
  return MakeTensor<int64_t>(dims, ids);
}

TEST(LookupTableTest, GivesARowForEveryId) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("lookup_table_v2", {{"W", {Table()}}, {"Ids", {Ids({2, 1}, {2, 0})}}}, {},
                      {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 1, 2));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(5, 6, 1, 2));
}

TEST(LookupTableTest, PaddingIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("lookup_table_v2", {{"W", {Table()}}, {"Ids", {Ids({2}, {2, 0})}}},
                      {{"padding_idx", int64_t{2}}}, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0, 1, 2));
}

TEST(LookupTableTest, AnEmptyBatchGivesAnEmptyResult) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("lookup_table_v2", {{"W", {Table()}}, {"Ids", {Ids({0, 1}, {})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(0, 1, 2));
}

TEST(LookupTableTest, IdsThatAreNotInTheTableAreAnError) {
  for (const int64_t id : {int64_t{3}, int64_t{-1}}) {
    const std::string message =
        absl::StrCat("input Ids: ", id, " at position 1 is not in [0, 3), the rows of W");
    EXPECT_THAT(RunOp("lookup_table_v2", {{"W", {Table()}}, {"Ids", {Ids({2}, {0, id})}}}, {},
                      {{"Out", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
    EXPECT_THAT(RunOp("lookup_table_v2_grad",
                      {{"W", {Table()}},
                       {"Ids", {Ids({2}, {0, id})}},
                       {"Out@GRAD", {Floats({2, 2}, {1, 1, 1, 1})}}},
                      {}, {{"W@GRAD", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

TEST(LookupTableTest, GradientSumsRepeatedLookups) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("lookup_table_v2_grad",
                                            {{"W", {Table()}},
                                             {"Ids", {MakeTensor<int32_t>({3}, {2, 0, 2})}},
                                             {"Out@GRAD", {Floats({3, 2}, {1, 2, 3, 4, 10, 20})}}},
                                            {}, {{"W@GRAD", 1}}));
  EXPECT_THAT(out["W@GRAD"][0].dims(), ElementsAre(3, 2));
  EXPECT_THAT(Values<float>(out["W@GRAD"][0]), ElementsAre(3, 4, 0, 0, 11, 22));
}

TEST(LookupTableTest, GradientOfPaddingIsZero) {
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, RunOp("lookup_table_v2_grad",
                                            {{"W", {Table()}},
                                             {"Ids", {Ids({2}, {2, 0})}},
                                             {"Out@GRAD", {Floats({2, 2}, {1, 2, 3, 4})}}},
                                            {{"padding_idx", int64_t{2}}}, {{"W@GRAD", 1}}));
  EXPECT_THAT(Values<float>(out["W@GRAD"][0]), ElementsAre(3, 4, 0, 0, 0, 0));
}

absl::Status SparseGrad(const Tensor& ids, const Tensor& dout, const AttrValues& attrs,
                        Tensor* dtable) {
  Tensor table = Table(), ids_copy = ids, dout_copy = dout;
  dtable->ResizeRows(DType::kFloat32, {1, 1}, 0);
  AttrValues sparse = attrs;
  sparse.emplace_back("is_sparse", true);
  return RunOpOn("lookup_table_v2_grad",
                 {{"W", {&table}}, {"Ids", {&ids_copy}}, {"Out@GRAD", {&dout_copy}}}, sparse,
                 {{"W@GRAD", {dtable}}});
}

TEST(LookupTableTest, SparseGradientHasARowForEveryIdAndPaddingToo) {
  Tensor dtable;
  WEFT_ASSERT_OK(SparseGrad(Ids({3, 1}, {2, 0, 2}), Floats({3, 1, 2}, {1, 2, 3, 4, 5, 6}),
                            {{"padding_idx", int64_t{0}}}, &dtable));
  EXPECT_THAT(dtable.rows(), ElementsAre(2, 0, 2));
  EXPECT_EQ(dtable.TallDims(), (Dims{3, 2}));
  EXPECT_THAT(Values<float>(dtable), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(LookupTableTest, SparseGradientOfNoIdsHasNoRows) {
  Tensor dtable;
  WEFT_ASSERT_OK(SparseGrad(Ids({0, 1}, {}), Floats({0, 1, 2}, {}), {}, &dtable));
  EXPECT_TRUE(dtable.rows().empty());
  EXPECT_EQ(dtable.TallDims(), (Dims{3, 2}));
}

TEST(LookupTableTest, SparseGradientChecksIds) {
  Tensor dtable;
  EXPECT_THAT(SparseGrad(Ids({2}, {0, 3}), Floats({2, 2}, {1, 2, 3, 4}), {}, &dtable),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "input Ids: 3 at position 1 is not in [0, 3), the rows of W"));
}

TEST(LookupTableTest, IdsOutOfRangeMayGiveZerosAndNoGradient) {
  const AttrValues zeros = {{"zeros_out_of_range", true}};
  const Tensor ids = Ids({4}, {3, 1, -1, 1});
  const Tensor dout = Floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out, RunOp("lookup_table_v2", {{"W", {Table()}}, {"Ids", {ids}}}, zeros, {{"Out", 1}}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0, 3, 4, 0, 0, 3, 4));
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto grad,
      RunOp("lookup_table_v2_grad", {{"W", {Table()}}, {"Ids", {ids}}, {"Out@GRAD", {dout}}}, zeros,
            {{"W@GRAD", 1}}));
  EXPECT_THAT(Values<float>(grad["W@GRAD"][0]), ElementsAre(0, 0, 10, 12, 0, 0));
  Tensor rows;
  WEFT_ASSERT_OK(SparseGrad(ids, dout, zeros, &rows));
  EXPECT_THAT(rows.rows(), ElementsAre(1, 1));
  EXPECT_THAT(Values<float>(rows), ElementsAre(3, 4, 7, 8));
  WEFT_ASSERT_OK(SparseGrad(Ids({1}, {9}), Floats({1, 2}, {1, 2}), zeros, &rows));
  EXPECT_TRUE(rows.rows().empty());
}

TEST(LookupTableTest, SparsenessOfOpAndVariableMustAgree) {
  Tensor table = Table(), ids = Ids({1}, {0}), dout = Floats({1, 2}, {1, 2});
  Tensor rows = Rows({3, 2}, {}, {});
  EXPECT_THAT(
      RunOpOn("lookup_table_v2_grad", {{"W", {&table}}, {"Ids", {&ids}}, {"Out@GRAD", {&dout}}}, {},
              {{"W@GRAD", {&rows}}}),
      IsUnimplemented("W@GRAD is SelectedRows"));

  EXPECT_THAT(
      RunOp("lookup_table_v2_grad",
            {{"W", {Table()}}, {"Ids", {Ids({1}, {0})}}, {"Out@GRAD", {Floats({1, 2}, {1, 2})}}},
            {{"is_sparse", true}}, {{"W@GRAD", 1}}),
      IsUnimplemented("W@GRAD is a dense tensor"));
}

TEST(LookupTableTest, IdsOfTheFirstVersionHaveALastDimensionOfOne) {
  WEFT_ASSERT_OK_AND_ASSIGN(
      auto out,
      RunOp("lookup_table", {{"W", {Table()}}, {"Ids", {Ids({2, 1}, {2, 0})}}}, {}, {{"Out", 1}}));
  EXPECT_THAT(out["Out"][0].dims(), ElementsAre(2, 2));
  EXPECT_THAT(
      RunOp("lookup_table", {{"W", {Table()}}, {"Ids", {Ids({2}, {2, 0})}}}, {}, {{"Out", 1}}),
      IsInvalidArgument("input Ids"));
}

TEST(EmbeddingTest, IdsOfOtherPartsGiveZeros) {
  const AttrValues part = {{"start_index", int64_t{3}}, {"vocab_size", int64_t{9}}};
  const auto look_up = [&](const std::vector<int64_t>& ids) {
    return RunOp("c_embedding", {{"W", {Table()}}, {"Ids", {Ids({2}, ids)}}}, part, {{"Out", 1}});
  };
  WEFT_ASSERT_OK_AND_ASSIGN(auto out, look_up({8, 4}));
  EXPECT_THAT(Values<float>(out["Out"][0]), ElementsAre(0, 0, 3, 4));
  EXPECT_THAT(look_up({3, 9}), IsInvalidArgument("9 at position 1"));
  EXPECT_THAT(look_up({-1, 3}), IsInvalidArgument("-1 at position 0"));
}

TEST(CEmbeddingTest, APartBeginsAtARow) {
  for (const bool is_grad : {false, true}) {
    SlotTensors inputs = {{"W", {Table()}}, {"Ids", {Ids({1}, {1})}}};
    if (is_grad) inputs.push_back({"Out@GRAD", {Floats({1, 2}, {1, 2})}});
    EXPECT_THAT(RunOp(is_grad ? "c_embedding_grad" : "c_embedding", inputs,
                      {{"start_index", int64_t{-2}}}, {{is_grad ? "W@GRAD" : "Out", 1}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "attribute start_index: expected 0 or more, found -2"));
  }
}

}  // namespace
}  // namespace weft::testing
