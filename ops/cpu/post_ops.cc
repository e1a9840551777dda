#include "ops/cpu/post_ops.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ops/vectorize.h"

namespace weft {

absl::StatusOr<PostOps> PostOps::Bind(const std::vector<PostOp>& list, const KernelContext& ctx,
                                      const Tensor& result, ResultChannels channels) {
  PostOps bound;
  bound.list_.assign(list.begin(), list.end());
  bound.channels_ = channels;
  for (const PostOp& op : list) {
    if (op.input < 0) continue;
    const Tensor& operand = *ctx.inputs[op.input];
    const Dims expected = op.kind == PostOpKind::kBias ? Dims{channels.channels} : result.dims();
    if (operand.dims() == expected && operand.dtype() == result.dtype()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("what is added: expected ", DTypeName(result.dtype()), DimsToString(expected),
                     ", found ", DTypeName(operand.dtype()), DimsToString(operand.dims())));
  }
  return bound;
}

bool PostOps::adds_tensor() const {
  return absl::c_any_of(list_, [](const PostOp& op) { return op.kind == PostOpKind::kAdd; });
}

void PostOps::AddTo(const dnnl::memory::desc& result, const dnnl::memory::desc& bias,
                    bool takes_bias, dnnl::primitive_attr* attributes,
                    std::vector<DnnlPrimitive::Argument>* arguments) const {
  dnnl::post_ops post_ops;
  for (const PostOp& op : list_) {
    if (op.kind == PostOpKind::kRelu) {
      post_ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
      continue;
    }
    const bool is_bias = op.kind == PostOpKind::kBias;
    const dnnl::memory::desc& operand = is_bias ? bias : result;
    int name = DNNL_ARG_BIAS;
    if (!is_bias || !takes_bias || &op != list_.data()) {
      name = DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops.len()) | DNNL_ARG_SRC_1;
      post_ops.append_binary(dnnl::algorithm::binary_add, operand);
    }
    arguments->push_back({name, operand, operand});
  }
  attributes->set_post_ops(post_ops);
}

void PostOps::AddOperands(const KernelContext& ctx, Operands* operands) const {
  for (const PostOp& op : list_) {
    if (op.input >= 0) operands->push_back(ctx.inputs[op.input]->raw());
  }
}

template <typename T>
void PostOps::Apply(const KernelContext& ctx, Tensor* result) const {
  T* const to = result->data<T>();
  const int64_t size = result->size();
  const int64_t channels = channels_.channels, inner = channels_.inner;
  for (const PostOp& op : list_) {
    if (op.kind == PostOpKind::kRelu) {
      ForEach<T>(size, [=](int64_t i) { to[i] = to[i] > 0 ? to[i] : T(0); });
      continue;
    }
    const T* const addend = ctx.inputs[op.input]->data<T>();
    if (op.kind == PostOpKind::kAdd) {
      ForEach<T>(size, [=](int64_t i) { to[i] = T(to[i] + addend[i]); });
    } else {
      ForEach<T>(size, [=](int64_t i) { to[i] = T(to[i] + addend[i / inner % channels]); });
    }
  }
}

template void PostOps::Apply<float>(const KernelContext&, Tensor*) const;
template void PostOps::Apply<double>(const KernelContext&, Tensor*) const;
template void PostOps::Apply<BFloat16>(const KernelContext&, Tensor*) const;

}  // namespace weft
