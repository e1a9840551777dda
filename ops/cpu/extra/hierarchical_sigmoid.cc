// A class as a path of a binary tree: at each of its inner nodes the example goes to one side or
// the other, so that a loss needs as many weights as the path is long (hierarchical_sigmoid).
//   z[j] = W[node j]·X + Bias[node j], cut off at ±40
//   Out = Σ over the path of log(1 + exp(z[j])) - side[j] z[j]
//   PreOut[j] = log(1 + exp(z[j])), log 2 beyond the end of the path
// and the gradient of z[j], also where it was cut off, is σ(z[j]) - side[j].
//
// The nodes of the default tree have the numbers of a heap whose leaves are the classes: that of
// class c is c + num_classes, the parent of node n is n / 2, and the root, 1, has row 0 of W.
// PathTable, for each example, has the numbers of rows instead, up to a negative one, and PathCode
// the sides.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/cpu/extra/class_weights.h"
#include "ops/cpu/extra/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

constexpr double kLargest = 40;

// The paths of the labels of a step.
class Paths {
 public:
  Paths(const KernelSpec& spec, OpKernel* op)
      : label_(op->in("Label")),
        table_(op->in("PathTable")),
        code_(op->in("PathCode")),
        classes_(spec.attrs.Int("num_classes")) {}

  // InvalidArgument unless there is a path for every example, and the default tree has that many
  // inner nodes: what inference does not tell kernels for rows.
  absl::Status Check(const KernelContext& ctx, int64_t examples, int64_t rows) const {
    if (!table_) {
      WEFT_RETURN_IF_ERROR(CheckSize("Label", label_(ctx), examples));
      if (rows == classes_ - 1) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("input W: expected ", classes_ - 1, " rows, found ", rows));
    }
    WEFT_RETURN_IF_ERROR(CheckSize("PathCode", code_(ctx), table_(ctx).size()));
    if (table_(ctx).rank() == 2 && table_(ctx).dim(0) == examples) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("input PathTable: expected a row for each of ",
                                                   examples, " examples, found ",
                                                   DimsToString(table_(ctx).dims())));
  }

  // The columns of PreOut: nodes of the longest path.
  int64_t Longest(const KernelContext& ctx) const {
    if (table_) return table_(ctx).dim(1);
    int64_t longest = 0;
    for (int64_t n = classes_ - 1; n > 0; n /= 2) ++longest;
    return longest;
  }

  // Calls visit(example, j, row, side) for every node of every path. InvalidArgument for a label
  // that is no class, or a node that is none of `rows`.
  template <typename Visit>
  absl::Status ForEachNode(const KernelContext& ctx, int64_t rows, Visit visit) const {
    return table_ ? ForEachGiven(ctx, rows, visit) : ForEachOfHeap(ctx, visit);
  }

 private:
  template <typename Visit>
  absl::Status ForEachOfHeap(const KernelContext& ctx, Visit visit) const {
    for (int64_t i = 0; i < label_(ctx).size(); ++i) {
      int64_t c = 0;
      WEFT_RETURN_IF_ERROR(CopyNumbers("Label", label_(ctx), i, 1, &c));
      if (c < 0 || c >= classes_) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Label: ", c, " at position ", i, " is not in [0, ", classes_, ")"));
      }
      int64_t j = 0;
      for (int64_t node = c + classes_; node > 1; node /= 2) visit(i, j++, node / 2 - 1, node % 2);
    }
    return absl::OkStatus();
  }

  template <typename Visit>
  absl::Status ForEachGiven(const KernelContext& ctx, int64_t rows, Visit visit) const {
    const int64_t longest = Longest(ctx);
    std::vector<int64_t> nodes(longest), sides(longest);
    for (int64_t i = 0; i < table_(ctx).dim(0); ++i) {
      WEFT_RETURN_IF_ERROR(
          CopyNumbers("PathTable", table_(ctx), i * longest, longest, nodes.data()));
      WEFT_RETURN_IF_ERROR(CopyNumbers("PathCode", code_(ctx), i * longest, longest, sides.data()));
      for (int64_t j = 0; j < longest && nodes[j] >= 0; ++j) {
        if (nodes[j] >= rows) {
          return absl::InvalidArgumentError(absl::StrCat("input PathTable: ", nodes[j], " in row ",
                                                         i, " is not in [0, ", rows,
                                                         "), the rows of W"));
        }
        visit(i, j, nodes[j], sides[j] != 0);
      }
    }
    return absl::OkStatus();
  }

  In label_, table_, code_;
  int64_t classes_;
};

