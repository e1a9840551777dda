// Layers and losses of images and features that Paddle 1 has ops for
// (ops/schema/extra/paddle1_layers_schemas.cc).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/op_kernel.h"
#include "ops/schema/extra/paddle1_parts.h"
#include "ops/schema/extra/prior_boxes.h"

namespace weft {
namespace {

// --- center_loss ---------------------------------------------------------------------------------

// Diff = X - Centers[Label]; Loss = Diff² / 2, summed over each row. With need_update, a center
// moves by CenterUpdateRate Σ Diff / (1 + count) over the count rows of its class. Wen et al., "A
// Discriminative Feature Learning Approach for Deep Face Recognition" (2016).
absl::StatusOr<Kernel> CenterLoss(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), centers = op.in("Centers");
  const In rate = op.in("CenterUpdateRate");
  const Out diff = op.out("SampleCenterDiff"), loss = op.out("Loss");
  const Out centers_out = op.out("CentersOut");
  const bool is_updated = op.attrs().Bool("need_update");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t width = x(ctx).dim(1), classes = centers(ctx).dim(0);
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> labels,
                          ReadIndices("Label", label(ctx), classes));
    T *const diffs = diff.data_or_null<T>(ctx), *const losses = loss.data_or_null<T>(ctx);
    const T *const xs = x.data<T>(ctx), *const from = centers.data<T>(ctx);
    std::vector<double> sums(classes * width), counts(classes, 1);
    for (size_t row = 0; row < labels.size(); ++row) {
      double square = 0;
      for (int64_t k = 0; k < width; ++k) {
        const T d = xs[row * width + k] - from[labels[row] * width + k];
        if (diffs != nullptr) diffs[row * width + k] = d;
        square += double{d} * d;
        sums[labels[row] * width + k] += d;
      }
      if (losses != nullptr) losses[row] = static_cast<T>(square / 2);
      ++counts[labels[row]];
    }
    T* const to = centers_out.data_or_null<T>(ctx);
    const double share = is_updated ? double{rate.data<T>(ctx)[0]} : 0.0;
    for (int64_t i = 0; to != nullptr && i < classes * width; ++i) {
      to[i] = static_cast<T>(from[i] + share * sums[i] / counts[i / width]);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> CenterLossGrad(OpKernel op) {
  op.Ignore({"X"});
  const In diff = op.in("SampleCenterDiff"), dloss = op.in("Loss@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(diff), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = diff(ctx).dim(1);
    T* const to = dx.data<T>(ctx);
    for (int64_t i = 0; i < dx(ctx).size(); ++i) {
      to[i] = diff.data<T>(ctx)[i] * dloss.data<T>(ctx)[i / width];
    }
  });
}

// --- sigmoid_focal_loss --------------------------------------------------------------------------

// log σ(x)
double LogSigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::fabs(x))); }

// Of p = σ(X): -alpha (1 - p)^gamma log p / n for class Label - 1 of a row, -(1 - alpha) p^gamma
// log(1 - p) / n for its other classes, 0 where Label is -1; n is FgNum, at least 1. Lin et al.,
// "Focal Loss for Dense Object Detection" (2017). Calls visit(element, sign, factor): with s =
// sign X, it is -factor (1 - σ(s))^gamma log σ(s).
template <typename Visit>
absl::Status ForEachFocal(const OpAttrs& attrs, const Tensor& label, const Tensor& foreground,
                          int64_t classes, Visit visit) {
  const double alpha = attrs.Float("alpha");
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                        ReadIndices("FgNum", foreground, std::numeric_limits<int64_t>::max()));
  const double n = static_cast<double>(std::max<int64_t>(counts[0], 1));
  return ForEachLabel(label, classes + 1, -1, [&](int64_t row, int64_t chosen) {
    for (int64_t k = 0; k < classes; ++k) {
      const bool is_chosen = chosen == k + 1;
      const double factor = chosen < 0 ? 0 : (is_chosen ? alpha : 1 - alpha) / n;
      visit(row * classes + k, is_chosen ? 1.0 : -1.0, factor);
    }
  });
}

absl::StatusOr<Kernel> SigmoidFocalLoss(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), foreground = op.in("FgNum");
  const Out out = op.out("Out");
  const double gamma = op.attrs().Float("gamma");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachFocal(attrs, label(ctx), foreground(ctx), x(ctx).dim(1),
                        [&](int64_t i, double sign, double factor) {
                          const double s = sign * x.data<T>(ctx)[i];
                          const double loss = std::exp(gamma * LogSigmoid(-s)) * LogSigmoid(s);
                          out.data<T>(ctx)[i] = static_cast<T>(factor == 0 ? 0 : -factor * loss);
                        });
  });
}

