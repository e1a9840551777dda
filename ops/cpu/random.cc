// Random values, bit-identical to those of Paddle's CPU kernels: one draw per element, in order,
// from std::mt19937_64 through the distributions of the standard library.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/erfinv.h"
#include "ops/cpu/families.h"
#include "ops/cpu/random_engine.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"
#include "ops/schema/filled_values.h"

namespace weft {
namespace {

// Each family member is made once from the attributes. Sampler<T>() returns a fresh callable that
// draws one number from an engine; Finish writes elements that are not drawn.

struct Uniform {
  static constexpr const char* kType = "uniform_random";
  double min, max;
  int64_t diag_num, diag_step;
  double diag_val;

  static absl::StatusOr<Uniform> Make(const OpAttrs& attrs, const TensorType& type) {
    const Uniform uniform{attrs.Float("min"), attrs.Float("max"), attrs.Int("diag_num"),
                          attrs.Int("diag_step"), attrs.Float("diag_val")};
    if (!HasDiagonal(attrs, NumElements(type.dims))) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes diag_num and diag_step: ", uniform.diag_num, " elements ",
                       uniform.diag_step, " apart do not fit shape ", DimsToString(type.dims)));
    }
    return uniform;
  }

  template <typename T>
  auto Sampler() const {
    // Programs may name the larger one first.
    return std::uniform_real_distribution<T>(static_cast<T>(std::min(min, max)),
                                             static_cast<T>(std::max(min, max)));
  }
  // Writes diag_val to a diagonal: diag_num elements, diag_step elements between two of them.
  template <typename T>
  void Finish(T* out) const {
    for (int64_t i = 0; i < diag_num; ++i) out[i * (diag_step + 1)] = static_cast<T>(diag_val);
  }
};

struct Gaussian {
  static constexpr const char* kType = "gaussian_random";
  double mean, std;

  static absl::StatusOr<Gaussian> Make(const OpAttrs& attrs, const TensorType&) {
    return Gaussian{attrs.Float("mean"), attrs.Float("std")};
  }
  template <typename T>
  auto Sampler() const {
    return std::normal_distribution<T>(static_cast<T>(mean), static_cast<T>(std));
  }
  template <typename T>
  void Finish(T*) const {}
};

// A normal distribution between a and b standard deviations from the mean, by inverting its
// distribution function at a uniform number.
struct TruncatedGaussian {
  static constexpr const char* kType = "truncated_gaussian_random";
  double mean, std, a, b;

  static absl::StatusOr<TruncatedGaussian> Make(const OpAttrs& attrs, const TensorType&) {
    return TruncatedGaussian{attrs.Float("mean"), attrs.Float("std"), attrs.Float("a"),
                             attrs.Float("b")};
  }
  template <typename T>
  auto Sampler() const {
    const auto normal_cdf = [](T x) {
      return static_cast<T>((1.0 + std::erf(x / std::sqrt(2.0))) / 2.0);
    };
    const T from = normal_cdf(static_cast<T>(a)), to = normal_cdf(static_cast<T>(b));
    const T mu = static_cast<T>(mean), sigma = static_cast<T>(std);
    std::uniform_real_distribution<T> uniform(std::numeric_limits<float>::min(), 1);
    return [=](std::mt19937_64& engine) mutable {
      const T p = from + (to - from) * uniform(engine);
      return static_cast<T>(std::sqrt(2.0) * Erfinv<T>(2 * p - 1) * sigma + mu);
    };
  }
  template <typename T>
  void Finish(T*) const {}
};

// The sampler fills Out: from an engine with the op's seed, made anew in every run, or with seed 0
// from the rank's engine for initializers. `type`: what is known of Out.
template <typename Family>
absl::StatusOr<Kernel> FillOf(OpKernel& op, const TensorType& type) {
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const Family family, Family::Make(op.attrs(), type));
  const int64_t seed = op.attrs().Int("seed");
  if (type.dtype != DType::kFloat32 && type.dtype != DType::kFloat64) {
    return absl::UnimplementedError(
        absl::StrCat("attribute dtype: no kernel for element type ", DTypeName(type.dtype)));
  }
  return op.WithoutHalfConversion()
      .Supports(Floats(In()))
      .Make([=](const KernelContext& ctx) -> absl::Status {
        std::mt19937_64 own;
        WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                              EngineOf(seed, &RandomState::initializers, ctx.random, &own));
        return ForFloatType("output Out", out(ctx), [&](auto tag) {
          using T = typename decltype(tag)::type;
          auto sample = family.template Sampler<T>();
          T* to = out.data<T>(ctx);
          for (int64_t i = 0; i < out(ctx).size(); ++i) to[i] = sample(*engine);
          family.Finish(to);
          return absl::OkStatus();
        });
      });
}

