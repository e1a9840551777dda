// Ops that differentiate gradient ops (ops/schema/second_gradients.h), built from the kernels of
// the ops and of their gradient ops. For f linear in x and in y, with gradients fx(x, y, dout),
// fy(x, y, dout),
//   DDOut = f(ddx, y) + f(x, ddy)    DX = fx(x, ddy, dout)    DY = fy(ddx, y, dout)
// and for functions of one tensor
//   DDOut = ddx f'(x)    DX = ddx dout f''(x)
#include "ops/schema/second_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ops/bound_kernel.h"
#include "ops/cpu/extra/families.h"
#include "ops/make_kernel.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

using Tensors = std::vector<const Tensor*>;

// The kernel of another op with attributes of the same names, on tensors of this one.
class Part {
 public:
  static absl::StatusOr<Part> Make(const KernelSpec& whole, const std::string& type,
                                   const std::vector<std::string>& inputs,
                                   const std::string& output) {
    KernelSpec spec;
    spec.schema = FindOpSchema(type);
    spec.attrs = whole.attrs.For(*spec.schema);
    spec.paddle_cpu_quirks = whole.paddle_cpu_quirks;
    for (const std::string& slot : inputs) {
      const int place = static_cast<int>(spec.inputs.size());
      spec.inputs[slot] = {place, 1};
    }
    spec.outputs[output] = {0, 1};
    Part part;
    WEFT_ASSIGN_OR_RETURN(Kernel kernel, MakeKernel(*CpuKernels().Find(type), std::move(spec)));
    part.kernel_ = std::make_shared<BoundKernel>(std::move(kernel));
    return part;
  }

  // Inputs in the order of Make.
  absl::Status Run(const KernelContext& ctx, const Tensors& inputs, Tensor* output) {
    KernelContext inner = ctx;
    inner.inputs = inputs;
    inner.outputs = absl::MakeConstSpan(&output, 1);
    return kernel_->Run(inner);
  }

 private:
  std::shared_ptr<BoundKernel> kernel_;
};

template <typename T>
void SetZero(Tensor* tensor) {
  std::fill_n(tensor->data<T>(), tensor->size(), T(0));
}

// `found`, or zeros like `like`.
template <typename T>
const Tensor& OrZeros(const Tensor* found, const Tensor& like, Tensor* zeros) {
  if (found != nullptr) return *found;
  zeros->Resize(like.dtype(), like.dims());
  SetZero<T>(zeros);
  return *zeros;
}

absl::StatusOr<Kernel> Product(const KernelSpec& spec, const SecondGradient& s) {
  const std::string out_slot = FindOpSchema(s.op)->outputs()[0].name;
  const std::vector<std::string> grad_inputs = {s.x, s.y, out_slot + "@GRAD"};
  OpKernel op(spec);
  const In x = op.in(s.x), y = op.in(s.y), dout = op.in(s.dout);
  const In ddx = op.in(s.ddx), ddy = op.in(s.ddy);
  const Out dx = op.out(s.dx), dy = op.out(s.dy), ddout = op.out(s.ddout);
  WEFT_ASSIGN_OR_RETURN(Part f, Part::Make(spec, s.op, {s.x, s.y}, out_slot));
  WEFT_ASSIGN_OR_RETURN(Part fx, Part::Make(spec, s.op + "_grad", grad_inputs, s.x + "@GRAD"));
  WEFT_ASSIGN_OR_RETURN(Part fy, Part::Make(spec, s.op + "_grad", grad_inputs, s.y + "@GRAD"));
  const auto step = [=, term = Tensor()](const KernelContext& ctx,
                                         auto zero) mutable -> absl::Status {
    using T = decltype(zero);
    const Tensor *by_x = ddx.get(ctx), *by_y = ddy.get(ctx);
    if (Tensor* to = dx.get(ctx)) {
      SetZero<T>(to);
      if (by_y != nullptr) WEFT_RETURN_IF_ERROR(fx.Run(ctx, {&x(ctx), by_y, &dout(ctx)}, to));
    }
    if (Tensor* to = dy.get(ctx)) {
      SetZero<T>(to);
      if (by_x != nullptr) WEFT_RETURN_IF_ERROR(fy.Run(ctx, {by_x, &y(ctx), &dout(ctx)}, to));
    }
    if (Tensor* to = ddout.get(ctx)) {
      SetZero<T>(to);
      const auto add = [&](const Tensors& factors) -> absl::Status {
        WEFT_RETURN_IF_ERROR(f.Run(ctx, factors, &term));
        WEFT_RETURN_IF_ERROR(CheckSize(s.dout, dout(ctx), term.size()));
        for (int64_t i = 0; i < term.size(); ++i) to->data<T>()[i] += term.data<T>()[i];
        return absl::OkStatus();
      };
      if (by_x != nullptr) WEFT_RETURN_IF_ERROR(add({by_x, &y(ctx)}));
      if (by_y != nullptr) WEFT_RETURN_IF_ERROR(add({&x(ctx), by_y}));
    }
    return absl::OkStatus();
  };
  return op.Make(Floats(x), step);
}