absl::StatusOr<Kernel> SigmoidFocalLossGrad(OpKernel op) {
  const In x = op.in("X"), label = op.in("Label"), foreground = op.in("FgNum");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const double gamma = op.attrs().Float("gamma");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEachFocal(attrs, label(ctx), foreground(ctx), x(ctx).dim(1),
                        [&](int64_t i, double sign, double factor) {
                          const double s = sign * x.data<T>(ctx)[i], p = std::exp(LogSigmoid(s));
                          const double slope = std::exp(gamma * LogSigmoid(-s)) *
                                               (gamma * p * LogSigmoid(s) - (1 - p));
                          dx.data<T>(ctx)[i] = static_cast<T>(
                              factor == 0 ? 0 : factor * sign * slope * dout.data<T>(ctx)[i]);
                        });
  });
}

// --- space_to_depth ------------------------------------------------------------------------------

// Calls visit(index in Out, index in X) for all elements. As in Paddle, Out has the elements of X
// in the order that `[batch, channels / size², height size, width size]` would have, if channel k
// of X were the place k / (channels / size²) of squares of size · size.
template <typename Visit>
void ForEachDeep(const Dims& x, int64_t size, Visit visit) {
  const int64_t channels = x[1], height = x[2], width = x[3], outer = channels / (size * size);
  for (int64_t i = 0; i < NumElements(x); ++i) {
    const int64_t column = i % width, row = i / width % height;
    const int64_t channel = i / (width * height) % channels, n = i / (width * height * channels);
    const int64_t place = channel / outer;
    const int64_t wide_column = column * size + place % size;
    const int64_t high_row = row * size + place / size;
    const int64_t plane = n * outer + channel % outer;
    visit((plane * height * size + high_row) * width * size + wide_column, i);
  }
}

absl::StatusOr<Kernel> SpaceToDepth(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t size = op.attrs().Int("blocksize");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachDeep(x(ctx).dims(), size, [&](int64_t to, int64_t from) {
      out.elements<T>(ctx)[to] = x.elements<T>(ctx)[from];
    });
  });
}

absl::StatusOr<Kernel> SpaceToDepthGrad(OpKernel op) {
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t size = op.attrs().Int("blocksize");
  return op.Make(RawElements{dout}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachDeep(dx(ctx).dims(), size, [&](int64_t from, int64_t to) {
      dx.elements<T>(ctx)[to] = dout.elements<T>(ctx)[from];
    });
  });
}

// --- add_position_encoding -----------------------------------------------------------------------

// Out = alpha X + beta sin(step / 10000^(k / (half - 1))) for feature k of the first half of them,
// with the cosine for feature k of the second one.
absl::StatusOr<Kernel> AddPositionEncoding(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double alpha = op.attrs().Float("alpha"), beta = op.attrs().Float("beta");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    if (x(ctx).rank() != 3) {
      return absl::UnimplementedError(
          "input X: no kernel for sequences of level-of-detail offsets; expected [batch, steps, "
          "features]");
    }
    const int64_t steps = x(ctx).dim(1), half = x(ctx).dim(2) / 2;
    T* const to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t step = i / (2 * half) % steps, k = i % half;
      const double exponent =
          half > 1 ? static_cast<double>(k) / static_cast<double>(half - 1) : 1.0;
      const double angle = static_cast<double>(step) / std::pow(10000.0, exponent);
      const double encoding = i % (2 * half) < half ? std::sin(angle) : std::cos(angle);
      to[i] = static_cast<T>(alpha * x.data<T>(ctx)[i] + beta * encoding);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> AddPositionEncodingGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const double alpha = op.attrs().Float("alpha");
  return op.MakeElementwise(
      Floats(dout), op.out("X@GRAD"), [=](double dout) { return alpha * dout; }, dout);
}

// --- fsp -----------------------------------------------------------------------------------------

// Calls visit(pair, x, y) for the planes of X and Y of each pair of channels: indices in Out, and
// of first elements.
template <typename Visit>
void ForEachPair(const Dims& x, const Dims& y, Visit visit) {
  const int64_t size = x[2] * x[3];
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t i = 0; i < x[1]; ++i) {
      for (int64_t j = 0; j < y[1]; ++j) {
        visit((n * x[1] + i) * y[1] + j, (n * x[1] + i) * size, (n * y[1] + j) * size);
      }
    }
  }
}