// Of attributes shape and dtype.
template <typename Family>
absl::StatusOr<Kernel> Fill(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(op.spec()));
  return FillOf<Family>(op, type);
}

// The same, but for the batch size, which Input has.
template <typename Family>
absl::StatusOr<Kernel> FillBatchSizeLike(OpKernel op) {
  op.in_types("Input");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(op.attrs().Int("dtype")));
  if (!dtype.has_value()) return absl::InvalidArgumentError("attribute dtype: unknown");
  return FillOf<Family>(op, {*dtype, {}});
}

// --- Whole numbers -------------------------------------------------------------------------------

// Out = numbers from low to high - 1.
absl::StatusOr<Kernel> RandInt(OpKernel op) {
  const Out out = op.out("Out");
  WEFT_RETURN_IF_ERROR(TypeFromAttrs(op.spec()).status());
  const int64_t low = op.attrs().Int("low"), high = op.attrs().Int("high");
  const int64_t seed = op.attrs().Int("seed");
  return op.Supports(Indices(In())).Make([=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(seed, &RandomState::initializers, ctx.random, &own));
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::uniform_int_distribution<T> draw(static_cast<T>(low), static_cast<T>(high - 1));
      T* to = out.data<T>(ctx);
      for (int64_t i = 0; i < out(ctx).size(); ++i) to[i] = draw(*engine);
      return absl::OkStatus();
    });
  });
}

// Out = a random permutation of 0 to n - 1.
absl::StatusOr<Kernel> RandPerm(OpKernel op) {
  const Out out = op.out("Out");
  return op.Supports(FloatsAndInts(In())).Make([=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(/*seed=*/0, &RandomState::initializers, ctx.random, &own));
    return ForNumberType("output Out", out(ctx), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T *begin = out.data<T>(ctx), *end = begin + out(ctx).size();
      std::iota(begin, end, T(0));
      std::shuffle(begin, end, *engine);
      return absl::OkStatus();
    });
  });
}

// --- Rank-local draws for every element or row of an input ---------------------------------------

// Out = draw(engine, X), for X in [0, largest].
template <typename Draw>
absl::StatusOr<Kernel> DrawEach(OpKernel op, double largest, Draw draw) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace().Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(/*seed=*/0, &RandomState::noise, ctx.random, &own));
    const T* from = x.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      if (!(from[i] >= 0 && from[i] <= largest)) {
        return absl::InvalidArgumentError(absl::StrCat("input X: ", from[i], " at position ", i,
                                                       " is not in [0, ", largest, "]"));
      }
      to[i] = draw(*engine, from[i]);
    }
    return absl::OkStatus();
  });
}

// Out = 1 with probability X, else 0.
absl::StatusOr<Kernel> Bernoulli(const KernelSpec& spec) {
  return DrawEach(spec, /*largest=*/1, [](std::mt19937_64& engine, auto p) {
    using T = decltype(p);
    return std::uniform_real_distribution<T>(0, 1)(engine) <= p && p > 0 ? T(1) : T(0);
  });
}

// Out = a draw from the Poisson distribution with mean X. Up to the limit, draws are exact in
// double precision.
absl::StatusOr<Kernel> Poisson(const KernelSpec& spec) {
  return DrawEach(spec, /*largest=*/1e15, [](std::mt19937_64& engine, auto mean) {
    using T = decltype(mean);
    return mean == 0 ? T(0)
                     : static_cast<T>(std::poisson_distribution<int64_t>(double{mean})(engine));
  });
}

// Draws have derivative 0.
absl::StatusOr<Kernel> PoissonGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  return op.InPlace().MakeElementwise(
      Floats(dout), op.out("X@GRAD"), [](auto) { return 0; }, dout);
}

