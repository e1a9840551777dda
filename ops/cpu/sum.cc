// Sums of tensors of one shape: gradients of a parameter with several uses, weight decay.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Out = X[0] + X[1] + ..., in this order for every element; in blocks, so that Out may be any X.
template <typename T>
void AddUp(const std::vector<const Tensor*>& terms, Tensor* out) {
  constexpr int64_t kBlock = 1024;
  T sums[kBlock];
  for (int64_t begin = 0; begin < out->size(); begin += kBlock) {
    const int64_t n = std::min(kBlock, out->size() - begin);
    std::copy_n(terms[0]->data<T>() + begin, n, sums);
    for (size_t term = 1; term < terms.size(); ++term) {
      const T* x = terms[term]->data<T>() + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<T>(Wrapping(sums[i]) + Wrapping(x[i]));
    }
    std::copy_n(sums, n, out->data<T>() + begin);
  }
}

// Inputs that are empty, or no variable, do not count.
absl::StatusOr<Kernel> Sum(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace()
      .AllowEmptyArguments(x)
      .Supports(FloatsAndInts(x))
      .Make([=, terms = std::vector<const Tensor*>()](
                const KernelContext& ctx) mutable -> absl::Status {
        const Tensor* like = nullptr;  // the first that counts; an empty one if there is none
        terms.clear();
        for (int i = 0; i < x.count(); ++i) {
          const Tensor* term = x.get(ctx, i);
          if (term == nullptr) continue;
          if (like == nullptr || (terms.empty() && term->size() > 0)) like = term;
          if (term->size() == 0) continue;
          WEFT_RETURN_IF_ERROR(CheckDType("X", *term, like->dtype()));
          WEFT_RETURN_IF_ERROR(CheckDims("X", *term, like->dims()));
          terms.push_back(term);
        }
        if (like == nullptr) return absl::InvalidArgumentError("input X: missing");
        return ForNumberType("input X", *like, [&](auto tag) {
          out(ctx).Resize(like->dtype(), like->dims());
          AddUp<typename decltype(tag)::type>(terms, &out(ctx));
          return absl::OkStatus();
        });
      });
}

}  // namespace

void AddSumKernels(KernelTable* table) { table->Add("sum", Sum); }

}  // namespace weft
