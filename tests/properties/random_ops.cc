#include "tests/properties/random_ops.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace weft::testing {
namespace {

// "X:f" is an argument of slot X, "X:f*2" are two; "axis=0|1" is one of two values.
struct Row {
  const char* type;
  const char* inputs;
  const char* attrs = "";
  int outputs = 1;
  bool is_state = false;
};

constexpr char kDims[] = "dim=[0]|[1]|[-1]|[0,1] keep_dim=t|f reduce_all=f|f|t";
constexpr char kSlice[] =
    "axes=[0]|[1]|[0,1] starts=[0]|[1]|[0,0] ends=[2]|[2147483647]|[1]|[2147483647,1]";
constexpr char kShapes[] =
    "shape=[-1,4]|[-1,2]|[-1]|[0,-1]|[1,-1]|[-1,1]|[-1,2,2]|[2,-1]|[0,0,-1]|[3,-1]|[-1,8]|"
    "[-1,1,2,2]|[4,-1]|[0,2,2]|[-1,3]|[1]";

constexpr Row kRows[] = {
    // Elementwise.
    {"elementwise_add", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_sub", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_mul", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_mul", "X:f Y:p", "axis=-1|0|1"},
    {"elementwise_div", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_max", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_min", "X:f Y:f", "axis=-1|0|1"},
    {"elementwise_add", "X:i Y:i", "axis=-1|0"},
    {"elementwise_mul", "X:i Y:i", "axis=-1|0"},
    {"elementwise_div", "X:i Y:s", "axis=-1|0"},
    {"elementwise_floordiv", "X:i Y:s", "axis=-1|0"},
    {"elementwise_mod", "X:i Y:s", "axis=-1|0"},
    {"minus", "X:f Y:f"},
    {"lerp", "X:f Y:f Weight:f"},
    {"atan2", "X1:f X2:f"},
    {"swiglu", "x:f y:f"},
    {"swiglu", "x:f"},
    {"where", "Condition:b X:f Y:f"},
    {"less_than", "X:f Y:f", "axis=-1|0"},
    {"greater_equal", "X:f Y:f", "axis=-1|0"},
    {"equal", "X:i Y:i", "axis=-1|0"},
    {"logical_and", "X:b Y:b"},
    {"logical_not", "X:b"},
    {"relu", "X:f"},
    {"tanh", "X:f"},
    {"sigmoid", "X:f"},
    {"square", "X:f"},
    {"sqrt", "X:f"},
    {"exp", "X:f"},
    {"abs", "X:f"},
    {"sign", "X:f"},
    {"floor", "X:f"},
    {"leaky_relu", "X:f"},
    {"softplus", "X:f"},
    {"pow", "X:f", "factor=2.0|3.0"},
    {"clip", "X:f", "min=-0.5|0.0 max=0.5|1.0"},
    {"clip_by_norm", "X:f", "max_norm=0.5"},
    {"scale", "X:f", "scale=2.0|0.5|0.333333333 bias=0.0|0.0|1.0 bias_after_scale=t|f"},
    {"scale", "X:i", "scale=2.0|0.5 bias=0.0|1.0"},
    {"increment", "X:c", "step=1.0"},
    {"cast", "X:f", "in_dtype=6 out_dtype=3|0|6"},
    {"cast", "X:i", "in_dtype=3 out_dtype=6|0"},
    {"cast", "X:i", "in_dtype=2 out_dtype=6|3"},
    {"cast", "X:b", "in_dtype=0 out_dtype=6|3"},
    {"assign", "X:f"},
    {"assign", "X:i"},
    {"sum", "X:f*2"},
    {"sum", "X:f*3"},
    {"label_smooth", "X:f", "epsilon=0.1"},
    // Reductions.
    {"mean", "X:f"},
    {"mean", "X:i"},
    {"reduce_mean", "X:f", kDims},
    {"reduce_sum", "X:f", kDims},
    {"reduce_max", "X:f", kDims},
    {"reduce_min", "X:f", kDims},
    {"reduce_prod", "X:f", kDims},
    {"reduce_sum", "X:i", kDims},
    {"reduce_mean", "X:i", kDims},
    {"reduce_all", "X:b", kDims},
    {"reduce_any", "X:b", kDims},
    {"logsumexp", "X:f", "axis=[0]|[1]|[-1] keepdim=t|f reduce_all=f|f|t"},
    {"p_norm", "X:f", "axis=0|1|-1 keepdim=t|f asvector=f|f|t"},
    {"norm", "X:f", "axis=0|1|-1"},
    {"frobenius_norm", "X:f", "dim=[0]|[1]|[0,1] keep_dim=t|f"},
    {"squared_l2_norm", "X:f"},
    {"l1_norm", "X:f"},
    {"dot", "X:f Y:f"},
    {"dist", "X:f Y:f", "p=2.0|1.0"},
    {"trace", "Input:f", "axis1=0|1 axis2=1|2"},
    {"isfinite", "X:f"},
    {"arg_max", "X:f", "axis=0|1|-1 keepdims=t|f flatten=f|f|t"},
    {"arg_min", "X:f", "axis=0|1|-1 keepdims=t|f"},
    // Along an axis.
    {"renorm", "X:f", "axis=0|1 max_norm=0.5 p=2.0"},
    {"softmax", "X:f", "axis=-1|0|1"},
    {"log_softmax", "X:f", "axis=-1|0|1"},
    {"cumsum", "X:f", "axis=-1|0|1 flatten=f|f|t reverse=t|f exclusive=f|t"},
    {"cumprod", "X:f", "dim=0|1|-1"},
    {"logcumsumexp", "X:f", "axis=-1|0|1"},
    {"argsort", "X:f", "axis=-1|0|1 descending=t|f"},
    {"top_k", "X:f", "k=1|2"},
    {"top_k_v2", "X:f", "axis=-1|0|1 k=1|2"},
    {"flip", "X:f", "axis=[0]|[1]|[-1]"},
    {"roll", "X:f", "axis=[0]|[1] shifts=[1]"},
    {"tril_triu", "X:f", "lower=t|f"},
    {"diag_embed", "Input:f", "dim1=-2|0 dim2=-1|2"},
    // Products.
    {"mul", "X:f Y:p", "x_num_col_dims=1|2"},
    {"mul", "X:f Y:f", "x_num_col_dims=1|2"},
    {"matmul", "X:f Y:f", "transpose_X=f|t transpose_Y=f|t alpha=1.0|2.0"},
    {"matmul_v2", "X:f Y:p", "trans_x=f|t trans_y=f|t"},
    {"matmul_v2", "X:p Y:f", "trans_x=f|t trans_y=f|t"},
    {"matmul_v2", "X:f Y:f", "trans_x=f|t trans_y=f|t"},
    {"bmm", "X:f Y:f"},
    {"solve", "X:p Y:f"},
    {"cholesky_solve", "X:f Y:p", "upper=f|t"},
    {"mv", "X:f Vec:f"},
    {"addmm", "Input:f X:f Y:p"},
    {"kron", "X:f Y:p"},
    {"cross", "X:f Y:f", "dim=0|1|2"},
    {"multi_dot", "X:f*2"},
    {"diagonal", "Input:f", "axis1=0|1 axis2=1|2"},
    {"diag_embed", "Input:f", "dim1=0|-2 dim2=1|-1"},
    {"conv2d", "Input:f Filter:p"},
    {"pool2d", "X:f", "ksize=[2,2] pooling_type=avg|max"},
    // Shapes.
    {"reshape2", "X:f", kShapes},
    {"reshape", "X:f", kShapes},
    {"reshape2", "X:i", "shape=[-1]|[-1,1]|[0,-1]"},
    {"reshape2", "X:f Shape:s"},
    {"transpose2", "X:f", "axis=[1,0]|[0,2,1]|[1,0,2]|[2,0,1]|[0,1]"},
    {"transpose", "X:f", "axis=[1,0]|[0,2,1]|[1,0,2]|[2,0,1]"},
    {"unsqueeze2", "X:f", "axes=[0]|[1]|[-1]"},
    {"squeeze2", "X:f", "axes=[]|[0]|[1]|[-1]"},
    {"flatten2", "X:f", "axis=0|1|2"},
    {"flatten_contiguous_range", "X:f", "start_axis=0|1 stop_axis=1|-1|2"},
    {"concat", "X:f*2", "axis=0|1|-1"},
    {"stack", "X:f*2", "axis=0|1|-1"},
    {"split", "X:f", "axis=0|1|-1 num=2", 2},
    {"unstack", "X:f", "axis=0|1 num=2", 2},
    {"slice", "Input:f", kSlice},
    {"slice", "Input:f", "axes=[0]|[1] starts=[0]|[1] ends=[1]|[2] decrease_axis=[0]|[1]"},
    {"slice", "Input:i", "axes=[0] starts=[0]|[1] ends=[1]|[2]|[2147483647] decrease_axis=[]|[0]"},
    {"slice", "Input:f StartsTensor:i", "axes=[0]|[1] starts=[0] ends=[2147483647]"},
    {"strided_slice", "Input:f",
     "axes=[0]|[1] starts=[0]|[1]|[-1] ends=[2147483647]|[2]|[-2147483648] strides=[1]|[2]|[-1]"},
    {"crop_tensor", "X:f", "offsets=[0,0]|[0,1]|[1,0] shape=[-1,2]|[-1,-1]|[2,2]|[2,-1]"},
    {"expand_v2", "X:f", "shape=[-1,4]|[3,4]|[-1,-1,4]|[2,-1,-1]|[4]|[-1,2]|[2,4]"},
    {"expand_v2", "X:f Shape:s", "shape=[-1,-1]"},
    {"expand_as_v2", "X:f", "target_shape=[3,4]|[2,4]"},
    {"tile", "X:f", "repeat_times=[1,2]|[2,1]|[2]|[2,1,1]"},
    {"repeat_interleave", "X:f", "Repeats=2 dim=0|1"},
    {"shape", "Input:f"},
    {"shape", "Input:f"},
    {"size", "Input:f"},
    {"cast", "X:s", "in_dtype=2 out_dtype=6|3"},
    {"cast", "X:s", "in_dtype=3 out_dtype=6"},
    {"fill_zeros_like", "X:f"},
    {"fill_any_like", "X:f", "value=1.0|0.5"},
    {"fill_any_like", "X:s", "value=1.0"},
    {"reduce_sum", "X:s", kDims},
    {"fill_constant", "", "shape=[1]|[4]|[3,4] dtype=6 value=0.0|1.0|0.5"},
    {"fill_constant", "ShapeTensor:s", "dtype=6 value=0.5"},
    {"fill_constant", "ValueTensor:c", "shape=[1]|[4]|[3,4] dtype=6 value=0.0"},
    {"fill_constant", "ShapeTensor:s ValueTensor:c", "dtype=6 value=0.0"},
    {"fill_constant_batch_size_like", "Input:f",
     "shape=[-1,4]|[-1,1]|[1]|[2,3] input_dim_idx=0|1 output_dim_idx=0 value=0.5 dtype=6"},
    {"fill_constant_batch_size_like", "Input:f",
     "shape=[4,-1]|[4,1] input_dim_idx=0|1 output_dim_idx=1 value=0.5 dtype=6"},
    {"sequence_mask", "X:i", "maxlen=4|-1 out_dtype=6"},
    {"sequence_mask", "X:i MaxLenTensor:s", "maxlen=-1 out_dtype=6"},
    // Choices.
    {"gather", "X:f Index:i", "axis=0|1"},
    {"gather", "X:p Index:i", "axis=0|1"},
    {"index_select", "X:f Index:i", "dim=0|1"},
    {"gather_nd", "X:p Index:i"},
    {"gather_nd", "X:f Index:i"},
    {"index_sample", "X:f Index:i"},
    {"take_along_axis", "Input:f Index:i", "Axis=0|1"},
    {"scatter", "X:f Ids:i Updates:f", "overwrite=t|f"},
    {"scatter_nd_add", "X:f Index:i Updates:f"},
    {"index_add", "X:f Index:i AddValue:f", "axis=0|1"},
    {"index_put", "x:f indices:i value:f", "accumulate=t|f"},
    {"put_along_axis", "Input:f Index:i Value:f",
     "Axis=0|1 Reduce=assign|add|mean|amax Include_self=t|f"},
    {"set_value", "Input:f ValueTensor:f",
     "axes=[0]|[1] starts=[0]|[1] ends=[1]|[2147483647] steps=[1] decrease_axes=[]|[0]|[1]"},
    {"lookup_table_v2", "Ids:i W:p", "padding_idx=-1|1"},
    {"lookup_table_v2", "Ids:i W:f"},
    {"lookup_table", "Ids:i W:p"},
    {"one_hot_v2", "X:i", "depth=4 dtype=6 allow_out_of_range=t"},
    {"multiplex", "Ids:i X:f*2"},
    {"frame", "X:f", "axis=-1|0 frame_length=2 hop_length=1"},
    // Layers and losses.
    {"layer_norm", "X:f", "begin_norm_axis=1|2"},
    {"layer_norm", "X:f Scale:p Bias:p", "begin_norm_axis=1|2"},
    {"group_norm", "X:f", "groups=1"},
    {"instance_norm", "X:f"},
    {"batch_norm", "X:f Scale:p Bias:p Mean:m Variance:m", "is_test=f|t use_global_stats=f|f|t"},
    {"prelu", "X:f Alpha:p", "mode=all|channel"},
    {"dropout", "X:f", "dropout_prob=0.5|0.0 is_test=f|f|t"},
    {"dropout", "X:f", "dropout_prob=0.5 fix_seed=t|f seed=7|0"},
    {"softmax_with_cross_entropy", "Logits:f Label:i", "axis=-1|0 ignore_index=-100|1"},
    {"softmax_with_cross_entropy", "Logits:f Label:f", "axis=-1|0 soft_label=t"},
    {"sigmoid_cross_entropy_with_logits", "X:f Label:f", "normalize=f|t ignore_index=-100|1"},
    {"huber_loss", "X:f Y:f", "delta=0.5"},
    {"nll_loss", "X:f Label:i", "reduction=mean|sum|none ignore_index=-100|1"},
    {"nll_loss", "X:f Label:i Weight:p", "reduction=mean|sum|none"},
    {"kldiv_loss", "X:f Target:f", "reduction=mean|sum|none|batchmean"},
    {"hinge_loss", "Logits:f Labels:f"},
    {"accuracy", "Out:f Indices:i Label:i"},
    {"auc", "Predict:f Label:i StatPos:q StatNeg:q", "num_thresholds=7 slide_steps=0"},
    // Draws.
    {"uniform_random", "", "shape=[3,4]|[4] seed=0|7 dtype=6"},
    {"gaussian_random", "", "shape=[3,4]|[4] seed=0|7 dtype=6"},
    {"randint", "", "shape=[3]|[1] low=0 high=3 seed=0|7 dtype=3"},
    // States: assigned, added up, averaged.
    {"assign", "X:f", "", 1, true},
    {"assign", "X:i", "", 1, true},
    {"sum", "X:f", "", 1, true},
    {"elementwise_max", "X:f", "axis=-1", 1, true},
    {"lerp", "X:f", "", 1, true},
};

[[noreturn]] void Die(const Row& row, absl::string_view text) {
  std::cerr << row.type << ": cannot read " << text << "\n";
  std::abort();
}

template <typename T>
std::vector<T> ReadList(absl::string_view text) {
  std::vector<T> list;
  absl::ConsumePrefix(&text, "[");
  absl::ConsumeSuffix(&text, "]");
  for (absl::string_view item : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(item, &value)) std::abort();
    list.push_back(static_cast<T>(value));
  }
  return list;
}

// As a value of the type that the schema has.
struct AttrReader {
  const Row& row;
  absl::string_view text;

