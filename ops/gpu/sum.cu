// Sums of tensors of one shape: gradients of a parameter with several uses, weight decay.
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/formulas/elementwise.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The terms that one launch adds. More are added to the sum of the first ones.
constexpr int kTerms = 8;

template <typename T>
struct AddTerms {
  const T* terms[kTerms];
  int count;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    T sum = terms[0][i];
    for (int k = 1; k < count; ++k) sum = formulas::Add<T>()(sum, terms[k][i]);
    to[i] = sum;
  }
};

// Out = X[0] + X[1] + ..., in this order for every element. Inputs that are empty, or no variable,
// do not count.
absl::StatusOr<Kernel> Sum(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  // Only the first launch may read what Out overwrites.
  if (x.count() <= kTerms) op.InPlace();
  return op.AllowEmptyArguments(x)
      .Supports(FloatsAndInts(x))
      .Make([=](const KernelContext& ctx) -> absl::Status {
        const Tensor* like = nullptr;  // the first that counts; an empty one if there is none
        std::vector<const Tensor*> terms;
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
        return ForNumberType("input X", *like, [&](auto tag) -> absl::Status {
          using T = typename decltype(tag)::type;
          out(ctx).Resize(like->dtype(), like->dims());
          T* const to = out.data<T>(ctx);
          for (size_t next = 0; next < terms.size();) {
            AddTerms<T> add{{}, 0, to};
            if (next > 0) add.terms[add.count++] = to;
            while (add.count < kTerms && next < terms.size()) {
              add.terms[add.count++] = terms[next++]->template data<T>();
            }
            WEFT_RETURN_IF_ERROR(ForEach(ctx, out(ctx).size(), add));
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

void AddGpuSumKernels(KernelTable* table) { table->Add("sum", Sum); }

}  // namespace weft
