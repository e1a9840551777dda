// Products of tensors: cross products, Kronecker products, einsum.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/axis_rows.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"
#include "ops/schema/extra/einsum.h"

namespace weft {
namespace {

// Attribute dim; its default, 9, means the first dimension of size 3.
AxisRows VectorsOf(const Dims& dims, int64_t dim) {
  if (dim == 9) dim = std::find(dims.begin(), dims.end(), 3) - dims.begin();
  return *AxisRows::Along(dim, dims);
}

// to = a × b, for vectors of three elements along an axis.
template <typename T>
void CrossProducts(const AxisRows& rows, const T* a, const T* b, T* to) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    const int64_t i = rows.Start(r), j = i + rows.stride, k = j + rows.stride;
    to[i] = a[j] * b[k] - a[k] * b[j];
    to[j] = a[k] * b[i] - a[i] * b[k];
    to[k] = a[i] * b[j] - a[j] * b[i];
  }
}

// Out = X × Y.
absl::StatusOr<Kernel> Cross(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const int64_t dim = op.attrs().Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    CrossProducts(VectorsOf(x(ctx).dims(), dim), x.data<T>(ctx), y.data<T>(ctx), out.data<T>(ctx));
  });
}

// X@GRAD = Y × Out@GRAD, Y@GRAD = Out@GRAD × X.
absl::StatusOr<Kernel> CrossGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const int64_t dim = op.attrs().Int("dim");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = VectorsOf(x(ctx).dims(), dim);
    const T* dys = dout.data<T>(ctx);
    if (T* to = dx.data_or_null<T>(ctx)) CrossProducts(rows, y.data<T>(ctx), dys, to);
    if (T* to = dy.data_or_null<T>(ctx)) CrossProducts(rows, dys, x.data<T>(ctx), to);
  });
}

// X and Y with dimensions d as 2 d and 2 d + 1 of a tensor, along which each other is repeated:
// their product under these dims is the Kronecker product.
Broadcast Interleaved(const Dims& x, const Dims& y) {
  Broadcast shapes;
  const size_t rank = std::max(x.size(), y.size());
  for (size_t d = 0; d < rank; ++d) {
    const int64_t a = d + x.size() < rank ? 1 : x[d + x.size() - rank];
    const int64_t b = d + y.size() < rank ? 1 : y[d + y.size() - rank];
    shapes.x.insert(shapes.x.end(), {a, 1});
    shapes.y.insert(shapes.y.end(), {1, b});
    shapes.out.insert(shapes.out.end(), {a, b});
  }
  return shapes;
}

// Out = X ⊗ Y, the Kronecker product.
absl::StatusOr<Kernel> Kron(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    MapBroadcast(Interleaved(x(ctx).dims(), y(ctx).dims()), x.data<T>(ctx), y.data<T>(ctx),
                 out.data<T>(ctx),
                 [](T a, T b) { return static_cast<T>(Wrapping(a) * Wrapping(b)); });
  });
}

// X@GRAD = Σ Out@GRAD Y over the elements of Y, Y@GRAD = Σ Out@GRAD X over those of X.
absl::StatusOr<Kernel> KronGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T *xs = x.data<T>(ctx), *ys = y.data<T>(ctx), *d = dout.data<T>(ctx);
    T *dxs = dx.data_or_null<T>(ctx), *dys = dy.data_or_null<T>(ctx);
    if (dxs != nullptr) std::fill_n(dxs, x(ctx).size(), T(0));
    if (dys != nullptr) std::fill_n(dys, y(ctx).size(), T(0));
    const Broadcast shapes = Interleaved(x(ctx).dims(), y(ctx).dims());
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      if (dxs != nullptr) dxs[i] += *d * ys[j];
      if (dys != nullptr) dys[j] += *d * xs[i];
      ++d;
    });
  });
}

// einsum: the sum of products of operands over the labels that the result does not have. Operands
// are contracted two at a time, from the left, as matrix products. InnerCache keeps the operands,
// which the gradient op does not get otherwise.

bool Contains(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

// The labels that pass(label).
template <typename Pass>
std::string Select(const std::string& labels, Pass pass) {
  std::string selected;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(selected), pass);
  return selected;
}

// A tensor with one dimension per label, without repeated labels.
template <typename T>
struct Factor {
  std::string labels;
  std::vector<T> elements;
};

