// Rows of ops that draw random numbers.
#include "proto/formats/pir/op_rows.h"

namespace weft::pir {
namespace {

constexpr OpRow kRows[] = {
    // Tensors of a given shape.
    {"1.uniform", "uniform_random",
     "shape:@shape/LONGS|ShapeTensor|ShapeTensorList min:@min/FLOAT max:@max/FLOAT", kOut, ""},
    {"1.gaussian", "gaussian_random", "shape:@shape/LONGS|ShapeTensor|ShapeTensorList", kOut, ""},
    {"1.truncated_gaussian_random", "truncated_gaussian_random", "", kOut, ""},
    {"1.randint", "randint", "shape:@shape/LONGS|ShapeTensor|ShapeTensorList", kOut, ""},
    {"1.randperm", "randperm", "", kOut, ""},
    // Draws for each element or row of X.
    {"1.bernoulli", "bernoulli", kX, kOut, ""},
    {"1.multinomial", "multinomial", "x:X num_samples:@num_samples/INT", kOut, ""},
    {"1.poisson", "poisson", kX, kOut, ""},
    {"1.poisson_grad", "poisson_grad", "out_grad:Out@GRAD", kToXGrad, ""},
    {"1.gumbel_softmax", "gumbel_softmax", kX, kOut, ""},
    {"1.gumbel_softmax_grad", "gumbel_softmax_grad", kOutGrad, kToXGrad, ""},
    {"1.rrelu", "rrelu", kX, "out:Out noise:Noise", ""},
    {"1.rrelu_grad", "rrelu_grad", "x:X noise:Noise out_grad:Out@GRAD", kToXGrad, ""},
};

}  // namespace

absl::Span<const OpRow> RandomRows() { return kRows; }

}  // namespace weft::pir
