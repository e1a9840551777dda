// Elements chosen, found and counted by indices, and segments of rows.
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/extra/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

// --- Paths of a beam search ---------------------------------------------------------------------

absl::Status CheckIds(InferContext& context, const TensorType& ids) {
  if (IsIndex(ids.dtype) && ids.dims.size() == 3) return absl::OkStatus();
  return context.InputError("Ids", "int64 or int32 numbers [steps, batch, beams]");
}

// --- Binary search in sorted rows ---------------------------------------------------------------

absl::Status InferSearchSorted(InferContext& context, const TensorType& sequence,
                               const TensorType& values) {
  if (sequence.dims.empty()) return context.InputError("SortedSequence", "at least one dimension");
  if (sequence.dims.size() > 1) {
    Dims expected = sequence.dims;
    expected.back() = -1;
    WEFT_RETURN_IF_ERROR(CheckDims(context, "Values", expected));
  }
  const bool narrow = context.attrs().Bool("out_int32");
  context.SetOutput("Out", {narrow ? DType::kInt32 : DType::kInt64, values.dims});
  return absl::OkStatus();
}

// --- Histograms of integers ---------------------------------------------------------------------

absl::Status InferBinCount(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  if (!IsIndex(x->dtype) || x->dims.size() != 1) {
    return context.InputError("X", "one dimension of int64 or int32 numbers");
  }
  DType dtype = DType::kInt64;
  if (context.HasInput("Weights")) {
    const TensorType* weights = context.Input("Weights");
    if (weights == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckDims(context, "Weights", x->dims));
    dtype = weights->dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  }
  context.SetOutput("Out", {dtype, {-1}});
  return absl::OkStatus();
}

// --- Distinct elements --------------------------------------------------------------------------

absl::Status InferUnique(InferContext& context) {
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const DType dtype, IndexDTypeFromAttr(context, "dtype"));
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  // In order of first occurrence, elements are compared, and no slices.
  const std::vector<int64_t> axes =
      attrs.Bool("is_sorted") ? attrs.Ints("axis") : std::vector<int64_t>();
  TensorType out = {x->dtype, {-1}};
  int64_t layers = Product(x->dims);
  if (axes.size() > 1) return context.AttrError("axis", "one or none", DimsToString(axes));
  if (!axes.empty()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, ResolveAxis(context, "axis", axes[0], x->dims.size()));
    layers = x->dims[axis];
    out.dims = x->dims;
    out.dims[axis] = -1;
  }
  context.SetOutput("Out", out);
  if (attrs.Bool("return_index")) context.SetOutput("Indices", {dtype, {-1}});
  const bool has_index = attrs.Bool("return_inverse") || !attrs.Bool("is_sorted");
  if (has_index) context.SetOutput("Index", {dtype, {layers}});
  if (attrs.Bool("return_counts")) context.SetOutput("Counts", {dtype, {-1}});
  return absl::OkStatus();
}

absl::Status InferUniqueWithCounts(InferContext& context, const TensorType& x) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, IndexDTypeFromAttr(context, "dtype"));
  context.SetOutput("Out", {x.dtype, {-1}});
  context.SetOutput("Index", {dtype, {Product(x.dims)}});
  context.SetOutput("Count", {dtype, {-1}});
  return absl::OkStatus();
}

// --- Each row from one of several tensors -------------------------------------------------------

absl::Status InferMultiplex(InferContext& context, const TensorType& x) {
  const TensorType* ids = context.Input("Ids");
  if (x.dims.size() < 2) return context.InputError("X", "at least two dimensions");
  for (size_t i = 1; i < context.NumInputs("X"); ++i) {
    const TensorType* other = context.Input("X", i);
    if (other != nullptr && *other != x) {
      return context.InputError("X", i, absl::StrCat(ToString(x), " as the others"));
    }
  }
  if (ids != nullptr &&
      (!IsIndex(ids->dtype) || ids->dims.empty() || !DimFits(Product(ids->dims), ids->dims[0]) ||
       (x.dims[0] != -1 && ids->dims[0] > x.dims[0]))) {
    return context.InputError("Ids", "a number for each of the first rows");
  }
  TensorType out = x;
  if (ids != nullptr) out.dims[0] = ids->dims[0];
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status InferMultiplexGradWithoutX(InferContext& context, const TensorType& dout) {
  if (context.HasInput("X")) return absl::OkStatus();
  if (dout.dims.size() < 2) return context.InputError("Out@GRAD", "at least two dimensions");
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Ids", dout.dims[0]));
  for (size_t i = 0; i < context.NumOutputs("X@GRAD"); ++i) context.SetOutput("X@GRAD", i, dout);
  return absl::OkStatus();
}

// --- Reductions of segments of rows -------------------------------------------------------------

// Out has a row for each segment number. Only means use SummedIds.
absl::Status InferSegmentPool(InferContext& context) {
  const TensorType* ids = context.Input("SegmentIds");
  const TensorType* x = context.Input("X");
  if (x != nullptr && x->dims.empty()) return context.InputError("X", "a row for each number");
  if (ids != nullptr && (!IsIndex(ids->dtype) || ids->dims.size() != 1 ||
                         (x != nullptr && !DimFits(ids->dims[0], x->dims[0])))) {
    return context.InputError("SegmentIds", "an int64 or int32 number for each row of X");
  }
  if (x == nullptr) return absl::OkStatus();
  TensorType out = *x;
  out.dims[0] = -1;
  context.SetOutput("Out", out);
  if (context.attrs().String("pooltype") == "MEAN") {
    context.SetOutput("SummedIds", {x->dtype, {-1, 1}});
  }
  return absl::OkStatus();
}

absl::Status CheckShard(InferContext& context) {
  const int64_t shards = context.attrs().Int("nshards"), shard = context.attrs().Int("shard_id");
  if (shard < shards) return absl::OkStatus();
  return context.AttrError("shard_id", absl::StrCat("0 to ", shards, " - 1 (nshards)"),
                           absl::StrCat(shard));
}

}  // namespace

