// Activation functions and their gradients. A new one that works element by element is a row of the
// table. ops/formulas/activation.h has its formulas.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "ops/schema/batch_rule_functions.h"
#include "ops/schema/families.h"
#include "ops/schema/infer_functions.h"

namespace weft {
namespace {

struct Row {
  const char* type;
  std::vector<std::string> grad_reads;  // besides the gradient of the output
  std::vector<std::pair<const char*, AttrValue>> attrs;
  std::string pir = "";  // OpSchema::Pir
  PostOpKind post_op = PostOpKind::kNone;
  Algebra algebra = Algebra::kNone;
  Powers powers = Powers::kNone;
};

OpSchema Forward(const Row& row) {
  OpSchema schema(row.type, "X -> Out");
  for (const auto& [name, value] : row.attrs) std::move(schema).Attr(name, value);
  return std::move(schema)
      .With(Trait::kElementwise, Trait::kRowSplittable)
      .Infer(OutputsLike("X"))
      .Algebra(row.algebra)
      .Batch({batch::Elementwise, row.powers})
      .PostOp(row.post_op)
      .Pir(row.pir);
}

OpSchema Grad(const Row& row) {
  std::vector<OpSchema::InferFn> steps;
  for (absl::string_view slot : row.grad_reads) {
    steps.push_back(SameType(std::string(absl::StripSuffix(slot, "+")), "Out@GRAD"));
  }
  steps.push_back(OutputsLike(row.grad_reads.empty() ? "Out@GRAD" : row.grad_reads.front()));
  return GradSchema(Forward(row), std::string(row.type) + "_grad",
                    {row.grad_reads, {"Out"}, {"X"}, /*optional=*/false}, InOrder(std::move(steps)))
      .With(Trait::kElementwise, Trait::kRowSplittable);
}

std::vector<Row> Rows() {
  const std::vector<std::string> kNothing, kX = {"X"}, kOut = {"Out"}, kBoth = {"X", "Out"};
  return {
      {"abs", kX, {}, "", PostOpKind::kNone, Algebra::kNone, Powers::kPositive},
      {"acos", kX, {}},
      {"acosh", kX, {}},
      {"asin", kX, {}},
      {"asinh", kX, {}},
      {"atan", kX, {}},
      {"atanh", kX, {}},
      {"brelu", kX, {{"t_max", 24.0f}, {"t_min", 0.0f}}, "hardtanh"},
      {"ceil", kNothing, {}},
      {"celu", kX, {{"alpha", 1.0f}}},
      {"cos", kX, {}},
      {"cosh", kX, {}},
      {"digamma", kX, {}},
      {"elu", {"X", "Out+"}, {{"alpha", 1.0f}}},
      {"erf", kX, {}},
      {"erfinv", kOut, {}},
      {"exp", kOut, {}},
      {"expm1", kOut, {}},
      {"floor", kNothing, {}},
      {"gelu", kX, {{"approximate", false}}},
      {"hard_shrink", kX, {{"threshold", 0.5f}}, "hardshrink"},
      {"hard_sigmoid", kOut, {{"offset", 0.5f}, {"slope", 0.2f}}, "hardsigmoid"},
      {"hard_swish", kX, {{"offset", 3.0f}, {"scale", 6.0f}, {"threshold", 6.0f}}, "hardswish"},
      {"leaky_relu", kX, {{"alpha", 0.02f}}, "{negative_slope=alpha}"},
      {"lgamma", kX, {}},
      {"log", kX, {}},
      {"log10", kX, {}},
      {"log1p", kX, {}},
      {"log2", kX, {}},
      {"logit", kX, {{"eps", 1e-6f}}},
      {"logsigmoid", kX, {}},
      {"mish", kX, {{"threshold", 20.0f}}, "{lambda=threshold}"},
      {"pow", kX, {{"factor", 1.0f}}, "{y=factor}"},
      {"reciprocal", kOut, {}},
      {"relu", kOut, {}, "", PostOpKind::kRelu},
      {"relu6", kOut, {{"threshold", 6.0f}}},
      {"round", kNothing, {}, "{decimals=}"},
      {"rsqrt", kOut, {}},
      {"selu", kOut, {{"alpha", 1.6732632f}, {"scale", 1.050701f}}},
      {"sigmoid", kOut, {}},
      {"silu", kBoth, {}},
      {"sin", kX, {}},
      {"sinh", kX, {}},
      {"softplus", kX, {{"beta", 1.0f}, {"threshold", 20.0f}}},
      {"softshrink", kX, {{"lambda", 0.5f}}, "{threshold=lambda}"},
      {"softsign", kX, {}},
      {"sqrt", kOut, {}, "", PostOpKind::kNone, Algebra::kSqrt},
      {"square", kX, {}},
      {"stanh", kX, {{"scale_a", 0.67f}, {"scale_b", 1.7159f}}},
      {"swish", kX, {{"beta", 1.0f}}},
      {"tan", kX, {}},
      {"tanh", kOut, {}},
      {"tanh_shrink", kX, {}},
      {"thresholded_relu", kX, {{"threshold", 1.0f}}},
      {"trunc", kNothing, {}, "(input:X)"},
  };
}

// Before Paddle 2 it reads Out, which has the signs of X if alpha is not negative.
absl::Status InferLeakyReluGrad(InferContext& context) {
  const char* const read = context.HasInput("X") ? "X" : "Out";
  WEFT_RETURN_IF_ERROR(SameType(read, "Out@GRAD")(context));
  const double alpha = context.attrs().Float("alpha");
  if (read[0] == 'O' && alpha < 0) {
    return context.AttrError("alpha", "0 or more, as the op has no input X", absl::StrCat(alpha));
  }
  return OutputsLike(read)(context);
}

// --- ReLU with a trained slope ------------------------------------------------------------------

// One slope for all elements, for each channel, or for each element of a sample.
absl::Status InferPrelu(InferContext& context, const TensorType& x) {
  const std::string& mode = context.attrs().String("mode");
  const std::string& format = context.attrs().String("data_format");
  const size_t rank = x.dims.size();
  int64_t slopes = 1;
  if (mode == "channel") {
    if (rank < 2) return context.InputError("X", "channels");
    slopes = x.dims[format.back() == 'C' ? rank - 1 : 1];
  } else if (mode == "element") {
    if (rank < 1) return context.InputError("X", "samples");
    slopes = Product(absl::MakeConstSpan(x.dims).subspan(1));
  }
  WEFT_RETURN_IF_ERROR(CheckElements(context, "Alpha", slopes));
  context.SetOutput("Out", x);
  return absl::OkStatus();
}

// --- Softmax and its logarithm ------------------------------------------------------------------

absl::Status CheckLogSoftmaxAxis(InferContext& context, const TensorType& out) {
  return AxisFromAttr(context, "axis", out.dims).status();
}

// Unlike log_softmax, softmax takes no scalars.
absl::Status CheckSoftmaxAxis(InferContext& context, const TensorType& type) {
  return ResolveAxis(context, "axis", type.dims.size()).status();
}

// --- The gated unit of feed-forward layers ------------------------------------------------------

// Without y, x has both: the halves of its last dimension.
absl::Status InferSwiglu(InferContext& context, const TensorType& x) {
  TensorType out = x;
  if (!context.HasInput("y")) {
    if (x.dims.empty() || x.dims.back() % 2 == 1) {
      return context.InputError("x", "a last dimension of two halves");
    }
    if (out.dims.back() != -1) out.dims.back() /= 2;
  }
  context.SetOutput("out", out);
  return absl::OkStatus();
}

}  // namespace

void AddActivationSchemas(OpSchemaTable* schemas) {
  for (const Row& row : Rows()) {
    schemas->Add(Forward(row));
    if (row.type != absl::string_view("leaky_relu")) schemas->Add(Grad(row));
  }
  schemas->Add(OpSchema("leaky_relu_grad", "Out-, Out@GRAD, X+ -> X@GRAD")
                   .Attr("alpha", 0.02f)
                   .With(Trait::kElementwise, Trait::kRowSplittable)
                   .Infer(InferLeakyReluGrad));
  // Its gradient is a scale by 0.
  schemas->Add(Forward({"sign", {}, {}, "", PostOpKind::kNone, Algebra::kNone, Powers::kSign}));
  AddWithGrad(schemas,
              OpSchema("prelu", "Alpha, X -> Out")
                  .Attr("data_format", "NCHW")
                  .Attr("mode", "all", range::OneOf({"all", "channel", "element"}))
                  .Infer(InOrder({SameDType("Alpha", "X"), IfKnown("X", InferPrelu)}))
                  .Batch({batch::Rows({"X"})})
                  .Pir("(x, alpha)"),
              {{"Alpha", "X"}, {"Out"}, {"Alpha", "X"}});
  AddWithGrad(schemas,
              OpSchema("log_softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Infer(LikeXAlongAxis("axis"))
                  .Batch({batch::Along("X", "axis")})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}},
              InOrder({SameType("Out", "Out@GRAD"), IfKnown("Out", CheckLogSoftmaxAxis),
                       OutputsLike("Out")}));
  AddWithGrad(schemas,
              OpSchema("softmax", "X -> Out")
                  .Attr("axis", -1)
                  .Infer(InOrder({IfKnown("X", CheckSoftmaxAxis), OutputsLike("X")}))
                  .Batch({batch::Along("X", "axis")})
                  .Pir(),
              {{"Out"}, {"Out"}, {"X"}, /*optional=*/false},
              InOrder({IfKnown("Out", CheckSoftmaxAxis), OutputsLike("Out", {"Out@GRAD"})}));
  AddWithGrad(schemas,
              OpSchema("swiglu", "x, y? -> out")
                  .Infer(InOrder({SameType("x", "y"), IfKnown("x", InferSwiglu)}))
                  .Batch({batch::Swiglu})
                  .Pir(),
              {{"x", "y"}, {"out"}, {"x", "y"}});
}

}  // namespace weft
