// Noise-contrastive estimation: discriminates each example's labels from classes drawn as noise
// (nce). With o = σ(Weight[c]·Input + Bias[c]), and b the expected number of draws of c,
//   Cost = Σ over labels of -log(o / (o + b)) + Σ over drawn classes of -log(b / (o + b))
// times SampleWeight. SampleLabels has the classes, labels first, SampleLogits their o.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/cpu/extra/class_weights.h"
#include "ops/cpu/extra/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The distribution of the noise. Log-uniform: the probability of class c is log((c + 2) / (c + 1))
// / log(classes). As in Paddle, this is a distribution over all classes except the last one, which
// is never drawn.
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
        return static_cast<float>(std::log((c + 2.0) / (c + 1.0)) / LogClasses());
      case kCustom:
        break;
    }
    return probabilities_.data<float>(ctx)[c];
  }

  // May be an invalid class if CustomDistAlias is wrong.
  int64_t Draw(const KernelContext& ctx, std::mt19937_64* engine) const {
    std::uniform_real_distribution<double> fraction(0, 1);
    if (kind_ == kLogUniform) {
      const auto c = static_cast<int64_t>(std::exp(fraction(*engine) * LogClasses())) - 1;
      return c % (classes_ - 1);  // rounding may reach the last class
    }
    std::uniform_int_distribution<int> any(0, static_cast<int>(classes_ - 1));
    const int64_t c = any(*engine);
    if (kind_ == kUniform) return c;
    // Alias method: c itself with its probability, otherwise the class that shares its entry.
    const bool is_alias = fraction(*engine) > alias_probabilities_.data<float>(ctx)[c];
    return is_alias ? alias_.data<int32_t>(ctx)[c] : c;
  }

 private:
  double LogClasses() const { return std::log(static_cast<double>(classes_)); }

  Kind kind_;
  int64_t classes_;
  In probabilities_, alias_, alias_probabilities_;
};

// A nonzero seed gives the same draws in every step, and those of Paddle; without one they come
// from the generator of the rank.
absl::StatusOr<Kernel> Nce(const KernelSpec& spec) {
  OpKernel op(spec);
  const In input = op.in("Input"), weight = op.in("Weight"), bias = op.in("Bias");
  const In label = op.in("Label"), sample_weight = op.in("SampleWeight");
  const Out cost = op.out("Cost"), samples = op.out("SampleLabels"), outs = op.out("SampleLogits");
  const Noise noise(&op, spec.attrs);
  const int64_t classes = spec.attrs.Int("num_total_classes"), seed = spec.attrs.Int("seed");
  const int64_t drawn = spec.attrs.Int("num_neg_samples");
  const std::vector<int64_t> given = spec.attrs.Ints("custom_neg_classes");
  const auto choose = [=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    std::mt19937_64* engine = &own;
    if (given.empty()) {
      WEFT_ASSIGN_OR_RETURN(engine, EngineOf(seed, &RandomState::dropout, ctx.random, &own));
    }
    const int64_t count = samples(ctx).dim(1), labels = count - drawn;
    int64_t* to = samples.data<int64_t>(ctx);
    for (int64_t i = 0; i < samples(ctx).dim(0); ++i, to += count) {
      WEFT_RETURN_IF_ERROR(CopyNumbers("Label", label(ctx), i * labels, labels, to));
      for (int64_t j = labels; j < count; ++j) {
        to[j] = given.empty() ? noise.Draw(ctx, engine) : given[j - labels];
      }
    }
    return CheckNumbers("Label, or a class drawn as noise", samples(ctx), classes);
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
class NceGrad {
 public:
  NceGrad(const KernelSpec& spec, OpKernel* op)
      : input_(op->in("Input")),
        weight_(op->in("Weight")),
        bias_(op->in("Bias")),
        samples_(op->in("SampleLabels")),
        outs_(op->in("SampleLogits")),
        sample_weight_(op->in("SampleWeight")),
        dcost_(op->in("Cost@GRAD")),
        dinput_(op->out("Input@GRAD")),
        dweight_(op->out("Weight@GRAD")),
        dbias_(op->out("Bias@GRAD")),
        noise_(op, spec.attrs),
        drawn_(spec.attrs.Int("num_neg_samples")),
        classes_(spec.attrs.Int("num_total_classes")) {
    op->Ignore({"Label"});
  }

  In input() const { return input_; }

  absl::Status Run(const KernelContext& ctx, WeightGrad weight_grad) const {
    WEFT_RETURN_IF_ERROR(CheckOperands(input_(ctx), weight_(ctx)));
    const int64_t examples = input_(ctx).dim(0);
    WEFT_RETURN_IF_ERROR(CheckDims("Weight", weight_(ctx), {classes_, input_(ctx).dim(1)}));
    WEFT_RETURN_IF_ERROR(CheckDType("SampleLabels", samples_(ctx), DType::kInt64));
    WEFT_RETURN_IF_ERROR(CheckNumbers("SampleLabels", samples_(ctx), classes_));
    WEFT_RETURN_IF_ERROR(CheckDims("SampleLabels", samples_(ctx), {examples, Samples(ctx)}));
    WEFT_RETURN_IF_ERROR(CheckDims("SampleLogits", outs_(ctx), samples_(ctx).dims()));
    WEFT_RETURN_IF_ERROR(CheckSize("Cost@GRAD", dcost_(ctx), examples));
    if (sample_weight_) {
      WEFT_RETURN_IF_ERROR(CheckSize("SampleWeight", sample_weight_(ctx), examples));
    }
    if (bias_) WEFT_RETURN_IF_ERROR(CheckSize("Bias", bias_(ctx), classes_));
    WEFT_RETURN_IF_ERROR(noise_.Check(ctx));
    return ForFloatType("input Input", input_(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t count = Samples(ctx), size = samples_(ctx).size();
      const auto* samples = samples_.data<int64_t>(ctx);
      std::vector<ClassUse<T>> uses(size);
      for (int64_t i = 0; i < size; ++i) {
        const double b = noise_.Probability(ctx, samples[i]) * static_cast<float>(drawn_);
        const double o = outs_.data<T>(ctx)[i];
        double d = i % count < count - drawn_ ? (o - 1) * b / (o + b) : o * (1 - o) / (o + b);
        if (sample_weight_) d *= sample_weight_.data<T>(ctx)[i / count];
        uses[i] = {i / count, samples[i], static_cast<T>(d * dcost_.data<T>(ctx)[i / count])};
      }
      return SetClassGrads(uses, input_(ctx), weight_(ctx), bias_.get(ctx), weight_grad,
                           dinput_.get(ctx), dweight_.get(ctx), dbias_.get(ctx));
    });
  }

 private:
  // Of one example.
  int64_t Samples(const KernelContext& ctx) const {
    return samples_(ctx).rank() == 2 ? samples_(ctx).dim(1) : 0;
  }

  In input_, weight_, bias_, samples_, outs_, sample_weight_, dcost_;
  Out dinput_, dweight_, dbias_;
  Noise noise_;
  int64_t drawn_, classes_;
};

}  // namespace

void AddNceKernels(KernelTable* table) {
  table->Add("nce", Nce);
  table->Add("nce_grad", MakeClassGrad<NceGrad, WeightGrad::kDense>);
  table->AddForRows("nce_grad", MakeClassGrad<NceGrad, WeightGrad::kRows>);
}

}  // namespace weft