// The matrix products of a contraction, in order.
struct Gemms {
  std::deque<Gemm> gemms;
  size_t next = 0;

  Gemm& Next() {
    if (next == gemms.size()) gemms.emplace_back(Transpose::kNo, Transpose::kNo);
    return gemms[next++];
  }
};

template <typename T>
class Contraction {
 public:
  Contraction(const Einsum& einsum, Gemms* gemms) : einsum_(einsum), gemms_(gemms) {
    gemms_->next = 0;
  }

  // The labels of an operand, in order, without repetitions and without broadcast dimensions of
  // size 1; and the strides of its elements.
  std::string OwnLabels(size_t operand, const Dims& dims, View* view) const {
    const std::string& all = einsum_.operands[operand];
    const Dims strides = RowMajorStrides(dims);
    std::string labels;
    view->extents.clear();
    view->strides.clear();
    view->offset = 0;
    for (size_t d = 0; d < all.size(); ++d) {
      if (dims[d] != Size(all[d])) continue;
      const size_t known = labels.find(all[d]);
      if (known != std::string::npos) {
        view->strides[known] += strides[d];
        continue;
      }
      labels.push_back(all[d]);
      view->extents.push_back(dims[d]);
      view->strides.push_back(strides[d]);
    }
    return labels;
  }

  Factor<T> Load(size_t operand, const Tensor& tensor) const {
    View view;
    Factor<T> factor{OwnLabels(operand, tensor.dims(), &view), {}};
    factor.elements.resize(view.size());
    ReadView(view, tensor.data<T>(), factor.elements.data());
    return factor;
  }

  // With these labels: summed over others, broadcast along missing ones.
  Factor<T> Arrange(const Factor<T>& from, const std::string& labels) const {
    const std::string rest =
        Select(from.labels, [&](char label) { return !Contains(labels, label); });
    const Dims strides = RowMajorStrides(DimsOf(from.labels));
    View view;
    for (char label : labels + rest) {
      const size_t d = from.labels.find(label);
      view.extents.push_back(Size(label));
      view.strides.push_back(d == std::string::npos ? 0 : strides[d]);
    }
    Factor<T> to{labels, std::vector<T>(view.size())};
    ReadView(view, from.elements.data(), to.elements.data());
    if (rest.empty()) return to;
    const int64_t count = NumElements(DimsOf(rest)), size = NumElements(DimsOf(labels));
    if (count == 0) return {labels, std::vector<T>(size)};
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += to.elements[i * count + k];
      to.elements[i] = static_cast<T>(sum);
    }
    to.elements.resize(size);
    return to;
  }

  // a b, summed over labels outside of `keep`.
  Factor<T> Multiply(const Factor<T>& a, const Factor<T>& b, const std::string& keep) const {
    const auto in_both = [&](char l) { return Contains(a.labels, l) && Contains(b.labels, l); };
    const auto kept = [&](char l) { return Contains(keep, l); };
    const std::string batch = Select(a.labels, [&](char l) { return in_both(l) && kept(l); });
    const std::string inner = Select(a.labels, [&](char l) { return in_both(l) && !kept(l); });
    const std::string rows = Select(a.labels, [&](char l) { return !in_both(l) && kept(l); });
    const std::string columns = Select(b.labels, [&](char l) { return !in_both(l) && kept(l); });
    const Factor<T> left = Arrange(a, batch + rows + inner);
    const Factor<T> right = Arrange(b, batch + inner + columns);
    const int64_t m = NumElements(DimsOf(rows)), n = NumElements(DimsOf(columns));
    const int64_t k = NumElements(DimsOf(inner)), count = NumElements(DimsOf(batch));
    Factor<T> out{batch + rows + columns, std::vector<T>(count * m * n)};
    if (out.elements.empty() || k == 0) return out;
    Gemm& gemm = gemms_->Next();
    for (int64_t i = 0; i < count; ++i) {
      gemm.Run(m, n, k, left.elements.data() + i * m * k, right.elements.data() + i * k * n,
               out.elements.data() + i * m * n);
    }
    return out;
  }

  // The product of the factors, from the left.
  Factor<T> MultiplyAll(std::vector<Factor<T>> factors, const std::string& labels) const {
    Factor<T> product = std::move(factors[0]);
    for (size_t i = 1; i < factors.size(); ++i) {
      std::string keep = labels;
      for (size_t later = i + 1; later < factors.size(); ++later) keep += factors[later].labels;
      product = Multiply(product, factors[i], keep);
    }
    return Arrange(product, labels);
  }

 private:
  int64_t Size(char label) const { return einsum_.sizes.at(label); }
  Dims DimsOf(const std::string& labels) const {
    Dims dims;
    for (char label : labels) dims.push_back(Size(label));
    return dims;
  }

  const Einsum& einsum_;
  Gemms* const gemms_;
};

