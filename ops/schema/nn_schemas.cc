// Layers: embedding, dropout, softmax. (Normalization is in norm_schemas.cc, convolution and
// pooling in window_schemas.cc.)
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

constexpr int kOptional = OpSchema::kOptional;

// --- softmax, dropout ----------------------------------------------------------------------------

absl::Status CheckSoftmaxAxis(InferContext& context) {
  const char* const slot = context.HasInput("X") ? "X" : "Out";
  const TensorType* type = context.Input(slot);
  if (type == nullptr) return absl::OkStatus();
  return ResolveAxis(context, "axis", context.attrs().Int("axis"), type->dims.size()).status();
}

absl::Status InferDropout(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  context.SetOutput("Out", *x);
  context.SetOutput("Mask", {DType::kUint8, x->dims});
  return absl::OkStatus();
}

OpSchema WithDropoutAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("fix_seed", false)
      .Attr("seed", 0)
      .Attr("dropout_implementation", "downgrade_in_infer")
      .Attr("dropout_prob", 0.5f)
      .Attr("is_test", false);
}

void AddSoftmaxAndDropout(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("softmax")
                   .In("X")
                   .Out("Out")
                   .Attr("axis", -1)
                   .Infer(InOrder({CheckSoftmaxAxis, OutputsLike("X")})));
  schemas->Add(
      OpSchema("softmax_grad")
          .In("Out")
          .In("Out@GRAD")
          .Out("X@GRAD")
          .Attr("axis", -1)
          .Infer(InOrder({CheckSoftmaxAxis, SameType("Out", "Out@GRAD"), OutputsLike("Out")})));

  schemas->Add(WithDropoutAttrs(OpSchema("dropout")
                                    .In("Seed", kOptional)
                                    .In("X")
                                    .Out("Mask", kOptional)
                                    .Out("Out")
                                    .With(Trait::kSideEffect)
                                    .Infer(InferDropout)));
  schemas->Add(WithDropoutAttrs(
      OpSchema("dropout_grad")
          .In("Mask", kOptional)
          .In("Out@GRAD")
          .Out("X@GRAD")
          .With(Trait::kElementwise)
          .With(Trait::kRowSplittable)
          .Infer(InOrder({SameDims("Out@GRAD", "Mask"), OutputsLike("Out@GRAD")}))));
}

// --- lookup_table
// ---------------------------------------------------------------------------------

absl::Status CheckTable(const InferContext& context) {
  const TensorType* w = context.Input("W");
  if (w != nullptr && w->dims.size() != 2) {
    return context.InputError("W", "a table: rows and columns");
  }
  const TensorType* ids = context.Input("Ids");
  if (ids != nullptr && ids->dtype != DType::kInt64 && ids->dtype != DType::kInt32) {
    return context.InputError("Ids", "int64 or int32 row numbers");
  }
  return absl::OkStatus();
}

// A row of the table for every id.
absl::StatusOr<absl::optional<TensorType>> LookedUpRows(const InferContext& context) {
  WEFT_RETURN_IF_ERROR(CheckTable(context));
  const TensorType* w = context.Input("W");
  const TensorType* ids = context.Input("Ids");
  if (w == nullptr || ids == nullptr) return absl::optional<TensorType>();
  TensorType rows = {w->dtype, ids->dims};
  // lookup_table, unlike lookup_table_v2, has a last dimension of 1 in its place.
  if (context.schema().type() == "lookup_table" || context.schema().type() == "lookup_table_grad") {
    if (rows.dims.empty() || !DimFits(rows.dims.back(), 1)) {
      return context.InputError("Ids", "a last dimension of 1");
    }
    rows.dims.pop_back();
  }
  rows.dims.push_back(w->dims[1]);
  return absl::optional<TensorType>(rows);
}

absl::Status InferLookup(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  if (rows.has_value()) context.SetOutput("Out", *rows);
  return absl::OkStatus();
}

// The gradient of the table: dense, or only the rows that were looked up.
absl::Status InferLookupGrad(InferContext& context) {
  WEFT_ASSIGN_OR_RETURN(const absl::optional<TensorType> rows, LookedUpRows(context));
  const TensorType* grad = context.Input("Out@GRAD");
  if (rows.has_value() && grad != nullptr &&
      (grad->dtype != rows->dtype || !DimsFit(grad->dims, rows->dims))) {
    return context.InputError("Out@GRAD", absl::StrCat(ToString(*rows), " as Out"));
  }
  const TensorType* w = context.Input("W");
  if (w == nullptr) return absl::OkStatus();
  const bool is_sparse = context.attrs().Has("is_sparse") && context.attrs().Bool("is_sparse");
  context.SetOutput("W@GRAD",
                    {w->dtype, w->dims,
                     is_sparse ? TensorType::Layout::kSelectedRows : TensorType::Layout::kDense});
  return absl::OkStatus();
}

OpSchema WithLookupAttrs(OpSchema schema) {
  return std::move(schema)
      .Attr("is_distributed", false)
      .Attr("is_sparse", false)
      .Attr("padding_idx", int64_t{-1});
}