// DDOut = f(ddx, ddy).
absl::StatusOr<Kernel> Sum(const KernelSpec& spec, const SecondGradient& s) {
  OpKernel op(spec);
  const In y = op.in(s.y), dout = op.in(s.dout), ddx = op.in(s.ddx), ddy = op.in(s.ddy);
  const Out ddout = op.out(s.ddout);
  WEFT_ASSIGN_OR_RETURN(Part f, Part::Make(spec, s.op, {"X", "Y"}, "Out"));
  return op.Make(Floats(y), [=, zeros = Tensor(), more_zeros = Tensor()](const KernelContext& ctx,
                                                                         auto zero) mutable {
    using T = decltype(zero);
    const Tensor& by_x = OrZeros<T>(ddx.get(ctx), dout(ctx), &zeros);
    const Tensor& by_y = OrZeros<T>(ddy.get(ctx), y(ctx), &more_zeros);
    return f.Run(ctx, {&by_x, &by_y}, &ddout(ctx));
  });
}

// For out = x / y, from dx = dout / y:
//   DDOut = (ddx - out ddy) / y    DY = -Σ(dx DDOut)    DOut = -dx ddy, the gradient of out
absl::StatusOr<Kernel> Quotient(const KernelSpec& spec, const SecondGradient& s) {
  OpKernel op(spec);
  op.Ignore({"Out@GRAD"});
  const In out = op.in(s.x), y = op.in(s.y), dx = op.in(s.dout);
  const In ddx = op.in(s.ddx), ddy = op.in(s.ddy);
  const Out dout = op.out(s.dx), dy = op.out(s.dy), ddout = op.out(s.ddout);
  const std::vector<std::string> two = {"X", "Y"};
  WEFT_ASSIGN_OR_RETURN(Part multiply, Part::Make(spec, "elementwise_mul", two, "Out"));
  WEFT_ASSIGN_OR_RETURN(Part subtract, Part::Make(spec, "elementwise_sub", two, "Out"));
  WEFT_ASSIGN_OR_RETURN(Part divide, Part::Make(spec, "elementwise_div", two, "Out"));
  WEFT_ASSIGN_OR_RETURN(Part sum_of_products,
                        Part::Make(spec, "elementwise_mul_grad", {"X", "Y", "Out@GRAD"}, "Y@GRAD"));
  struct Memory {
    Tensor zeros, more_zeros, product, difference, quotient;
  };
  const auto step = [=, m = std::make_shared<Memory>()](const KernelContext& ctx,
                                                        auto zero) mutable -> absl::Status {
    using T = decltype(zero);
    if (dx(ctx).dims() != out(ctx).dims()) {
      return absl::UnimplementedError("no kernel for an X that is repeated along a dimension");
    }
    const auto negate = [](Tensor* tensor) {
      for (int64_t i = 0; i < tensor->size(); ++i) tensor->data<T>()[i] *= -1;
    };
    const Tensor& by_x = OrZeros<T>(ddx.get(ctx), out(ctx), &m->zeros);
    const Tensor& by_y = OrZeros<T>(ddy.get(ctx), y(ctx), &m->more_zeros);
    WEFT_RETURN_IF_ERROR(multiply.Run(ctx, {&out(ctx), &by_y}, &m->product));
    WEFT_RETURN_IF_ERROR(subtract.Run(ctx, {&by_x, &m->product}, &m->difference));
    WEFT_RETURN_IF_ERROR(divide.Run(ctx, {&m->difference, &y(ctx)}, &m->quotient));
    if (Tensor* to = ddout.get(ctx)) std::copy_n(m->quotient.data<T>(), to->size(), to->data<T>());
    if (Tensor* to = dy.get(ctx)) {
      WEFT_RETURN_IF_ERROR(sum_of_products.Run(ctx, {&dx(ctx), &y(ctx), &m->quotient}, to));
      negate(to);
    }
    if (Tensor* to = dout.get(ctx)) {
      WEFT_RETURN_IF_ERROR(multiply.Run(ctx, {&dx(ctx), &by_y}, to));
      negate(to);
    }
    return absl::OkStatus();
  };
  return op.Make(Floats(out), step);
}

absl::StatusOr<Kernel> InView(const KernelSpec& spec, const SecondGradient& s) {
  OpKernel op(spec);
  op.Ignore({s.dout});
  const In ddx = op.in(s.ddx);
  const Out ddout = op.out(s.ddout);
  return op.Make(RawElements{ddx}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_RETURN_IF_ERROR(CheckSize(s.ddx, ddx(ctx), ddout(ctx).size()));
    std::copy_n(ddx.elements<T>(ctx), ddx(ctx).size(), ddout.elements<T>(ctx));
    return absl::OkStatus();
  });
}

// The operands of a formula for the gradient of x, the input of the gradient op, which is x or out
// of the op: d is the gradient of out, or dx for sqrt and rsqrt, ddx that of dx, and a are
// attributes.
struct Terms {
  double x, d, ddx;
  const std::vector<double>& a;
};
using Formula = double (*)(const Terms& t);

