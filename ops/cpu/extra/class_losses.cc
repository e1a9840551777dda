// Losses that use a few rows of a table of class weights per example: hierarchical_sigmoid and nce;
// and sample_logits, which takes a few classes of each row.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/algorithm/container.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The elements of an int32 or int64 tensor.
absl::StatusOr<std::vector<int64_t>> ReadNumbers(absl::string_view slot, const Tensor& tensor) {
  std::vector<int64_t> numbers;
  WEFT_RETURN_IF_ERROR(
      (ForElementType<int64_t, int32_t>(absl::StrCat("input ", slot), tensor, [&](auto tag) {
        const auto* from = tensor.data<typename decltype(tag)::type>();
        numbers.assign(from, from + tensor.size());
        return absl::OkStatus();
      })));
  return numbers;
}

// InvalidArgument unless features are [examples, width], weights [rows, width], and of one type.
// Inference does not check this for kernels for rows.
absl::Status CheckOperands(const Tensor& features, const Tensor& weights) {
  if (features.rank() == 2 && weights.rank() == 2 && features.dim(1) == weights.dim(1) &&
      features.dtype() == weights.dtype()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("features and weights: expected rows of one width and type, found ",
                   DTypeName(features.dtype()), DimsToString(features.dims()), " and ",
                   DTypeName(weights.dtype()), DimsToString(weights.dims())));
}

// One product weights[row]·features[example] + bias[row] of the forward op, and its gradient.
template <typename T>
struct ClassUse {
  int64_t example, row;
  T grad;
};

enum class WeightGrad { kDense, kRows };

// The gradients of features [examples, width], weights [rows, width] and bias, resized here: sums
// over `uses` in their order. The gradient of the weights has all rows, or the used rows in
// ascending order. Null skips a gradient; without a bias its gradient is null.
template <typename T>
void SetClassGrads(const std::vector<ClassUse<T>>& uses, const Tensor& features,
                   const Tensor& weights, const Tensor* bias, WeightGrad weight_grad,
                   Tensor* dfeatures, Tensor* dweights, Tensor* dbias) {
  const int64_t width = features.dim(1);
  const auto make_zeros = [&](Tensor* to, const Dims& dims) {
    if (to == nullptr) return;
    to->Resize(features.dtype(), dims);
    std::fill_n(to->data<T>(), to->size(), T(0));
  };
  make_zeros(dfeatures, features.dims());
  if (bias == nullptr) dbias = nullptr;
  if (dbias != nullptr) make_zeros(dbias, bias->dims());
  std::vector<int64_t> rows;
  if (weight_grad == WeightGrad::kDense) {
    make_zeros(dweights, weights.dims());
  } else if (dweights != nullptr) {
    rows.reserve(uses.size());
    for (const ClassUse<T>& use : uses) rows.push_back(use.row);
    absl::c_sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    dweights->ResizeRows(features.dtype(), weights.dims(), static_cast<int64_t>(rows.size()));
    std::copy(rows.begin(), rows.end(), dweights->mutable_rows().begin());
    std::fill_n(dweights->data<T>(), dweights->size(), T(0));
  }
  for (const ClassUse<T>& use : uses) {
    const T* x = features.data<T>() + use.example * width;
    const T* w = weights.data<T>() + use.row * width;
    if (dbias != nullptr) dbias->data<T>()[use.row] += use.grad;
    if (dfeatures != nullptr) {
      T* to = dfeatures->data<T>() + use.example * width;
      for (int64_t k = 0; k < width; ++k) to[k] += use.grad * w[k];
    }
    if (dweights == nullptr) continue;
    const int64_t at = weight_grad == WeightGrad::kDense
                           ? use.row
                           : std::lower_bound(rows.begin(), rows.end(), use.row) - rows.begin();
    T* to = dweights->data<T>() + at * width;
    for (int64_t k = 0; k < width; ++k) to[k] += use.grad * x[k];
  }
}