  AttrValue operator()(int32_t) const { return static_cast<int32_t>(Number()); }
  AttrValue operator()(int64_t) const { return static_cast<int64_t>(Number()); }
  AttrValue operator()(float) const { return static_cast<float>(Number()); }
  AttrValue operator()(double) const { return Number(); }
  AttrValue operator()(bool) const { return text == "t"; }
  AttrValue operator()(const std::string&) const { return std::string(text); }
  AttrValue operator()(const std::vector<int32_t>&) const { return ReadList<int32_t>(text); }
  AttrValue operator()(const std::vector<int64_t>&) const { return ReadList<int64_t>(text); }
  template <typename T>
  AttrValue operator()(const T&) const {
    Die(row, text);
  }
  double Number() const {
    double number = 0;
    if (!absl::SimpleAtod(text, &number)) Die(row, text);
    return number;
  }
};

RandomAttr ReadAttr(const Row& row, absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, '=');
  const AttrSchema* schema = FindOpSchema(row.type)->FindAttr(parts.first);
  if (schema == nullptr) Die(row, text);
  RandomAttr attr{std::string(parts.first), {}};
  for (absl::string_view value : absl::StrSplit(parts.second, '|')) {
    attr.values.push_back(std::visit(AttrReader{row, value}, schema->default_value));
  }
  return attr;
}

RandomSlot ReadSlot(const Row& row, absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(text, ':');
  if (FindOpSchema(row.type)->FindInput(parts.first) == nullptr) Die(row, text);
  RandomSlot slot{std::string(parts.first), static_cast<ArgumentClass>(parts.second[0]), 1};
  if (parts.second.size() > 1) slot.count = parts.second[2] - '0';
  return slot;
}

}  // namespace

absl::Span<const RandomOp> RandomOps() {
  static const auto* const ops = [] {
    auto* read = new std::vector<RandomOp>;
    for (const Row& row : kRows) {
      if (FindOpSchema(row.type) == nullptr) Die(row, "the type");
      RandomOp op{row.type, {}, {}, row.outputs, row.is_state};
      for (absl::string_view text : absl::StrSplit(row.inputs, ' ', absl::SkipEmpty())) {
        op.inputs.push_back(ReadSlot(row, text));
      }
      for (absl::string_view text : absl::StrSplit(row.attrs, ' ', absl::SkipEmpty())) {
        op.attrs.push_back(ReadAttr(row, text));
      }
      read->push_back(std::move(op));
    }
    return read;
  }();
  return *ops;
}

}  // namespace weft::testing