absl::StatusOr<Einsum> Parse(const std::string& equation, In operands, const KernelContext& ctx) {
  std::vector<Dims> dims;
  for (int i = 0; i < operands.count(); ++i) dims.push_back(operands(ctx, i).dims());
  return ParseEinsum(equation, dims);
}

absl::StatusOr<Kernel> RunEinsum(OpKernel op) {
  const In operands = op.in("Operands");
  const Out out = op.out("Out"), cache = op.out("InnerCache"), shapes = op.out("XShape");
  auto gemms = std::make_shared<Gemms>();
  const auto step = [=, equation = op.attrs().String("equation")](const KernelContext& ctx,
                                                                  auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Einsum einsum, Parse(equation, operands, ctx));
    const Contraction<T> contraction(einsum, gemms.get());
    std::vector<Factor<T>> factors;
    for (int i = 0; i < operands.count(); ++i) {
      const Tensor& operand = operands(ctx, i);
      factors.push_back(contraction.Load(i, operand));
      if (Tensor* to = cache.get(ctx, i)) {
        to->Resize(operand.dtype(), operand.dims());
        if (operand.bytes() > 0) std::memcpy(to->raw(), operand.raw(), operand.bytes());
      }
      if (Tensor* to = shapes.get(ctx, i)) to->Resize(operand.dtype(), {0});
    }
    const Factor<T> result = contraction.MultiplyAll(std::move(factors), einsum.out);
    std::copy(result.elements.begin(), result.elements.end(), out.data<T>(ctx));
    return absl::OkStatus();
  };
  return op.Make(Floats(operands), step);
}

absl::StatusOr<Kernel> EinsumGrad(OpKernel op) {
  op.Ignore({"x_shape"});
  const In operands = op.in("InnerCache"), dout = op.in("Out@GRAD");
  const Out grads = op.out("Operands@GRAD");
  auto gemms = std::make_shared<Gemms>();
  const auto step = [=, equation = op.attrs().String("equation")](const KernelContext& ctx,
                                                                  auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const Einsum einsum, Parse(equation, operands, ctx));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout(ctx), einsum.OutDims()));
    const Contraction<T> contraction(einsum, gemms.get());
    if (grads.count() > operands.count()) {
      return absl::InvalidArgumentError(absl::StrCat("input InnerCache: expected ", grads.count(),
                                                     " variables, found ", operands.count()));
    }
    for (int i = 0; i < grads.count(); ++i) {
      Tensor* const grad = grads.get(ctx, i);
      if (grad == nullptr) continue;
      const T* from = dout.data<T>(ctx);
      std::vector<Factor<T>> factors = {
          {einsum.out, std::vector<T>(from, from + dout(ctx).size())}};
      for (int j = 0; j < operands.count(); ++j) {
        if (j != i) factors.push_back(contraction.Load(j, operands(ctx, j)));
      }
      View view;
      const Dims dims = operands(ctx, i).dims();
      const std::string labels = contraction.OwnLabels(i, dims, &view);
      const Factor<T> result = contraction.MultiplyAll(std::move(factors), labels);
      grad->Resize(operands(ctx, i).dtype(), dims);
      std::fill_n(grad->data<T>(), grad->size(), T(0));
      WriteView(view, result.elements.data(), grad->data<T>());
    }
    return absl::OkStatus();
  };
  return op.Make(Floats(dout), step);
}

}  // namespace

void AddProductKernels(KernelTable* table) {
  table->Add("cross", Cross);
  table->Add("cross_grad", CrossGrad);
  table->Add("kron", Kron);
  table->Add("kron_grad", KronGrad);
  table->Add("einsum", RunEinsum);
  table->Add("einsum_grad", EinsumGrad);
}

}  // namespace weft