void AddLookup(OpSchemaTable* schemas) {
  for (const std::string type : {"lookup_table", "lookup_table_v2"}) {
    schemas->Add(WithLookupAttrs(OpSchema(type)
                                     .In("Ids")
                                     .In("W")
                                     .Out("Out")
                                     .With(Trait::kRowSplittable)
                                     .Infer(InferLookup)));
    schemas->Add(WithLookupAttrs(OpSchema(type + "_grad")
                                     .In("Ids")
                                     .In("Out@GRAD")
                                     .In("W")
                                     .Out("W@GRAD")
                                     .Infer(InferLookupGrad)));
  }
  // A part of a table that is cut by rows: the ids from start_index on.
  OpSchema part = OpSchema("c_embedding")
                      .In("Ids")
                      .In("W")
                      .Out("Out")
                      .Attr("start_index", int64_t{0})
                      .Attr("vocab_size", int64_t{-1})
                      .Infer(InferLookup);
  schemas->Add(
      GradSchema(part, "c_embedding_grad", {{"Ids", "W"}, {"Out"}, {"W"}}, InferLookupGrad));
  schemas->Add(std::move(part));
}

// --- prelu, maxout -------------------------------------------------------------------------------

// One slope for all elements, for each channel, or for each element of a sample.
absl::Status InferPrelu(InferContext& context) {
  const TensorType* x = context.Input("X");
  const TensorType* alpha = context.Input("Alpha");
  if (x == nullptr) return absl::OkStatus();
  const std::string& mode = context.attrs().String("mode");
  const std::string& format = context.attrs().String("data_format");
  const size_t rank = x->dims.size();
  int64_t slopes = 1;
  if (mode == "channel") {
    if (rank < 2) return context.InputError("X", "channels");
    slopes = x->dims[format.back() == 'C' ? rank - 1 : 1];
  } else if (mode == "element") {
    if (rank < 1) return context.InputError("X", "samples");
    slopes = Product(absl::MakeConstSpan(x->dims).subspan(1));
  } else if (mode != "all") {
    return context.AttrError("mode", "all, channel or element", mode);
  }
  if (alpha != nullptr && !DimFits(Product(alpha->dims), slopes)) {
    return context.InputError("Alpha", absl::StrCat(slopes, " elements"));
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

absl::Status InferMaxout(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const OpAttrs& attrs = context.attrs();
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        ResolveAxis(context, "axis", attrs.Int("axis"), x->dims.size()));
  const int64_t groups = attrs.Int("groups");
  if (groups < 1 || (x->dims[axis] != -1 && x->dims[axis] % groups != 0)) {
    return context.AttrError("groups", absl::StrCat("a divisor of ", x->dims[axis]),
                             absl::StrCat(groups));
  }
  TensorType out = *x;
  if (out.dims[axis] != -1) out.dims[axis] /= groups;
  context.SetOutput("Out", out);
  return absl::OkStatus();
}

void AddPreluAndMaxout(OpSchemaTable* schemas) {
  AddWithGrad(schemas,
              OpSchema("prelu")
                  .In("Alpha")
                  .In("X")
                  .Out("Out")
                  .Attr("data_format", "NCHW")
                  .Attr("mode", "all")
                  .Infer(InOrder({SameDType("Alpha", "X"), InferPrelu})),
              {{"Alpha", "X"}, {"Out"}, {"Alpha", "X"}});
  AddWithGrad(schemas,
              OpSchema("maxout")
                  .In("X")
                  .Out("Out")
                  .Attr("axis", 1)
                  .RequiredAttr("groups", 1)
                  .Infer(InferMaxout),
              {{"Out", "X"}, {"Out"}, {"X"}});
}

absl::Status InferGumbelSoftmax(InferContext& context) {
  const TensorType* x = context.Input("X");
  if (x == nullptr) return absl::OkStatus();
  const int64_t axis = context.attrs().Int("axis");
  if (!x->dims.empty() || (axis != 0 && axis != -1)) {
    WEFT_RETURN_IF_ERROR(ResolveAxis(context, "axis", axis, x->dims.size()).status());
  }
  context.SetOutput("Out", *x);
  return absl::OkStatus();
}

// Functions that draw.
void AddNoise(OpSchemaTable* schemas) {
  schemas->Add(OpSchema("rrelu")
                   .In("X")
                   .Out("Noise")
                   .Out("Out")
                   .Attr("is_test", false)
                   .Attr("lower", 0.125f)
                   .Attr("upper", 1.0f / 3)
                   .With(Trait::kSideEffect)
                   .Infer(OutputsLike("X")));
  schemas->Add(
      OpSchema("rrelu_grad")
          .In("Noise")
          .In("Out@GRAD")
          .In("X")
          .Out("X@GRAD")
          .Infer(InOrder({SameType("X", "Noise"), SameType("X", "Out@GRAD"), GradsLikeInputs()})));
  OpSchema gumbel = OpSchema("gumbel_softmax")
                        .In("X")
                        .Out("Out")
                        .Attr("axis", -1)
                        .Attr("hard", false)
                        .Attr("temperature", 1.0f)
                        .With(Trait::kSideEffect)
                        .Infer(InferGumbelSoftmax);
  schemas->Add(GradSchema(gumbel, "gumbel_softmax_grad", {{"Out"}, {"Out"}, {"X"}},
                          InOrder({SameType("Out", "Out@GRAD"), OutputsLike("Out")})));
  schemas->Add(std::move(gumbel));
}

}  // namespace

void AddNnSchemas(OpSchemaTable* schemas) {
  AddSoftmaxAndDropout(schemas);
  AddLookup(schemas);
  AddPreluAndMaxout(schemas);
  AddNoise(schemas);
}

}  // namespace weft