// The cumulative sums of the weights, divided by the total. InvalidArgument if a weight is negative
// or not finite, or if fewer than `needed` weights are nonzero.
template <typename T>
absl::Status CumulateWeights(const T* weights, int64_t needed, std::vector<T>* sums) {
  T sum = 0;
  int64_t possible = 0;
  for (size_t i = 0; i < sums->size(); ++i) {
    if (!(weights[i] >= 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input X: weight ", weights[i], " of category ", i));
    }
    possible += weights[i] > 0;
    sum += weights[i];
    (*sums)[i] = sum;
  }
  if (possible < needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input X: expected ", needed, " categories with a weight in each row, found ", possible));
  }
  if (!std::isfinite(sum)) {
    return absl::InvalidArgumentError("input X: the sum of the weights is not finite");
  }
  for (T& s : *sums) s /= sum;
  return absl::OkStatus();
}

// Out = num_samples categories of each row of weights X; without replacement, distinct ones. O(log
// categories) per sample with replacement, O(categories) without.
absl::StatusOr<Kernel> Multinomial(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t samples = op.attrs().Int("num_samples");
  const bool replaces = op.attrs().Bool("replacement");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(/*seed=*/0, &RandomState::noise, ctx.random, &own));
    std::uniform_real_distribution<T> draw(0, 1);
    const int64_t categories = x(ctx).dims().back();
    const int64_t rows = x(ctx).rank() == 1 ? 1 : x(ctx).dim(0);
    std::vector<T> sums(categories), weights(categories);
    int64_t* to = out.data<int64_t>(ctx);
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x.data<T>(ctx) + r * categories;
      WEFT_RETURN_IF_ERROR(CumulateWeights(row, replaces ? 1 : samples, &sums));
      std::copy_n(row, categories, weights.begin());
      for (int64_t s = 0; s < samples; ++s) {
        int64_t drawn = std::lower_bound(sums.begin(), sums.end(), draw(*engine)) - sums.begin();
        // Rounding must not draw a category of weight 0: use the next one, or the last one.
        while (drawn < categories && !(weights[drawn] > 0)) ++drawn;
        if (drawn == categories) {
          while (!(weights[--drawn] > 0)) {
          }
        }
        *to++ = drawn;
        if (replaces || s + 1 == samples) continue;
        weights[drawn] = 0;
        const T share = sums[drawn] - (drawn == 0 ? T(0) : sums[drawn - 1]), rest = 1 - share;
        for (int64_t k = 0; k < categories; ++k) {
          sums[k] = (k < drawn ? sums[k] : sums[k] - share) / rest;
        }
      }
    }
    return absl::OkStatus();
  });
}

// Op seed: Out = the seed; if that is 0, a new number from the generator of the rank in every step.
// Paddle's recomputation puts it before a dropout, so that recomputing drops the same elements.
absl::StatusOr<Kernel> Seed(OpKernel op) {
  const Out out = op.out("Out");
  const int64_t seed = op.attrs().Int("seed");
  return op.Supports(ElementTypesOf<int32_t>()).Make([=](const KernelContext& ctx) -> absl::Status {
    std::mt19937_64 own;
    WEFT_ASSIGN_OR_RETURN(std::mt19937_64 * engine,
                          EngineOf(seed, &RandomState::noise, ctx.random, &own));
    std::uniform_int_distribution<int32_t> draw(1, std::numeric_limits<int32_t>::max());
    *out.data<int32_t>(ctx) = seed != 0 ? static_cast<int32_t>(seed) : draw(*engine);
    return absl::OkStatus();
  });
}

}  // namespace

void AddRandomKernels(KernelTable* table) {
  table->Add(Uniform::kType, Fill<Uniform>);
  table->Add("gaussian_random_batch_size_like", FillBatchSizeLike<Gaussian>);
  table->Add("uniform_random_batch_size_like", FillBatchSizeLike<Uniform>);
  table->Add(Gaussian::kType, Fill<Gaussian>);
  table->Add(TruncatedGaussian::kType, Fill<TruncatedGaussian>);
  table->Add("randint", RandInt);
  table->Add("randperm", RandPerm);
  table->Add("seed", Seed);
  table->Add("bernoulli", Bernoulli);
  table->Add("multinomial", Multinomial);
  table->Add("poisson", Poisson, PoissonGrad);
}

}  // namespace weft
