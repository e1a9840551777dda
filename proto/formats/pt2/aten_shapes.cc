// Operators that move, repeat, cut or add up elements, and make constants.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

// PyTorch counts negative axes from the end.
absl::StatusOr<int64_t> Axis(const Node& node, absl::string_view argument, int64_t rank,
                             absl::optional<int64_t> otherwise = absl::nullopt) {
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, node.Int(argument, otherwise));
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return node.ArgumentError(argument, absl::StrCat("an axis of ", rank));
}

}  // namespace

absl::Status Translator::Transpose2d(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string x = makers_.Origin(value);
  if (MetaOf(x).dims.size() != 2) {
    vars_[node.outputs[0]] = VarOf(x);  // of a vector, or a number
    return absl::OkStatus();
  }
  transposed_[node.outputs[0]] = x;
  return absl::OkStatus();
}

absl::Status Translator::Transpose(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const int64_t rank = MetaOf(value).dims.size();
  WEFT_ASSIGN_OR_RETURN(const int64_t a, Axis(node, "dim0", rank));
  WEFT_ASSIGN_OR_RETURN(const int64_t b, Axis(node, "dim1", rank));
  if (rank == 2 && a != b) return Transpose2d(node);
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[a], axes[b]);
  WEFT_ASSIGN_OR_RETURN(NewOp op, AddUnary(node, "transpose2"));
  op.Ints("axis", axes);
  return absl::OkStatus();
}

absl::Status Translator::Permute(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, node.Ints("dims", absl::nullopt));
  Add("transpose2", {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}}).Ints("axis", dims);
  return absl::OkStatus();
}

// To the shape that the file gives the output; one symbolic size follows from the others.
absl::Status Translator::Reshape(const Node& node) {
  const std::vector<int64_t>& dims = MetaOf(node.outputs[0]).dims;
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const auto sum = row_sums_.find(makers_.Origin(value));
  if (sum != row_sums_.end() && vars_.find(sum->first) == vars_.end()) {
    if (AddBiasGrad(sum->second, -1, node.outputs[0])) return absl::OkStatus();
  }
  const bool is_gradient = param_of_part_.contains(node.outputs[0]);
  const TensorMeta &from = MetaOf(value), &to = MetaOf(node.outputs[0]);
  const auto rows = rows_.find(makers_.Origin(value));
  if (rows != rows_.end() && rows->second.meta.sizes == to.sizes && !is_gradient) {
    vars_[node.outputs[0]] = rows->second.var;  // as it was
    return absl::OkStatus();
  }
  // To a matrix, for a product: its rows stay along the first axes, if the last ones are a row.
  if (to.dims.size() == 2 && !is_gradient) {
    Size row;
    size_t axes = from.sizes.size();
    while (axes > 2 && row != to.sizes[1]) row *= from.sizes[--axes];
    if (axes >= 2 && row == to.sizes[1]) {
      TensorMeta meta = {from.dtype,
                         {from.dims.begin(), from.dims.begin() + axes},
                         {from.sizes.begin(), from.sizes.begin() + axes}};
      meta.dims.push_back(to.dims[1]);
      meta.sizes.push_back(to.sizes[1]);
      std::string var = VarOf(value);
      if (axes + 1 < from.dims.size() && std::count(meta.dims.begin(), meta.dims.end(), -1) <= 1) {
        const std::string x = var;
        var = Temporary("rows", meta);
        Add("reshape2", {{"X", {x}}}, {{"Out", {var}}}).Ints("shape", meta.dims);
      }
      if (axes + 1 == from.dims.size() || var != VarOf(value)) {
        rows_[node.outputs[0]] = {var, false, meta, true};
        return absl::OkStatus();
      }
    }
  }
  const std::string x = OperandOf(value).var;
  if (std::count(dims.begin(), dims.end(), -1) > 1) {
    return node.Error("expected a shape with one symbolic size at most, the size of the batch");
  }
  // Once for the forward pass and its gradient, whose ops then read the same variables.
  std::string& before = reshaped_[{makers_.Origin(value), KeyOf(to)}];
  if (!before.empty() && !Follows(value)) {
    vars_[node.outputs[0]] = before;
    return absl::OkStatus();
  }
  before = Output(node.outputs[0]);
  Add("reshape2", {{"X", {x}}}, {{"Out", {before}}}).Ints("shape", dims);
  return absl::OkStatus();
}