// The kernel of a gradient op that runs step(ctx). Attribute is_sparse selects a dense or a
// row-sparse gradient of the weights.
template <typename Step>
absl::StatusOr<Kernel> MakeClassGrad(const KernelSpec& spec, WeightGrad weight_grad, In features,
                                     OpKernel* op, Step step) {
  const bool is_dense = weight_grad == WeightGrad::kDense;
  if (spec.attrs.Bool("is_sparse") == is_dense) {
    return absl::UnimplementedError(absl::StrCat(
        "attribute is_sparse: ", is_dense ? "true" : "false",
        ", but the gradient of the weights is declared ", is_dense ? "dense" : "SelectedRows"));
  }
  if (is_dense) return op->Supports(Floats(features)).Make(step);
  return op->MakeForRows([step](const KernelContext& ctx) -> absl::Status {
    for (const Tensor* input : ctx.inputs) {
      if (input == nullptr) continue;
      if (input->is_rows() || absl::c_linear_search(ctx.outputs, input)) {
        return absl::UnimplementedError(
            "the gradient of the weights: expected the only SelectedRows, and no input");
      }
    }
    return step(ctx);
  });
}

// hierarchical_sigmoid: a class is a path in a binary tree, whose inner nodes send the example to
// one of two sides. The loss needs only the weights of the path.
//   z[j] = W[node j]·X + Bias[node j], limited to ±40
//   Out = Σ over the path of log(1 + exp(z[j])) - side[j] z[j]
//   PreOut[j] = log(1 + exp(z[j])), log 2 beyond the end of the path
// and the gradient of z[j], even at the limit, is σ(z[j]) - side[j].
//
// The nodes of the default tree are numbered like a heap whose leaves are the classes: the leaf of
// class c is c + num_classes, the parent of node n is n / 2, and the root, 1, uses row 0 of W.
// PathTable instead has row indices for each example, ended by a negative one, and PathCode the
// sides.

constexpr double kLargest = 40;

// The paths of the labels of a step.
class Paths {
 public:
  Paths(const KernelSpec& spec, OpKernel* op)
      : label_(op->in("Label")),
        table_(op->in("PathTable")),
        code_(op->in("PathCode")),
        classes_(spec.attrs.Int("num_classes")) {}

  // InvalidArgument unless every example has a path, and W has a row for each inner node of the
  // default tree. Inference does not check this for kernels for rows.
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
  // that is not a class, or a node outside of `rows`.
  template <typename Visit>
  absl::Status ForEachNode(const KernelContext& ctx, int64_t rows, Visit visit) const {
    if (!table_) {
      WEFT_ASSIGN_OR_RETURN(const auto labels, ReadIndices("Label", label_(ctx), classes_));
      for (size_t i = 0; i < labels.size(); ++i) {
        int64_t j = 0;
        for (int64_t node = labels[i] + classes_; node > 1; node /= 2) {
          visit(i, j++, node / 2 - 1, node % 2);
        }
      }
      return absl::OkStatus();
    }
    const int64_t longest = Longest(ctx);
    WEFT_ASSIGN_OR_RETURN(const auto nodes, ReadNumbers("PathTable", table_(ctx)));
    WEFT_ASSIGN_OR_RETURN(const auto sides, ReadNumbers("PathCode", code_(ctx)));
    for (int64_t i = 0; i < table_(ctx).dim(0); ++i) {
      for (int64_t j = 0, k = i * longest; j < longest && nodes[k] >= 0; ++j, ++k) {
        if (nodes[k] >= rows) {
          return absl::InvalidArgumentError(absl::StrCat("input PathTable: ", nodes[k], " in row ",
                                                         i, " is not in [0, ", rows,
                                                         "), the rows of W"));
        }
        visit(i, j, nodes[k], sides[k] != 0);
      }
    }
    return absl::OkStatus();
  }

 private:
  In label_, table_, code_;
  int64_t classes_;
};

