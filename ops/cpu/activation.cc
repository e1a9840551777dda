// Functions of one tensor, elementwise. A new one is a struct and a line in AddActivationKernels.
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"

namespace weft {
namespace {

struct Relu {
  static constexpr const char* kType = "relu";
  static constexpr const char* kGradType = "relu_grad";
  static constexpr const char* kGradReads = "Out";  // what Backward takes besides Out@GRAD
  template <typename T>
  static T Forward(T x) {
    return x > 0 ? x : T(0);
  }
  template <typename T>
  static T Backward(T out, T dout) {
    return out > 0 ? dout : T(0);
  }
};

struct Square {
  static constexpr const char* kType = "square";
  static constexpr const char* kGradType = "square_grad";
  static constexpr const char* kGradReads = "X";
  template <typename T>
  static T Forward(T x) {
    return x * x;
  }
  template <typename T>
  static T Backward(T x, T dout) {
    return 2 * x * dout;
  }
};

struct Sqrt {
  static constexpr const char* kType = "sqrt";
  static constexpr const char* kGradType = "sqrt_grad";
  static constexpr const char* kGradReads = "Out";
  template <typename T>
  static T Forward(T x) {
    return std::sqrt(x);
  }
  template <typename T>
  static T Backward(T out, T dout) {
    return dout / (2 * out);
  }
};

struct Tanh {
  static constexpr const char* kType = "tanh";
  static constexpr const char* kGradType = "tanh_grad";
  static constexpr const char* kGradReads = "Out";
  template <typename T>
  static T Forward(T x) {
    return std::tanh(x);
  }
  template <typename T>
  static T Backward(T out, T dout) {
    return dout * (1 - out * out);
  }
};

struct Sigmoid {
  static constexpr const char* kType = "sigmoid";
  static constexpr const char* kGradType = "sigmoid_grad";
  static constexpr const char* kGradReads = "Out";
  template <typename T>
  static T Forward(T x) {
    return 1 / (1 + std::exp(-x));
  }
  template <typename T>
  static T Backward(T out, T dout) {
    return dout * out * (1 - out);
  }
};

// Out = f(X), possibly in place.
template <typename F>
absl::StatusOr<Kernel> Forward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      out->Resize(x.dtype(), x.dims());
      const T* from = x.data<T>();
      T* to = out->data<T>();
      for (int64_t i = 0; i < x.size(); ++i) to[i] = F::Forward(from[i]);
      return absl::OkStatus();
    });
  });
}

// X@GRAD = f'(X) Out@GRAD, possibly in place of either input.
template <typename F>
absl::StatusOr<Kernel> Backward(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int saved_index, RequiredInput(spec, F::kGradReads));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& saved = *ctx.in(saved_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dx = ctx.out(dx_index);
    if (dx == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout, saved.size()));
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      dx->Resize(dout.dtype(), dout.dims());
      const T* a = saved.data<T>();
      const T* b = dout.data<T>();
      T* to = dx->data<T>();
      for (int64_t i = 0; i < dout.size(); ++i) to[i] = F::Backward(a[i], b[i]);
      return absl::OkStatus();
    });
  });
}

template <typename F>
void AddFunction(KernelTable* table) {
  table->Add(F::kType, Forward<F>);
  table->Add(F::kGradType, Backward<F>);
}

}  // namespace

void AddActivationKernels(KernelTable* table) {
  AddFunction<Relu>(table);
  AddFunction<Sigmoid>(table);
  AddFunction<Sqrt>(table);
  AddFunction<Square>(table);
  AddFunction<Tanh>(table);
}

}  // namespace weft