struct FormulaRow {
  std::vector<const char*> attrs;
  Formula formula;
};

double SoftplusFormula(const Terms& t) {
  const double beta = t.a[0], s = 1 / (1 + std::exp(-beta * t.x));
  return beta * t.x > t.a[1] ? 0 : t.ddx * t.d * beta * s * (1 - s);
}

// clang-format off: one formula per line
const std::map<std::string, FormulaRow>& Formulas() {
  static const auto* const rows = new std::map<std::string, FormulaRow>{
      {"celu",
       {{"alpha"},
        [](const Terms& t) {
          return t.x > 0 ? 0 : t.ddx * t.d * std::exp(t.x / t.a[0]) / t.a[0];
        }}},
      {"cos", {{}, [](const Terms& t) { return -t.ddx * t.d * std::cos(t.x); }}},
      {"elu",
       {{"alpha"},
        [](const Terms& t) { return t.x > 0 ? 0 : t.ddx * t.d * t.a[0] * std::exp(t.x); }}},
      {"log", {{}, [](const Terms& t) { return -t.ddx * t.d / (t.x * t.x); }}},
      {"pow",
       {{"factor"},
        [](const Terms& t) {
          return t.ddx * t.d * t.a[0] * (t.a[0] - 1) * std::pow(t.x, t.a[0] - 2);
        }}},
      {"rsqrt", {{}, [](const Terms& t) { return 3 * t.ddx * t.d / t.x; }}},
      {"sigmoid", {{}, [](const Terms& t) { return t.ddx * t.d * (1 - 2 * t.x); }}},
      {"sin", {{}, [](const Terms& t) { return -t.ddx * t.d * std::sin(t.x); }}},
      {"softplus", {{"beta", "threshold"}, SoftplusFormula}},
      {"sqrt", {{}, [](const Terms& t) { return -t.ddx * t.d / t.x; }}},
      {"square", {{}, [](const Terms& t) { return 2 * t.ddx * t.d; }}},
      {"tanh", {{}, [](const Terms& t) { return -2 * t.ddx * t.d * t.x; }}},
  };
  return *rows;
}
// clang-format on

absl::StatusOr<Kernel> Function(const KernelSpec& spec, const SecondGradient& s) {
  OpKernel op(spec);
  const bool is_old = !s.old_x.empty() && spec.Input(s.old_x) >= 0;
  const In x = op.in(is_old ? s.old_x : s.x), ddx = op.in(s.ddx);
  const In dout = s.dout.empty() ? ddx : op.in(s.dout);
  const Out dx = s.dx.empty() ? Out() : op.out(s.dx), ddout = op.out(s.ddout);
  // The gradient op gets x as input and as output of the op: it reads one of them.
  std::vector<std::string> slots;
  for (const SlotSchema& slot : FindOpSchema(s.op + "_grad")->inputs()) {
    if (slot.IsRequired(spec.attrs.version())) slots.push_back(slot.name);
  }
  WEFT_ASSIGN_OR_RETURN(Part gradient, Part::Make(spec, s.op + "_grad", slots, "X@GRAD"));
  FormulaRow row;
  if (dx) row = Formulas().at(s.op);
  std::vector<double> a;
  for (const char* name : row.attrs) a.push_back(spec.attrs.Float(name));
  const auto step = [=, formula = row.formula](const KernelContext& ctx,
                                               auto zero) mutable -> absl::Status {
    using T = decltype(zero);
    if (Tensor* to = dx.get(ctx)) {
      const T *xs = x.data<T>(ctx), *d = dout.data<T>(ctx), *dd = ddx.data<T>(ctx);
      for (int64_t i = 0; i < to->size(); ++i) {
        to->data<T>()[i] = static_cast<T>(formula({xs[i], d[i], dd[i], a}));
      }
    }
    Tensor* to = ddout.get(ctx);
    if (to == nullptr) return absl::OkStatus();
    Tensors inputs;
    for (const std::string& slot : slots) {
      inputs.push_back(slot == "Out@GRAD" ? &ddx(ctx) : &x(ctx));
    }
    return gradient.Run(ctx, inputs, to);
  };
  return op.Make(Floats(x), step);
}

}  // namespace

void AddSecondGradientKernels(KernelTable* table) {
  using Kind = SecondGradient::Kind;
  static const auto* const makers =
      new std::map<Kind, absl::StatusOr<Kernel> (*)(const KernelSpec&, const SecondGradient&)>{
          {Kind::kProduct, Product}, {Kind::kSum, Sum},           {Kind::kQuotient, Quotient},
          {Kind::kView, InView},     {Kind::kFunction, Function},
      };
  for (const SecondGradient& s : SecondGradients()) {
    table->Add(s.type,
               [&s, make = makers->at(s.kind)](const KernelSpec& spec) { return make(spec, s); });
  }
}

}  // namespace weft