// Out[n, i, j]: the mean over all pixels of X[n, i] Y[n, j]. Yim et al., "A Gift from Knowledge
// Distillation" (2017).
absl::StatusOr<Kernel> Fsp(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t size = x(ctx).dim(2) * x(ctx).dim(3);
    ForEachPair(x(ctx).dims(), y(ctx).dims(), [&](int64_t pair, int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        sum += double{x.data<T>(ctx)[i + k]} * y.data<T>(ctx)[j + k];
      }
      out.data<T>(ctx)[pair] = static_cast<T>(sum / static_cast<double>(size));
    });
  });
}

absl::StatusOr<Kernel> FspGrad(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t size = x(ctx).dim(2) * x(ctx).dim(3);
    T *const x_to = dx.data_or_null<T>(ctx), *const y_to = dy.data_or_null<T>(ctx);
    if (x_to != nullptr) std::fill_n(x_to, x(ctx).size(), T(0));
    if (y_to != nullptr) std::fill_n(y_to, y(ctx).size(), T(0));
    ForEachPair(x(ctx).dims(), y(ctx).dims(), [&](int64_t pair, int64_t i, int64_t j) {
      const T d = dout.data<T>(ctx)[pair] / static_cast<T>(size);
      for (int64_t k = 0; k < size; ++k) {
        if (x_to != nullptr) x_to[i + k] += d * y.data<T>(ctx)[j + k];
        if (y_to != nullptr) y_to[j + k] += d * x.data<T>(ctx)[i + k];
      }
    });
  });
}

// --- pad_constant_like ---------------------------------------------------------------------------

// Calls visit(index in `outer`, index in `inner` or -1) for all elements of the former, of which
// the latter has those before its ends.
template <typename Visit>
void ForEachPaddedAtEnds(const Dims& outer, const Dims& inner, Visit visit) {
  for (int64_t i = 0; i < NumElements(outer); ++i) {
    int64_t rest = i, from = 0, stride = 1;
    for (size_t d = outer.size(); d-- > 0;) {
      const int64_t at = rest % outer[d];
      from = at < inner[d] && from >= 0 ? from + at * stride : -1;
      stride *= inner[d];
      rest /= outer[d];
    }
    visit(i, from);
  }
}

// Out: Y, padded at its ends to the dimensions of X.
absl::StatusOr<Kernel> PadConstantLike(OpKernel op) {
  op.Ignore({"X"});
  const In y = op.in("Y");
  const Out out = op.out("Out");
  const double value = op.attrs().Float("pad_value");
  return op.Make(FloatsAndInts(y), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachPaddedAtEnds(out(ctx).dims(), y(ctx).dims(), [&](int64_t to, int64_t from) {
      out.data<T>(ctx)[to] = from < 0 ? static_cast<T>(value) : y.data<T>(ctx)[from];
    });
  });
}

absl::StatusOr<Kernel> PadConstantLikeGrad(OpKernel op) {
  op.Ignore({"Y"});
  const In dout = op.in("Out@GRAD");
  const Out dy = op.out("Y@GRAD");
  return op.Make(FloatsAndInts(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ForEachPaddedAtEnds(dout(ctx).dims(), dy(ctx).dims(), [&](int64_t from, int64_t to) {
      if (to >= 0) dy.data<T>(ctx)[to] = dout.data<T>(ctx)[from];
    });
  });
}

// --- prior_box -----------------------------------------------------------------------------------

// Boxes [height, width, boxes, 4] of a feature map: left, top, right and bottom, in parts of the
// image, of boxes around the center of each place. Liu et al., "SSD: Single Shot MultiBox Detector"
// (2016).
absl::StatusOr<Kernel> PriorBox(OpKernel op) {
  const In input = op.in("Input");
  const InTypes image = op.in_types("Image");
  const Out boxes = op.out("Boxes"), variances = op.out("Variances");
  const PriorBoxes prior(op.attrs());
  const double offset = op.attrs().Float("offset");
  const double step_w = op.attrs().Float("step_w"), step_h = op.attrs().Float("step_h");
  const bool clips = op.attrs().Bool("clip");
  return op.Make(Floats(input), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = input(ctx).dim(2), columns = input(ctx).dim(3);
    const auto height = static_cast<double>(image.dims(ctx)[2]);
    const auto width = static_cast<double>(image.dims(ctx)[3]);
    const double step_x = step_w == 0 ? width / static_cast<double>(columns) : step_w;
    const double step_y = step_h == 0 ? height / static_cast<double>(rows) : step_h;
    const std::vector<std::pair<double, double>> sizes = prior.Sizes();
    T* to = boxes.data_or_null<T>(ctx);
    const auto add = [&](double value) {
      *to++ = static_cast<T>(clips ? std::clamp(value, 0.0, 1.0) : value);
    };
    for (int64_t i = 0; to != nullptr && i < rows * columns; ++i) {
      const int64_t row = i / columns, column = i % columns;
      const double x = (static_cast<double>(column) + offset) * step_x;
      const double y = (static_cast<double>(row) + offset) * step_y;
      for (const auto& [w, h] : sizes) {
        add((x - w / 2) / width);
        add((y - h / 2) / height);
        add((x + w / 2) / width);
        add((y + h / 2) / height);
      }
    }
    T* const variance_to = variances.data_or_null<T>(ctx);
    const int64_t size = rows * columns * prior.Count() * 4;
    for (int64_t i = 0; variance_to != nullptr && i < size; ++i) {
      variance_to[i] = static_cast<T>(prior.variances[i % 4]);
    }
  });
}

