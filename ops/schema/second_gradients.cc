#include "ops/schema/second_gradients.h"

#include "absl/algorithm/container.h"

namespace weft {
namespace {

using Kind = SecondGradient::Kind;

constexpr char kSumPir[] =
    "(y, grad_out:DOut, grad_x_grad:DDX, grad_y_grad:DDY) -> grad_out_grad:DDOut";

SecondGradient Function(const std::string& op, const std::string& type, const std::string& x,
                        const std::string& dout) {
  SecondGradient result{Kind::kFunction, op, type, x, "", dout, "grad_x@GRAD", "", "", "", ""};
  if (!dout.empty()) result.dx = x + "@GRAD";
  if (dout == "fwd_grad_out") {
    result.pir =
        "(out, grad_out:fwd_grad_out, grad_x_grad) -> out_grad, grad_out_grad:fwd_grad_out@GRAD";
  }
  result.ddout = (dout.empty() || dout == "grad_x" ? "grad_out" : dout) + "@GRAD";
  return result;
}

std::vector<SecondGradient> Rows() {
  std::vector<SecondGradient> rows = {
      {Kind::kProduct, "conv2d", "conv2d_grad_grad",                          //
       "Input", "Filter", "grad_out", "grad_input@GRAD", "grad_filter@GRAD",  //
       "Input@GRAD", "Filter@GRAD", "grad_out@GRAD", "conv2d_grad_grad"},
      {Kind::kProduct, "elementwise_mul", "elementwise_mul_grad_grad",  //
       "X", "Y", "DOut", "DDX", "DDY", "X@GRAD", "Y@GRAD", "DDOut",     //
       "(x, y, grad_out:DOut, grad_x_grad:DDX, grad_y_grad:DDY) -> "
       "x_grad:X@GRAD, y_grad:Y@GRAD, grad_out_grad:DDOut"},
      {Kind::kProduct, "matmul_v2", "matmul_v2_grad_grad",  //
       "X", "Y", "grad_out", "grad_x@GRAD", "grad_y@GRAD", "X@GRAD", "Y@GRAD", "grad_out@GRAD"},
      {Kind::kProduct, "mul", "mul_grad_grad",  //
       "X", "Y", "DOut", "DDX", "DDY", "DX", "DY", "DDOut"},
      {Kind::kSum, "elementwise_add", "elementwise_add_grad_grad",  //
       "", "Y", "DOut", "DDX", "DDY", "", "", "DDOut", kSumPir},
      {Kind::kSum, "elementwise_sub", "elementwise_sub_grad_grad",  //
       "", "Y", "DOut", "DDX", "DDY", "", "", "DDOut", kSumPir},
      {Kind::kQuotient, "elementwise_div", "elementwise_div_grad_grad",  //
       "Out", "Y", "DX", "DDX", "DDY", "DOut", "Y@GRAD", "DDOut",        //
       "(y, out, grad_out:-, grad_x:DX, grad_x_grad:DDX, grad_y_grad:DDY) -> "
       "y_grad:Y@GRAD, out_grad:DOut, grad_out_grad:DDOut"},
      {Kind::kView, "reshape2", "reshape2_grad_grad",  //
       "", "", "DOut", "DDX", "", "", "", "DDOut",     //
       "(grad_out:DOut, grad_x_grad:DDX) -> grad_out_grad:DDOut"},
      Function("abs", "abs_double_grad", "X", ""),
      Function("leaky_relu", "leaky_relu_grad_grad", "X", ""),
      Function("relu", "relu_grad_grad", "Out", ""),
      Function("sigmoid", "sigmoid_grad_grad", "Out", "fwd_grad_out"),
      Function("tanh", "tanh_grad_grad", "Out", "grad_out"),
      Function("rsqrt", "rsqrt_grad_grad", "Out", "grad_x"),
      Function("sqrt", "sqrt_grad_grad", "Out", "grad_x"),
  };
  const auto is_abs = [](const SecondGradient& row) { return row.op == "abs"; };
  absl::c_find_if(rows, is_abs)->old_x = "x";
  for (const char* op : {"celu", "elu", "log", "square"}) {
    rows.push_back(Function(op, std::string(op) + "_grad_grad", "X", "grad_out"));
  }
  for (const char* op : {"cos", "pow", "sin", "softplus"}) {
    rows.push_back(Function(op, std::string(op) + "_double_grad", "X", "grad_out"));
  }
  return rows;
}

}  // namespace

const std::vector<SecondGradient>& SecondGradients() {
  static const auto* const rows = new std::vector<SecondGradient>(Rows());
  return *rows;
}

const SecondGradient* FindSecondGradient(absl::string_view type) {
  for (const SecondGradient& row : SecondGradients()) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace weft