// Paddle's Out has log 2 too much for every node that a path is shorter than the longest one.
absl::StatusOr<Kernel> HierarchicalSigmoid(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), w = op.in("W"), bias = op.in("Bias");
  const Out out = op.out("Out"), pre_out = op.out("PreOut");
  const Out w_out = op.out("W_Out");  // W itself, which stays as it is
  const Paths paths(spec, &op);
  const bool is_paddles = spec.paddle_cpu_quirks;
  op.InPlace(w_out, w);
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    if (Tensor* copy = w_out.get(ctx); copy != nullptr && copy != &w(ctx)) {
      std::copy_n(w.data<T>(ctx), copy->size(), copy->data<T>());
    }
    const int64_t examples = x(ctx).dim(0), width = x(ctx).dim(1), longest = paths.Longest(ctx);
    pre_out(ctx).Resize(x(ctx).dtype(), {examples, longest});
    T* pre = pre_out.data<T>(ctx);
    std::fill_n(pre, examples * longest, static_cast<T>(std::log(2.0)));
    std::vector<double> sums(examples, is_paddles ? longest * std::log(2.0) : 0);
    WEFT_RETURN_IF_ERROR(
        paths.ForEachNode(ctx, w(ctx).dim(0), [&](int64_t i, int64_t j, int64_t row, bool side) {
          double z = bias ? bias.data<T>(ctx)[row] : T(0);
          const T *features = x.data<T>(ctx) + i * width, *weights = w.data<T>(ctx) + row * width;
          for (int64_t k = 0; k < width; ++k) z += features[k] * weights[k];
          z = std::clamp(z, -kLargest, kLargest);
          const double softplus = std::log1p(std::exp(z));
          pre[i * longest + j] = static_cast<T>(softplus);
          sums[i] += softplus - (side ? z : 0) - (is_paddles ? std::log(2.0) : 0);
        }));
    std::copy(sums.begin(), sums.end(), out.data<T>(ctx));
    return absl::OkStatus();
  });
}

class HierarchicalSigmoidGrad {
 public:
  HierarchicalSigmoidGrad(const KernelSpec& spec, OpKernel* op)
      : x_(op->in("X")),
        w_(op->in("W")),
        bias_(op->in("Bias")),
        pre_out_(op->in("PreOut")),
        dout_(op->in("Out@GRAD")),
        dx_(op->out("X@GRAD")),
        dw_(op->out("W@GRAD")),
        dbias_(op->out("Bias@GRAD")),
        paths_(spec, op) {}

  In input() const { return x_; }

  absl::Status Run(const KernelContext& ctx, WeightGrad weight_grad) const {
    WEFT_RETURN_IF_ERROR(CheckOperands(x_(ctx), w_(ctx)));
    const int64_t examples = x_(ctx).dim(0), rows = w_(ctx).dim(0);
    WEFT_RETURN_IF_ERROR(paths_.Check(ctx, examples, rows));
    const int64_t longest = paths_.Longest(ctx);
    WEFT_RETURN_IF_ERROR(CheckSize("PreOut", pre_out_(ctx), examples * longest));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout_(ctx), examples));
    if (bias_) WEFT_RETURN_IF_ERROR(CheckSize("Bias", bias_(ctx), rows));
    return ForFloatType("input X", x_(ctx), [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      const T *pre = pre_out_.data<T>(ctx), *dout = dout_.data<T>(ctx);
      std::vector<ClassUse<T>> uses;
      WEFT_RETURN_IF_ERROR(
          paths_.ForEachNode(ctx, rows, [&](int64_t i, int64_t j, int64_t row, bool side) {
            const double sigmoid = -std::expm1(-double{pre[i * longest + j]});
            uses.push_back({i, row, static_cast<T>((sigmoid - side) * dout[i])});
          }));
      return SetClassGrads(uses, x_(ctx), w_(ctx), bias_.get(ctx), weight_grad, dx_.get(ctx),
                           dw_.get(ctx), dbias_.get(ctx));
    });
  }

 private:
  In x_, w_, bias_, pre_out_, dout_;
  Out dx_, dw_, dbias_;
  Paths paths_;
};

}  // namespace

void AddHierarchicalSigmoidKernels(KernelTable* table) {
  table->Add("hierarchical_sigmoid", HierarchicalSigmoid);
  table->Add("hierarchical_sigmoid_grad",
             MakeClassGrad<HierarchicalSigmoidGrad, WeightGrad::kDense>);
  table->AddForRows("hierarchical_sigmoid_grad",
                    MakeClassGrad<HierarchicalSigmoidGrad, WeightGrad::kRows>);
}

}  // namespace weft