// --- partial_concat, partial_sum -----------------------------------------------------------------

// Out = columns [begin, begin + count) of all X, side by side or added up. Calls visit(i, place in
// X i, place in Out).
template <typename Visit>
void ForEachInParts(const OpAttrs& attrs, const Dims& x, int inputs, bool adds_up, Visit visit) {
  const ColumnPart part(attrs, x[1]);
  const int64_t width = adds_up ? part.count : part.count * inputs;
  for (int i = 0; i < inputs; ++i) {
    const int64_t first = adds_up ? 0 : part.count * i;
    for (int64_t row = 0; row < x[0]; ++row) {
      for (int64_t k = 0; k < part.count; ++k) {
        visit(i, row * x[1] + part.begin + k, row * width + first + k);
      }
    }
  }
}

template <bool adds_up>
absl::StatusOr<Kernel> PartialColumns(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* const to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    ForEachInParts(attrs, x(ctx).dims(), x.count(), adds_up,
                   [&](int i, int64_t from, int64_t at) { to[at] += x.data<T>(ctx, i)[from]; });
  });
}

template <bool adds_up>
absl::StatusOr<Kernel> PartialColumnsGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const InTypes x = op.in_types("X");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < dx.count(); ++i) {
      if (dx.get(ctx, i) != nullptr) std::fill_n(dx.data<T>(ctx, i), dx(ctx, i).size(), T(0));
    }
    ForEachInParts(attrs, x.dims(ctx), x.count(), adds_up, [&](int i, int64_t from, int64_t at) {
      T* const to = dx.data_or_null<T>(ctx, i);
      if (to != nullptr) to[from] = dout.data<T>(ctx)[at];
    });
  });
}

// --- im2sequence ---------------------------------------------------------------------------------

// Out has a row for each window of an image, with the elements of all channels in it; 0 in the
// padding. Calls visit(index in X, or -1 in the padding).
template <typename Visit>
void ForEachInWindows(const OpAttrs& attrs, const Dims& x, Visit visit) {
  const std::vector<int64_t> kernels = attrs.Ints("kernels"), strides = attrs.Ints("strides"),
                             paddings = attrs.Ints("paddings");
  const int64_t channels = x[1], height = x[2], width = x[3];
  const int64_t rows = height + paddings[0] + paddings[2] - kernels[0],
                columns = width + paddings[1] + paddings[3] - kernels[1];
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t top = 0; top <= rows; top += strides[0]) {
      for (int64_t left = 0; left <= columns; left += strides[1]) {
        for (int64_t i = 0; i < channels * kernels[0] * kernels[1]; ++i) {
          const int64_t channel = i / (kernels[0] * kernels[1]);
          const int64_t row = top - paddings[0] + i / kernels[1] % kernels[0];
          const int64_t column = left - paddings[1] + i % kernels[1];
          const bool is_inside = row >= 0 && row < height && column >= 0 && column < width;
          visit(is_inside ? ((n * channels + channel) * height + row) * width + column : -1);
        }
      }
    }
  }
}

absl::StatusOr<Kernel> ImageToSequence(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Floats(x), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>(ctx);
    ForEachInWindows(attrs, x(ctx).dims(),
                     [&](int64_t i) { *to++ = i < 0 ? T(0) : x.data<T>(ctx)[i]; });
  });
}

absl::StatusOr<Kernel> ImageToSequenceGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const InTypes x = op.in_types("X");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=, attrs = op.attrs()](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* const to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    const T* from = dout.data<T>(ctx);
    ForEachInWindows(attrs, x.dims(ctx), [&](int64_t i) {
      if (i >= 0) to[i] += *from;
      ++from;
    });
  });
}

// --- fused_elemwise_activation -------------------------------------------------------------------