absl::Status Translator::Reduce(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, node.Ints("dim", std::vector<int64_t>()));
  WEFT_ASSIGN_OR_RETURN(const bool keeps, node.Bool("keepdim", false));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  // All axes but the last.
  std::vector<int64_t> leading(MetaOf(value).dims.size());
  std::iota(leading.begin(), leading.end(), 0);
  if (!leading.empty()) leading.pop_back();
  const bool keeps_type = MetaOf(value).dtype == MetaOf(node.outputs[0]).dtype;
  const bool sums_gradient = keeps_type && keeps && !dims.empty() &&
                             Rules().at(node.target).op == "reduce_sum" && Follows(value);
  const bool sums_rows = sums_gradient && dims == leading;
  if (sums_rows && !param_of_part_.contains(node.outputs[0])) {
    row_sums_[node.outputs[0]] = value;
    return absl::OkStatus();
  }
  // Of what was repeated.
  if (sums_gradient && AddBiasGrad(value, -1, node.outputs[0], /*must_be_added=*/true)) {
    return absl::OkStatus();
  }
  // A mask is counted: its sum is an integer.
  WEFT_ASSIGN_OR_RETURN(const std::string x, Promoted(node, "self"));
  if (dims.empty() && !Follows(value)) reduced_.emplace(KeyOf(MetaOf(value)), x);
  Add(Rules().at(node.target).op, {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("dim", dims.empty() ? std::vector<int64_t>{0} : dims)
      .Bool("keep_dim", keeps)
      .Bool("reduce_all", dims.empty());
  return absl::OkStatus();
}

// The sum of a gradient over all axes but the axis of a bias is the gradient of the bias: the op
// for it says so to analyses. It reads shapes alone: whatever is added, its gradient is that sum.
// Prefers a sum of the forward pass, and among these the parameter of which `out` is the gradient.
bool Translator::AddBiasGrad(const std::string& gradient, int axis, const std::string& out,
                             bool must_be_added) {
  const auto param = param_of_part_.find(out);
  const Operand rows = OperandOf(gradient);
  const TensorMeta& to = MetaOf(out);
  absl::optional<std::string> x = Like(rows.meta), bias = Like(to), grad = rows.var;
  bool is_found = false;
  for (const BiasSum& sum : bias_sums_) {
    const bool is_plain = sum.sizes == MetaOf(gradient).sizes;
    if (sum.axis != axis || sum.bias_sizes != to.sizes ||
        (!is_plain && sum.sizes != rows.meta.sizes)) {
      continue;
    }
    const bool is_preferred = param != param_of_part_.end() && param->second == sum.bias;
    if (is_found && !is_preferred) continue;
    is_found = true;
    x = sum.x;
    bias = sum.bias;
    grad = is_plain ? VarOf(gradient) : rows.var;
  }
  if (!x.has_value() || !bias.has_value() || (must_be_added && !is_found)) return false;
  Add("elementwise_add_grad", {{"Out@GRAD", {*grad}}, {"X", {*x}}, {"Y", {*bias}}},
      {{"Y@GRAD", {Output(out)}}})
      .Int("axis", axis);
  return true;
}

absl::Status Translator::AddBias(const Node& node, absl::string_view argument, const Operand& x,
                                 int axis) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor(argument));
  const std::string bias = VarOf(value);
  const std::string out = ProductOutput(node, x, /*is_temporary=*/false).var;
  Add("elementwise_add", {{"X", {x.var}}, {"Y", {bias}}}, {{"Out", {out}}}).Int("axis", axis);
  bias_sums_.push_back({x.var, bias, axis, x.meta.sizes, MetaOf(value).sizes});
  return absl::OkStatus();
}

// The Euclidean norm.
absl::Status Translator::Norm(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const double order, node.Number("ord", 2));
  if (order != 2) return node.ArgumentError("ord", "2");
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, node.Ints("dim", std::vector<int64_t>()));
  WEFT_ASSIGN_OR_RETURN(const bool keeps, node.Bool("keepdim", false));
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const std::string x = VarOf(value);
  const std::string squares = Temporary("squares", MetaOf(value));
  const std::string sum = Temporary("sum", MetaOf(node.outputs[0]));
  Add("square", {{"X", {x}}}, {{"Out", {squares}}});
  Add("reduce_sum", {{"X", {squares}}}, {{"Out", {sum}}})
      .Ints("dim", dims.empty() ? std::vector<int64_t>{0} : dims)
      .Bool("keep_dim", keeps)
      .Bool("reduce_all", dims.empty());
  Add("sqrt", {{"X", {sum}}}, {{"Out", {Output(node.outputs[0])}}});
  return absl::OkStatus();
}

