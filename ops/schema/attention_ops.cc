#include "ops/schema/attention_ops.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/schema/infer_context.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

bool Fits(int64_t a, int64_t b) { return a == b || a == -1 || b == -1; }

// Whether `dims` are broadcast to `to`.
bool IsBroadcastTo(const Dims& dims, const Dims& to) {
  if (dims.size() > to.size()) return false;
  return std::equal(dims.rbegin(), dims.rend(), to.rbegin(),
                    [](int64_t d, int64_t t) { return d == 1 || Fits(d, t); });
}

// The dims of the scores, if those of all inputs fit.
absl::Status InferScores(const InferContext& context, Dims* scores) {
  const Dims& q = context.Input("Q")->dims;
  if (q.size() < 2) return context.InputError("Q", "matrices");
  const size_t rank = q.size();
  const auto has_matrices_like_q = [&](absl::string_view slot) {
    const Dims& dims = context.Input(slot)->dims;
    return dims.size() == rank && std::equal(q.begin(), q.end() - 2, dims.begin(), Fits);
  };
  for (absl::string_view slot : {"K", "V"}) {
    if (!has_matrices_like_q(slot)) {
      return context.InputError(slot, absl::StrCat("a batch of matrices as Q, ", DimsToString(q)));
    }
  }
  const Dims &k = context.Input("K")->dims, &v = context.Input("V")->dims;
  if (!Fits(k.back(), q.back())) {
    return context.InputError("K", absl::StrCat(q.back(), " columns"));
  }
  if (!Fits(v[rank - 2], k[rank - 2])) {
    return context.InputError("V", absl::StrCat(k[rank - 2], " rows"));
  }
  *scores = q;
  scores->back() = k[rank - 2];
  const TensorType* const mask = context.Input("Mask");
  if (mask != nullptr && !IsBroadcastTo(mask->dims, *scores)) {
    return context.InputError("Mask",
                              absl::StrCat("dims that are broadcast to ", DimsToString(*scores)));
  }
  return absl::OkStatus();
}

bool AreKnown(const InferContext& context) {
  return absl::c_all_of(std::initializer_list<absl::string_view>{"Q", "K", "V"},
                        [&](absl::string_view slot) { return context.Input(slot) != nullptr; });
}

absl::Status InferAttention(InferContext& context) {
  if (!AreKnown(context)) return absl::OkStatus();
  Dims scores;
  const absl::Status status = InferScores(context, &scores);
  if (!status.ok()) return status;
  TensorType out = *context.Input("Q");
  out.dims.back() = context.Input("V")->dims.back();
  context.SetOutput("Out", std::move(out));
  context.SetOutput("Kept", {DType::kUint8, std::move(scores)});
  return absl::OkStatus();
}

absl::Status InferAttentionGrad(InferContext& context) {
  if (!AreKnown(context)) return absl::OkStatus();
  Dims scores;
  const absl::Status status = InferScores(context, &scores);
  if (!status.ok()) return status;
  return GradsLikeInputs()(context);
}

OpSchema MakeSchema(const char* type, const char* slots, OpSchema::InferFn infer) {
  return OpSchema(type, slots)
      .Attr("alpha", 1.0f)
      .Attr("fix_seed", false)
      .Attr("seed", 0)
      .Attr("dropout_implementation", "upscale_in_train",
            range::OneOf({"upscale_in_train", "downgrade_in_infer"}))
      .Attr("dropout_prob", 0.0f, range::Between(0, 1))
      .Attr("is_test", false)
      .Infer(std::move(infer));
}

}  // namespace

AttentionPart AttentionPartOf(absl::string_view op_type) {
  struct Row {
    absl::string_view type;
    AttentionPart part;
  };
  static constexpr Row kRows[] = {
      {"matmul", AttentionPart::kProduct},
      {"matmul_v2", AttentionPart::kProduct},
      {"matmul_grad", AttentionPart::kProductGrad},
      {"matmul_v2_grad", AttentionPart::kProductGrad},
      {"scale", AttentionPart::kScale},
      {"elementwise_add", AttentionPart::kAdd},
      {"elementwise_add_grad", AttentionPart::kAddGrad},
      {"softmax", AttentionPart::kSoftmax},
      {"softmax_grad", AttentionPart::kSoftmaxGrad},
      {"dropout", AttentionPart::kDropout},
      {"dropout_grad", AttentionPart::kDropoutGrad},
  };
  for (const Row& row : kRows) {
    if (row.type == op_type) return row.part;
  }
  return AttentionPart::kNone;
}

const OpSchema& AttentionSchema() {
  static const OpSchema* const schema =
      new OpSchema(MakeSchema(kAttention, "Q, K, V, Mask? -> Out, Kept?", InferAttention));
  return *schema;
}

const OpSchema& AttentionGradSchema() {
  static const OpSchema* const schema = new OpSchema(
      MakeSchema(kAttentionGrad, "Q, K, V, Mask?, Kept?, Out@GRAD -> Q@GRAD, K@GRAD, V@GRAD",
                 InferAttentionGrad));
  return *schema;
}

}  // namespace weft