// A function of one number, and its derivative by its result.
struct Unary {
  Unary(const OpAttrs& attrs, const std::string& name) : scale(attrs.Float("scale")) {
    kind = name == "relu" ? kRelu : name == "tanh" ? kTanh : name == "sigmoid" ? kSigmoid : kScale;
  }
  double Of(double x) const {
    switch (kind) {
      case kRelu:
        return std::max(x, 0.0);
      case kTanh:
        return std::tanh(x);
      case kSigmoid:
        return 1 / (1 + std::exp(-x));
      case kScale:
        return scale * x;
    }
    return 0;
  }
  double SlopeAt(double result) const {
    switch (kind) {
      case kRelu:
        return result > 0 ? 1 : 0;
      case kTanh:
        return 1 - result * result;
      case kSigmoid:
        return result * (1 - result);
      case kScale:
        return scale;
    }
    return 0;
  }

  enum { kRelu, kTanh, kSigmoid, kScale } kind;
  double scale;
};

// Calls visit(index in X, index in Y).
template <typename Visit>
void ForEachPair(const Dims& x, const Dims& y, int64_t axis, Visit visit) {
  const RepeatedY repeated(x, y, axis);
  for (int64_t i = 0; i < NumElements(x); ++i) visit(i, i / repeated.after % repeated.elements);
}

absl::StatusOr<Kernel> FusedActivation(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  const bool saves = op.attrs().Bool("save_intermediate_out");
  const Out intermediate = saves ? op.out("IntermediateOut") : Out();
  const FusedFunctions functions(op.attrs());
  const Unary unary(op.attrs(), functions.unary);
  const bool adds = functions.binary == "elementwise_add",
             is_unary_first = functions.is_unary_first;
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    T* const between = intermediate.data_or_null<T>(ctx);
    ForEachPair(x(ctx).dims(), y(ctx).dims(), axis, [&](int64_t i, int64_t k) {
      const double a = x.data<T>(ctx)[i];
      double b = y.data<T>(ctx)[k];
      if (is_unary_first) b = unary.Of(b);
      const double result = adds ? a + b : a * b;
      if (between != nullptr)
        between[is_unary_first ? k : i] = static_cast<T>(is_unary_first ? b : result);
      out.data<T>(ctx)[i] = static_cast<T>(is_unary_first ? result : unary.Of(result));
    });
  });
}

absl::StatusOr<Kernel> FusedActivationGrad(OpKernel op) {
  op.Ignore({"IntermediateOut", "Out"});
  const In x = op.in("X"), y = op.in("Y"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  const FusedFunctions functions(op.attrs());
  const Unary unary(op.attrs(), functions.unary);
  const bool adds = functions.binary == "elementwise_add",
             is_unary_first = functions.is_unary_first;
  const int64_t axis = op.attrs().Int("axis");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    std::vector<double> sums(y(ctx).size());
    T* const to = dx.data_or_null<T>(ctx);
    ForEachPair(x(ctx).dims(), y(ctx).dims(), axis, [&](int64_t i, int64_t k) {
      const double a = x.data<T>(ctx)[i];
      double b = y.data<T>(ctx)[k], by_b = dout.data<T>(ctx)[i], slope_of_y = 1;
      if (is_unary_first) {
        b = unary.Of(b);
        slope_of_y = unary.SlopeAt(b);
      } else {
        by_b *= unary.SlopeAt(unary.Of(adds ? a + b : a * b));
      }
      if (to != nullptr) to[i] = static_cast<T>(adds ? by_b : by_b * b);
      sums[k] += (adds ? by_b : by_b * a) * slope_of_y;
    });
    if (dy.get(ctx) != nullptr) absl::c_copy(sums, dy.data<T>(ctx));
  });
}

}  // namespace

void AddPaddle1LayerKernels(KernelTable* table) {
  table->Add("partial_concat", PartialColumns<false>, PartialColumnsGrad<false>);
  table->Add("partial_sum", PartialColumns<true>, PartialColumnsGrad<true>);
  table->Add("im2sequence", ImageToSequence, ImageToSequenceGrad);
  table->Add("fused_elemwise_activation", FusedActivation, FusedActivationGrad);
  table->Add("center_loss", CenterLoss, CenterLossGrad);
  table->Add("sigmoid_focal_loss", SigmoidFocalLoss, SigmoidFocalLossGrad);
  table->Add("space_to_depth", SpaceToDepth, SpaceToDepthGrad);
  table->Add("add_position_encoding", AddPositionEncoding, AddPositionEncodingGrad);
  table->Add("fsp", Fsp, FspGrad);
  table->Add("pad_constant_like", PadConstantLike, PadConstantLikeGrad);
  table->Add("prior_box", PriorBox);
}

}  // namespace weft