// --- Gradients of sums and means over the whole batch: the gradient of the result is repeated, for
// a mean then divided by the number of elements, which is known when the step runs.

bool Translator::AreCountsOfMeans(const std::vector<const Node*>& nodes) const {
  return !nodes.empty() && std::all_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->target == "aten.div.Scalar" && !node->Symbol("other").empty();
  });
}

// `op` is that of a sum or a mean over all elements of `x`, of which the shape counts.
void Translator::AddGradOfSum(const std::string& gradient, absl::string_view op,
                              const std::string& x, const std::string& out) {
  Add(op, {{"Out@GRAD", {gradient}}, {"X", {x}}}, {{"X@GRAD", {out}}})
      .Ints("dim", {0})
      .Bool("keep_dim", false)
      .Bool("reduce_all", true);
}

// What was added up, or else a value of its shape.
absl::StatusOr<std::string> Translator::LikeReduced(const Node& node) const {
  const auto found = reduced_.find(KeyOf(MetaOf(node.outputs[0])));
  return found == reduced_.end() ? LikeOutput(node) : found->second;
}

absl::Status Translator::Expand(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const TensorMeta &from = MetaOf(value), &to = MetaOf(node.outputs[0]);
  const size_t added = to.dims.size() - std::min(from.dims.size(), to.dims.size());
  std::vector<int64_t> shape = to.dims;
  bool adds_symbol = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool stays = i >= added && from.dims[i - added] == shape[i];
    adds_symbol = adds_symbol || (shape[i] == -1 && !stays);
  }
  if (!adds_symbol) {
    WEFT_ASSIGN_OR_RETURN(NewOp op, AddUnary(node, "expand_v2"));
    op.Ints("shape", shape);
    return absl::OkStatus();
  }
  if (!Follows(value)) {  // added to zeros of that shape
    const std::string zeros = Temporary("zeros", to);
    WEFT_RETURN_IF_ERROR(FillBatch(node, 0, zeros));
    const std::string x = VarOf(value);
    Add("elementwise_add", {{"X", {zeros}}, {"Y", {x}}}, {{"Out", {Output(node.outputs[0])}}})
        .Int("axis", -1);
    bias_sums_.push_back({zeros, x, -1, to.sizes, from.sizes});
    return absl::OkStatus();
  }
  if (from.NumElements() != Size()) {
    return node.Error(
        "expected the gradient of a sum or mean of all elements, or repetition along axes of known "
        "sizes");
  }
  if (AreCountsOfMeans(readers_[node.outputs[0]])) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string x, LikeReduced(node));
  AddGradOfSum(VarOf(value), "reduce_sum_grad", x, Output(node.outputs[0]));
  return absl::OkStatus();
}

// By a symbolic number.
absl::Status Translator::DivideByCount(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  const auto count = graph_.symbols.find(node.Symbol("other"));
  const Node* const maker = makers_.Of(value);
  const bool is_count =
      count != graph_.symbols.end() && count->second == MetaOf(value).NumElements();
  if (is_count && maker != nullptr && maker->target == "aten.expand.default") {
    WEFT_ASSIGN_OR_RETURN(const std::string gradient, maker->Tensor("self"));
    if (Follows(gradient) && MetaOf(gradient).NumElements() == Size()) {
      WEFT_ASSIGN_OR_RETURN(const std::string x, LikeReduced(node));
      AddGradOfSum(VarOf(gradient), "reduce_mean_grad", x, Output(node.outputs[0]));
      return absl::OkStatus();
    }
  }
  std::string logits, label, gradient;
  if (is_count && maker != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const bool is_loss, IsBinaryLossGrad(*maker, &logits, &label, &gradient));
    if (is_loss) return AddBinaryLossGrad(node, "reduce_mean_grad", logits, label, gradient);
  }
  return node.Error(
      "expected a division by a size of the batch in the gradient of a mean of all "
      "elements alone");
}

// --- Parts of tensors