// Paddle's Out has an extra log 2 for every node by which a path is shorter than the longest one.
absl::StatusOr<Kernel> HierarchicalSigmoid(OpKernel op) {
  const In x = op.in("X"), w = op.in("W"), bias = op.in("Bias");
  const Out out = op.out("Out"), pre_out = op.out("PreOut");
  const Out w_out = op.out("W_Out");  // W itself, unchanged
  const Paths paths(op.spec(), &op);
  const bool is_paddles = op.spec().paddle_cpu_quirks;
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

template <WeightGrad weight_grad>
absl::StatusOr<Kernel> HierarchicalSigmoidGrad(OpKernel op) {
  const In x = op.in("X"), w = op.in("W"), bias = op.in("Bias"), pre_out = op.in("PreOut");
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dw = op.out("W@GRAD"), dbias = op.out("Bias@GRAD");
  const Paths paths(op.spec(), &op);
  return MakeClassGrad(
      op.spec(), weight_grad, x, &op, [=](const KernelContext& ctx) -> absl::Status {
        WEFT_RETURN_IF_ERROR(CheckOperands(x(ctx), w(ctx)));
        const int64_t examples = x(ctx).dim(0), rows = w(ctx).dim(0);
        WEFT_RETURN_IF_ERROR(paths.Check(ctx, examples, rows));
        const int64_t longest = paths.Longest(ctx);
        WEFT_RETURN_IF_ERROR(CheckSize("PreOut", pre_out(ctx), examples * longest));
        WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), examples));
        if (bias) WEFT_RETURN_IF_ERROR(CheckSize("Bias", bias(ctx), rows));
        return ForFloatType("input X", x(ctx), [&](auto tag) -> absl::Status {
          using T = typename decltype(tag)::type;
          const T *pre = pre_out.data<T>(ctx), *douts = dout.data<T>(ctx);
          std::vector<ClassUse<T>> uses;
          WEFT_RETURN_IF_ERROR(
              paths.ForEachNode(ctx, rows, [&](int64_t i, int64_t j, int64_t row, bool side) {
                const double sigmoid = -std::expm1(-double{pre[i * longest + j]});
                uses.push_back({i, row, static_cast<T>((sigmoid - side) * douts[i])});
              }));
          SetClassGrads(uses, x(ctx), w(ctx), bias.get(ctx), weight_grad, dx.get(ctx), dw.get(ctx),
                        dbias.get(ctx));
          return absl::OkStatus();
        });
      });
}

// Noise-contrastive estimation: discriminates each example's labels from classes drawn as noise
// (nce). With o = σ(Weight[c]·Input + Bias[c]), and b the expected number of draws of c,
//   Cost = Σ over labels of -log(o / (o + b)) + Σ over drawn classes of -log(b / (o + b))
// times SampleWeight. SampleLabels has the classes, labels first, SampleLogits their o.

// Log-uniform: the probability of class c is log((c + 2) / (c + 1)) / log(classes). As in Paddle,
// this is a distribution over all classes except the last one, which is never drawn.
class LogUniform {
 public:
  explicit LogUniform(int64_t classes)
      : classes_(classes), log_(std::log(static_cast<double>(classes))) {}

  float Probability(int64_t c) const {
    return static_cast<float>(std::log((c + 2.0) / (c + 1.0)) / log_);
  }
  int64_t Draw(std::mt19937_64* engine) const {
    std::uniform_real_distribution<double> fraction(0, 1);
    const auto c = static_cast<int64_t>(std::exp(fraction(*engine) * log_)) - 1;
    return c % (classes_ - 1);  // rounding may reach the last class
  }

 private:
  int64_t classes_;
  double log_;
};

// The distribution of the noise.
class Noise {
 public:
  enum Kind { kUniform, kLogUniform, kCustom };

  explicit Noise(OpKernel* op, const OpAttrs& attrs)
      : kind_(static_cast<Kind>(attrs.Int("sampler"))),
        classes_(attrs.Int("num_total_classes")),
        probabilities_(op->in("CustomDistProbs")),
        alias_(op->in("CustomDistAlias")),
        alias_probabilities_(op->in("CustomDistAliasProbs")) {}

  // InvalidArgument unless there is a probability for every class.
  absl::Status Check(const KernelContext& ctx) const {
    if (kind_ != kCustom) return absl::OkStatus();
    return CheckSize("CustomDistProbs", probabilities_(ctx), classes_);
  }

  float Probability(const KernelContext& ctx, int64_t c) const {
    switch (kind_) {
      case kUniform:
        return static_cast<float>(1.0 / static_cast<double>(classes_));
      case kLogUniform:
        return LogUniform(classes_).Probability(c);
      case kCustom:
        break;
    }
    return probabilities_.data<float>(ctx)[c];
  }

  // May be an invalid class if CustomDistAlias is wrong.
  int64_t Draw(const KernelContext& ctx, std::mt19937_64* engine) const {
    std::uniform_real_distribution<double> fraction(0, 1);
    if (kind_ == kLogUniform) return LogUniform(classes_).Draw(engine);
    std::uniform_int_distribution<int> any(0, static_cast<int>(classes_ - 1));
    const int64_t c = any(*engine);
    if (kind_ == kUniform) return c;
    // Alias method: c itself with its probability, otherwise the class that shares its entry.
    const bool is_alias = fraction(*engine) > alias_probabilities_.data<float>(ctx)[c];
    return is_alias ? alias_.data<int32_t>(ctx)[c] : c;
  }

