// Random initial values. Numbers equal those of Paddle's CPU kernels bit for bit: one draw per
// element, in order, from std::mt19937_64 through the distributions of the standard library.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/computed_attrs.h"
#include "ops/cpu/erfinv.h"
#include "ops/cpu/families.h"
#include "ops/cpu/shape_attr.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

// Each family member is made once from the attributes; Sampler<T>() gives a fresh callable that
// draws one number from an engine, Finish writes what is not drawn.

struct Uniform {
  static constexpr const char* kType = "uniform_random";
  double min, max;
  int64_t diag_num, diag_step;
  double diag_val;

  static absl::StatusOr<Uniform> Make(const OpAttrs& attrs, const TensorType& type) {
    const Uniform uniform{attrs.Float("min"), attrs.Float("max"), attrs.Int("diag_num"),
                          attrs.Int("diag_step"), attrs.Float("diag_val")};
    if (!(uniform.min <= uniform.max)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes min and max: ", uniform.min, " is not below ", uniform.max));
    }
    const int64_t size = NumElements(type.dims);
    if (uniform.diag_num > 0 &&
        (uniform.diag_num > size || uniform.diag_step < 0 || uniform.diag_step >= size ||
         (uniform.diag_num - 1) * (uniform.diag_step + 1) >= size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attributes diag_num and diag_step: ", uniform.diag_num, " elements ",
                       uniform.diag_step, " apart do not fit shape ", DimsToString(type.dims)));
    }
    return uniform;
  }

  template <typename T>
  auto Sampler() const {
    return std::uniform_real_distribution<T>(static_cast<T>(min), static_cast<T>(max));
  }
  // Puts diag_val on a diagonal: diag_num elements, diag_step others between two of them.
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

// Out, of attributes shape and dtype, is filled by the sampler: from an engine with the op's seed,
// made anew at every run, or with seed 0 from the rank's engine for initializers.
template <typename Family>
absl::StatusOr<Kernel> Fill(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  WEFT_ASSIGN_OR_RETURN(const TensorType type, TypeFromAttrs(spec));
  WEFT_ASSIGN_OR_RETURN(const Family family, Family::Make(spec.attrs, type));
  const int64_t seed = spec.attrs.Int("seed");
  if (type.dtype != DType::kFloat32 && type.dtype != DType::kFloat64) {
    return absl::UnimplementedError(
        absl::StrCat("attribute dtype: no kernel for element type ", DTypeName(type.dtype)));
  }
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    if (seed == 0 && ctx.random == nullptr) {
      return absl::FailedPreconditionError("attribute seed: 0, but there is no generator");
    }
    std::mt19937_64 own;
    if (seed != 0) own.seed(static_cast<uint64_t>(seed));
    std::mt19937_64& engine = seed != 0 ? own : ctx.random->initializers;
    Tensor* out = ctx.out(out_index);
    out->Resize(type.dtype, type.dims);
    return ForFloatType("output Out", *out, [&](auto tag) {
      using T = typename decltype(tag)::type;
      auto sample = family.template Sampler<T>();
      T* to = out->data<T>();
      for (int64_t i = 0; i < out->size(); ++i) to[i] = sample(engine);
      family.Finish(to);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddRandomKernels(KernelTable* table) {
  const std::vector<ComputedAttr> shape = {{{"shape"}, "ShapeTensor", "ShapeTensorList"}};
  table->Add(Uniform::kType, WithComputedAttrs(shape, Fill<Uniform>));
  table->Add(Gaussian::kType, WithComputedAttrs(shape, Fill<Gaussian>));
  table->Add(TruncatedGaussian::kType, Fill<TruncatedGaussian>);
}

}  // namespace weft