// Along an axis that there is, or a new one.
absl::Status Translator::Join(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> values, node.TensorList("tensors"));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        Axis(node, "dim", MetaOf(node.outputs[0]).dims.size(), 0));
  std::vector<std::string> vars;
  for (const std::string& value : values) vars.push_back(VarOf(value));
  const absl::string_view op = Rules().at(node.target).op;
  Add(op, {{"X", vars}}, {{op == "stack" ? "Y" : "Out", {Output(node.outputs[0])}}})
      .Int("axis", axis);
  return absl::OkStatus();
}

// Into parts of the sizes that the outputs have.
absl::Status Translator::Split(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, Axis(node, "dim", MetaOf(value).dims.size(), 0));
  const std::string x = VarOf(value);
  std::vector<int64_t> sections;
  std::vector<std::string> outputs;
  for (const std::string& output : node.outputs) {
    if (MetaOf(output).dims.size() != MetaOf(value).dims.size()) {
      return node.Error("expected parts with as many axes as the whole");
    }
    sections.push_back(MetaOf(output).dims[axis]);
    outputs.push_back(Output(output));
  }
  if (std::count(sections.begin(), sections.end(), -1) > 0) {
    return node.Error("expected parts of known sizes");
  }
  Add("split", {{"X", {x}}}, {{"Out", outputs}})
      .Int("axis", axis)
      .Int("num", 0)
      .Ints("sections", sections);
  return absl::OkStatus();
}

absl::Status Translator::Unbind(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, Axis(node, "dim", MetaOf(value).dims.size(), 0));
  const std::string x = VarOf(value);
  std::vector<std::string> outputs;
  for (const std::string& output : node.outputs) outputs.push_back(Output(output));
  Add("unstack", {{"X", {x}}}, {{"Y", outputs}})
      .Int("axis", axis)
      .Int("num", static_cast<int64_t>(outputs.size()));
  return absl::OkStatus();
}

// select.int takes one element of an axis, which goes; slice.Tensor elements that follow each
// other.
absl::StatusOr<Translator::Section> Translator::SectionOf(const Node& node, int64_t rank) const {
  constexpr int64_t kEnd = std::numeric_limits<int32_t>::max();  // of any axis
  Section section;
  WEFT_ASSIGN_OR_RETURN(section.axis, Axis(node, "dim", rank, 0));
  if (node.Has("index")) {
    WEFT_ASSIGN_OR_RETURN(section.start, node.Int("index"));
    section.end = section.start == -1 ? kEnd : section.start + 1;
    section.is_element = true;
    return section;
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t step, node.Int("step", 1));
  if (step != 1) return node.ArgumentError("step", "1");
  WEFT_ASSIGN_OR_RETURN(section.start, node.Int("start", 0));
  WEFT_ASSIGN_OR_RETURN(section.end, node.Int("end", kEnd));
  section.start = std::clamp(section.start, -kEnd, kEnd);
  section.end = std::clamp(section.end, -kEnd, kEnd);
  section.is_all = section.start == 0 && section.end == kEnd;
  return section;
}

std::string Translator::KeyOf(const Section& section, const TensorMeta& meta) {
  return absl::StrCat(section.axis, " ", section.start, " ", section.end, " ", section.is_element,
                      " ", KeyOf(meta));
}

void Translator::SetSection(const Section& section, NewOp op) {
  op.Ints("axes", {section.axis})
      .Ints("starts", {section.start})
      .Ints("ends", {section.end})
      .Ints("infer_flags", {1});
  if (section.is_element) op.Ints("decrease_axis", {section.axis});
}

absl::Status Translator::Slice(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string value, node.Tensor("self"));
  WEFT_ASSIGN_OR_RETURN(const Section section, SectionOf(node, MetaOf(value).dims.size()));
  const std::string x = VarOf(value);
  if (section.is_all) {
    vars_[node.outputs[0]] = x;
    return absl::OkStatus();
  }
  if (!Follows(value)) sections_.emplace(KeyOf(section, MetaOf(value)), x);
  SetSection(section, Add("slice", {{"Input", {x}}}, {{"Out", {Output(node.outputs[0])}}}));
  return absl::OkStatus();
}