 private:
  Kind kind_;
  int64_t classes_;
  In probabilities_, alias_, alias_probabilities_;
};

// With a nonzero seed every step has the same draws as Paddle; without one they come from the
// generator of the rank.
absl::StatusOr<Kernel> Nce(OpKernel op) {
  const In input = op.in("Input"), weight = op.in("Weight"), bias = op.in("Bias");
  const In label = op.in("Label"), sample_weight = op.in("SampleWeight");
  const Out cost = op.out("Cost"), samples = op.out("SampleLabels"), outs = op.out("SampleLogits");
  const Noise noise(&op, op.attrs());
  const int64_t classes = op.attrs().Int("num_total_classes"), seed = op.attrs().Int("seed");
  const int64_t drawn = op.attrs().Int("num_neg_samples");
  const std::vector<int64_t> given = op.attrs().Ints("custom_neg_classes");
  const auto choose = [=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    std::mt19937_64* engine = &own;
    if (given.empty()) {
      WEFT_ASSIGN_OR_RETURN(engine, EngineOf(seed, &RandomState::noise, ctx.random, &own));
    }
    WEFT_ASSIGN_OR_RETURN(const auto numbers, ReadNumbers("Label", label(ctx)));
    const int64_t count = samples(ctx).dim(1), labels = count - drawn;
    int64_t* to = samples.data<int64_t>(ctx);
    for (int64_t i = 0; i < samples(ctx).dim(0); ++i, to += count) {
      std::copy_n(numbers.begin() + i * labels, labels, to);
      for (int64_t j = labels; j < count; ++j) {
        to[j] = given.empty() ? noise.Draw(ctx, engine) : given[j - labels];
      }
    }
    return ReadIndices("Label, or a class drawn as noise", samples(ctx), classes).status();
  };
  return op.Supports(Floats(input)).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(choose(ctx));
    return ForFloatType("input Input", input(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t examples = input(ctx).dim(0), width = input(ctx).dim(1);
      const int64_t count = samples(ctx).dim(1);
      for (int64_t i = 0; i < examples; ++i) {
        const T* x = input.data<T>(ctx) + i * width;
        double sum = 0;
        for (int64_t j = 0; j < count; ++j) {
          const int64_t c = samples.data<int64_t>(ctx)[i * count + j];
          double z = bias ? bias.data<T>(ctx)[c] : T(0);
          for (int64_t k = 0; k < width; ++k) z += x[k] * weight.data<T>(ctx)[c * width + k];
          const T o = static_cast<T>(1 / (1 + std::exp(-z)));
          outs.data<T>(ctx)[i * count + j] = o;
          const double b = noise.Probability(ctx, c) * static_cast<float>(drawn);
          sum -= std::log((j < count - drawn ? o : b) / (o + b));
        }
        if (sample_weight) sum *= sample_weight.data<T>(ctx)[i];
        cost.data<T>(ctx)[i] = static_cast<T>(sum);
      }
      return absl::OkStatus();
    });
  });
}