void AddIndexingSchemas(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("shard_index", "X -> Out")
                   .Attr("ignore_value", -1)
                   .RequiredAttr("index_num", 1, range::AtLeast(1))
                   .RequiredAttr("nshards", 1, range::AtLeast(1))
                   .RequiredAttr("shard_id", 0, range::AtLeast(0))
                   .Infer(InOrder({CheckShard, OutputsLike("X")}))
                   .Batch({batch::Lookup("X")})
                   .Pir("(input:X)"));
  schemas->Add(OpSchema("gather_tree", "Ids, Parents -> Out")
                   .Infer(InOrder(
                       {SameType("Ids", "Parents"), IfKnown("Ids", CheckIds), OutputsLike("Ids")}))
                   .Batch(batch::Unrelated(batch::kNotNeeded)));
  schemas->Add(OpSchema("searchsorted", "SortedSequence, Values -> Out")
                   .Attr("out_int32", false)
                   .Attr("right", false)
                   .Infer(InOrder({SameDType("SortedSequence", "Values"),
                                   IfKnown("SortedSequence", "Values", InferSearchSorted)}))
                   .Batch({batch::Lookup("Values")})
                   .Pir());
  schemas->Add(OpSchema("bincount", "Weights?, X -> Out")
                   .Attr("minlength", 0, range::AtLeast(0))
                   .Infer(InferBinCount)
                   .Batch(batch::Unrelated(batch::kNotNeeded))
                   .Pir("(x, weights, @minlength)"));
  schemas->Add(OpSchema("unique", "X -> Counts?, Index?, Indices?, Out")
                   .Attr("axis", Ints{})
                   .Attr("dtype", kInt64)
                   .Attr("is_sorted", false)
                   .Attr("return_counts", false)
                   .Attr("return_index", false)
                   .Attr("return_inverse", false)
                   .Infer(InferUnique)
                   .Batch(batch::Unrelated(batch::kWholeResult))
                   .Pir("-> out, indices, inverse:Index, counts"));
  schemas->Add(OpSchema("unique_with_counts", "X -> Count, Index, Out")
                   .RequiredAttr("dtype", kInt64)
                   .Infer(IfKnown("X", InferUniqueWithCounts))
                   .Batch(batch::Unrelated(batch::kWholeResult)));
  AddWithGrad(schemas,
              OpSchema("multiplex", "Ids, X* -> Out")
                  .Infer(IfKnown("X", InferMultiplex))
                  .Batch({batch::Rows({"X", "Ids"})})
                  .Pir("(inputs:X, index:Ids)"),
              {{"Ids", "X+"}, {"Out"}, {"X"}},
              InOrder({GradOf(IfKnown("X", InferMultiplex)),
                       IfKnown("Out@GRAD", InferMultiplexGradWithoutX)}));
  AddWithGrad(schemas,
              OpSchema("segment_pool", "SegmentIds, X -> Out, SummedIds?~")
                  .Attr("pooltype", "SUM", range::OneOf({"SUM", "MEAN", "MAX", "MIN"}))
                  .Infer(InferSegmentPool)
                  .Batch(batch::Unrelated(batch::kNotNeeded))
                  .Pir("(x, segment_ids) -> out, summed_ids?"),
              {{"Out", "SegmentIds", "SummedIds", "X"}, {"Out"}, {"X"}});
}

}  // namespace weft