// Zeros, with the gradient at the section.
absl::Status Translator::SliceGrad(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string gradient, Var(node, "grad_output"));
  WEFT_ASSIGN_OR_RETURN(const Section section,
                        SectionOf(node, MetaOf(node.outputs[0]).dims.size()));
  if (section.is_all) {
    vars_[node.outputs[0]] = gradient;
    return absl::OkStatus();
  }
  const auto forward = sections_.find(KeyOf(section, MetaOf(node.outputs[0])));
  std::string x;
  if (forward != sections_.end()) {
    x = forward->second;
  } else {
    WEFT_ASSIGN_OR_RETURN(x, LikeOutput(node));
  }
  SetSection(section, Add("slice_grad", {{"Input", {x}}, {"Out@GRAD", {gradient}}},
                          {{"Input@GRAD", {Output(node.outputs[0])}}}));
  return absl::OkStatus();
}

// Of rows of numbers alone: its gradient is another operator, which is not read.
absl::Status Translator::Gather(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  WEFT_ASSIGN_OR_RETURN(const std::string index, Var(node, "index"));
  if (MetaOf(node.outputs[0]).dims.size() != 1) return node.Error("expected tensors of one axis");
  Add("gather", {{"Index", {index}}, {"X", {x}}}, {{"Out", {Output(node.outputs[0])}}})
      .Int("axis", 0);
  return absl::OkStatus();
}

// --- Constants

// Of one symbolic size at most: the size of an input's first axis.
absl::Status Translator::FillShape(const Node& node) {
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  double value = node.target == "aten.ones.default" ? 1 : 0;
  if (node.target == "aten.full.default") {
    WEFT_ASSIGN_OR_RETURN(value, node.Number("fill_value"));
  }
  const std::string text = absl::StrFormat("%.17g", value);
  const auto batch = std::find(meta.dims.begin(), meta.dims.end(), -1);
  if (batch == meta.dims.end()) {
    Add("fill_constant", {}, {{"Out", {Output(node.outputs[0])}}})
        .Longs("shape", meta.dims)
        .Int("dtype", meta.dtype)
        .Float("value", value)
        .Text("str_value", text);
    return absl::OkStatus();
  }
  return FillBatch(node, value, Output(node.outputs[0]));
}

// Of the shape of output 0.
absl::Status Translator::FillBatch(const Node& node, double value, const std::string& out) {
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  const size_t axis = std::find(meta.dims.begin(), meta.dims.end(), -1) - meta.dims.begin();
  for (const Input& input : graph_.inputs) {
    const TensorMeta& like = graph_.tensors.at(input.value);
    if (like.sizes.empty() || like.sizes[0] != meta.sizes[axis] ||
        std::count(meta.dims.begin(), meta.dims.end(), -1) != 1) {
      continue;
    }
    Add("fill_constant_batch_size_like", {{"Input", {input.name}}}, {{"Out", {out}}})
        .Ints("shape", meta.dims)
        .Int("dtype", meta.dtype)
        .Float("value", value)
        .Text("str_value", absl::StrFormat("%.17g", value))
        .Int("input_dim_idx", 0)
        .Int("output_dim_idx", static_cast<int64_t>(axis));
    return absl::OkStatus();
  }
  return node.Error("expected known sizes, and at most the size of the batch besides");
}

// As the numbers themselves.
absl::Status Translator::Range(const Node& node) {
  const TensorMeta& meta = MetaOf(node.outputs[0]);
  WEFT_ASSIGN_OR_RETURN(const int64_t start, node.Int("start", 0));
  WEFT_ASSIGN_OR_RETURN(const int64_t step, node.Int("step", 1));
  constexpr int64_t kMax = 1 << 20;  // the program has them all
  if (meta.dtype != pb::VarType::INT64 || meta.dims.size() != 1 || meta.dims[0] < 0 ||
      meta.dims[0] > kMax) {
    return node.Error(absl::StrCat("expected 64-bit integers, at most ", kMax));
  }
  std::vector<int64_t> numbers(meta.dims[0]);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = start + static_cast<int64_t>(i) * step;
  Add("assign_value", {}, {{"Out", {Output(node.outputs[0])}}})
      .Ints("shape", meta.dims)
      .Int("dtype", meta.dtype)
      .Longs("int64_values", numbers);
  return absl::OkStatus();
}

absl::Status Translator::Fill(const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckOneType(node));
  double value = node.target == "aten.ones_like.default" ? 1 : 0;
  if (node.target == "aten.full_like.default") {
    WEFT_ASSIGN_OR_RETURN(value, node.Number("fill_value"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "self"));
  Add("fill_any_like", {{"X", {x}}}, {{"Out", {Output(node.outputs[0])}}}).Float("value", value);
  return absl::OkStatus();
}

}  // namespace weft::pt2