// The gradients of Weight[c]·Input + Bias[c], one per sample: with dCost and SampleWeight, (o - 1)
// b / (o + b) for a label, o (1 - o) / (o + b) for a drawn class.
template <WeightGrad weight_grad>
absl::StatusOr<Kernel> NceGrad(OpKernel op) {
  op.Ignore({"Label"});
  const In input = op.in("Input"), weight = op.in("Weight"), bias = op.in("Bias");
  const In sample_labels = op.in("SampleLabels"), outs = op.in("SampleLogits");
  const In sample_weight = op.in("SampleWeight"), dcost = op.in("Cost@GRAD");
  const Out dinput = op.out("Input@GRAD"), dweight = op.out("Weight@GRAD");
  const Out dbias = op.out("Bias@GRAD");
  const Noise noise(&op, op.attrs());
  const int64_t drawn = op.attrs().Int("num_neg_samples");
  const int64_t classes = op.attrs().Int("num_total_classes");
  return MakeClassGrad(
      op.spec(), weight_grad, input, &op, [=](const KernelContext& ctx) -> absl::Status {
        WEFT_RETURN_IF_ERROR(CheckOperands(input(ctx), weight(ctx)));
        const Tensor& labels = sample_labels(ctx);
        const int64_t examples = input(ctx).dim(0), count = labels.rank() == 2 ? labels.dim(1) : 0;
        WEFT_RETURN_IF_ERROR(CheckDims("Weight", weight(ctx), {classes, input(ctx).dim(1)}));
        WEFT_RETURN_IF_ERROR(CheckDType("SampleLabels", labels, DType::kInt64));
        WEFT_ASSIGN_OR_RETURN(const auto samples, ReadIndices("SampleLabels", labels, classes));
        WEFT_RETURN_IF_ERROR(CheckDims("SampleLabels", labels, {examples, count}));
        WEFT_RETURN_IF_ERROR(CheckDims("SampleLogits", outs(ctx), labels.dims()));
        WEFT_RETURN_IF_ERROR(CheckSize("Cost@GRAD", dcost(ctx), examples));
        if (sample_weight) {
          WEFT_RETURN_IF_ERROR(CheckSize("SampleWeight", sample_weight(ctx), examples));
        }
        if (bias) WEFT_RETURN_IF_ERROR(CheckSize("Bias", bias(ctx), classes));
        WEFT_RETURN_IF_ERROR(noise.Check(ctx));
        return ForFloatType("input Input", input(ctx), [&](auto tag) {
          using T = typename decltype(tag)::type;
          std::vector<ClassUse<T>> uses(samples.size());
          for (int64_t i = 0; i < labels.size(); ++i) {
            const double b = noise.Probability(ctx, samples[i]) * static_cast<float>(drawn);
            const double o = outs.data<T>(ctx)[i];
            double d = i % count < count - drawn ? (o - 1) * b / (o + b) : o * (1 - o) / (o + b);
            if (sample_weight) d *= sample_weight.data<T>(ctx)[i / count];
            uses[i] = {i / count, samples[i], static_cast<T>(d * dcost.data<T>(ctx)[i / count])};
          }
          SetClassGrads(uses, input(ctx), weight(ctx), bias.get(ctx), weight_grad, dinput.get(ctx),
                        dweight.get(ctx), dbias.get(ctx));
          return absl::OkStatus();
        });
      });
}

// --- sample_logits -------------------------------------------------------------------------------

// Probabilities as large and as small as Paddle lets them become.
double Limited(double x) { return std::clamp(x, -1e20, 1e20); }

// Draws num_samples different classes, which all rows share, from a log-uniform distribution, and
// sets the columns of `samples` after the labels. Probabilities: how often a class is expected in
// so many draws as that took.
template <typename T>
absl::Status DrawSamples(int64_t classes, int64_t drawn, std::mt19937_64* engine, Tensor* samples,
                         Tensor* probabilities) {
  if (drawn >= classes) {
    return absl::InvalidArgumentError(absl::StrCat("attribute num_samples: expected fewer than ",
                                                   classes, " classes, found ", drawn));
  }
  const LogUniform distribution(classes);
  const int64_t rows = samples->dim(0), count = samples->dim(1);
  std::vector<int64_t> chosen;
  double draws = 0;
  while (static_cast<int64_t>(chosen.size()) < drawn) {
    const int64_t c = distribution.Draw(engine);
    draws += 1;
    if (!absl::c_linear_search(chosen, c)) chosen.push_back(c);
  }
  for (int64_t i = 0; i < rows * count; ++i) {
    int64_t& sample = samples->data<int64_t>()[i];
    const int64_t column = i % count - (count - drawn);
    if (column >= 0) sample = chosen[column];
    const double p = distribution.Probability(sample);
    const double expected =
        draws == static_cast<double>(drawn) ? p * draws : -std::expm1(draws * std::log1p(-p));
    probabilities->data<T>()[i] = static_cast<T>(expected);
  }
  return absl::OkStatus();
}

// Samples: the classes of each row, labels first; SampledLogits: their Logits minus the logarithms
// of Probabilities, and far below with remove_accidental_hits for samples that are labels of the
// row. SampledLabels: where the labels are in Samples. Jean et al., "On Using Very Large Target
// Vocabulary for Neural Machine Translation" (2015).
absl::StatusOr<Kernel> SampleLogits(OpKernel op) {
  const In logits = op.in("Logits"), labels = op.in("Labels");
  const In given = op.in("CustomizedSamples"), given_p = op.in("CustomizedProbabilities");
  const Out samples = op.out("Samples"), probabilities = op.out("Probabilities");
  const Out out = op.out("SampledLogits"), out_labels = op.out("SampledLabels");
  const bool is_custom = op.attrs().Bool("use_customized_samples");
  const bool removes_hits = op.attrs().Bool("remove_accidental_hits");
  const int64_t seed = op.attrs().Int("seed"), drawn = op.attrs().Int("num_samples");
  if (!op.attrs().Bool("uniq")) {
    return absl::UnimplementedError("attribute uniq: no kernel for samples that repeat");
  }
  return op.Make(Floats(logits), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t rows = logits(ctx).dim(0), classes = logits(ctx).dim(1);
    const int64_t num_labels = labels(ctx).dim(1), count = num_labels + drawn;
    Tensor own_samples, own_p;
    own_samples.Resize(DType::kInt64, {rows, count});
    own_p.Resize(logits(ctx).dtype(), {rows, count});
    if (is_custom) {
      WEFT_ASSIGN_OR_RETURN(const auto all, ReadIndices("CustomizedSamples", given(ctx), classes));
      absl::c_copy(all, own_samples.data<int64_t>());
      std::copy_n(given_p.data<T>(ctx), rows * count, own_p.data<T>());
    } else {
      std::mt19937_64 own;
      WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                            EngineOf(seed, &RandomState::noise, ctx.random, &own));
      WEFT_ASSIGN_OR_RETURN(const auto numbers, ReadIndices("Labels", labels(ctx), classes));
      for (size_t i = 0; i < numbers.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i);
        own_samples.data<int64_t>()[at / num_labels * count + at % num_labels] = numbers[i];
      }
      WEFT_RETURN_IF_ERROR(DrawSamples<T>(classes, drawn, engine, &own_samples, &own_p));
    }
    const int64_t* const chosen = own_samples.data<int64_t>();
    T* const to = out.data_or_null<T>(ctx);
    for (int64_t i = 0; to != nullptr && i < rows * count; ++i) {
      const int64_t row = i / count, column = i % count;
      double logit = logits.data<T>(ctx)[row * classes + chosen[i]];
      const int64_t* const first = chosen + row * count;
      const bool is_hit = removes_hits && column >= num_labels &&
                          std::find(first, first + num_labels, chosen[i]) != first + num_labels;
      if (is_hit) logit -= 1e20;
      to[i] = static_cast<T>(Limited(logit - Limited(std::log(double{own_p.data<T>()[i]}))));
    }
    if (int64_t* places = out_labels.data_or_null<int64_t>(ctx)) {
      for (int64_t i = 0; i < rows * num_labels; ++i) places[i] = i % num_labels;
    }
    if (int64_t* all = samples.data_or_null<int64_t>(ctx)) std::copy_n(chosen, rows * count, all);
    if (T* all = probabilities.data_or_null<T>(ctx)) {
      std::copy_n(own_p.data<T>(), rows * count, all);
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> SampleLogitsGrad(OpKernel op) {
  op.Ignore({"LabelsDim", "LogitsDim"});
  const In samples = op.in("Samples"), dout = op.in("SampledLogits@GRAD");
  const Out dlogits = op.out("Logits@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t classes = dlogits(ctx).dim(1), count = dout(ctx).dim(1);
    WEFT_ASSIGN_OR_RETURN(const auto chosen, ReadIndices("Samples", samples(ctx), classes));
    T* const to = dlogits.data<T>(ctx);
    std::fill_n(to, dlogits(ctx).size(), T(0));
    for (size_t i = 0; i < chosen.size(); ++i) {
      to[static_cast<int64_t>(i) / count * classes + chosen[i]] += dout.data<T>(ctx)[i];
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddClassLossKernels(KernelTable* table) {
  table->Add("hierarchical_sigmoid", HierarchicalSigmoid);
  table->Add("hierarchical_sigmoid_grad", HierarchicalSigmoidGrad<WeightGrad::kDense>);
  table->AddForRows("hierarchical_sigmoid_grad", HierarchicalSigmoidGrad<WeightGrad::kRows>);
  table->Add("nce", Nce);
  table->Add("nce_grad", NceGrad<WeightGrad::kDense>);
  table->AddForRows("nce_grad", NceGrad<WeightGrad::kRows>);
  table->Add("sample_logits", SampleLogits, SampleLogitsGrad);
}

}  // namespace weft
