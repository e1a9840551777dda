#include "tests/benchmarks/generated_program.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/framework.pb.h"
#include "proto/op_role.h"

namespace weft {
namespace {

using Slots = std::initializer_list<std::pair<absl::string_view, std::vector<std::string>>>;

// Collects the fields of a block.
class BlockWriter {
 public:
  using Attributes = GeneratedProgramOptions::Attributes;

  explicit BlockWriter(Attributes attributes) : attributes_(attributes) {}

  void AddVar(const std::string& name, std::initializer_list<int64_t> dims, bool parameter,
              bool persistable, bool data = false) {
    if (parameter) var_.set_is_parameter(true);
    var_.set_name(name);
    var_.mutable_type()->set_type(pb::VarType::LOD_TENSOR);
    auto* tensor = var_.mutable_type()->mutable_lod_tensor()->mutable_tensor();
    tensor->set_data_type(pb::VarType::FP32);
    for (int64_t dim : dims) tensor->add_dims(dim);
    if (!parameter) var_.mutable_type()->mutable_lod_tensor()->set_lod_level(0);
    var_.set_persistable(persistable);
    var_.set_need_check_feed(data);
    var_.set_stop_gradient(false);
    Append(var_, pb::BlockDesc::kVarsFieldNumber, &vars_);
    var_.Clear();
  }

  // The attributes that every op has, after those set before.
  void AddOp(absl::string_view type, Slots inputs, Slots outputs, int role,
             std::initializer_list<std::string> role_vars = {}) {
    op_.set_type(std::string(type));
    for (const auto& [slot, args] : inputs) Fill(slot, args, op_.add_inputs());
    for (const auto& [slot, args] : outputs) Fill(slot, args, op_.add_outputs());
    const bool all = attributes_ == Attributes::kAll;
    if (all) {
      Bool("use_mkldnn", false);
      String("op_device", "");
      String("op_namescope", "/");
    }
    Int("op_role", role);
    if (all || role_vars.size() > 0) {
      auto* vars = Attr("op_role_var", pb::STRINGS);
      for (const std::string& name : role_vars) vars->add_strings(name);
    }
    if (all) Bool("with_quant_attr", false);
    Append(op_, pb::BlockDesc::kOpsFieldNumber, &ops_);
    op_.Clear();
  }

  pb::OpDesc::Attr* Attr(absl::string_view name, pb::AttrType type) {
    auto* attr = op_.add_attrs();
    attr->set_name(std::string(name));
    attr->set_type(type);
    return attr;
  }
  void Int(absl::string_view name, int value) { Attr(name, pb::INT)->set_i(value); }
  void Float(absl::string_view name, float value) { Attr(name, pb::FLOAT)->set_f(value); }
  void Bool(absl::string_view name, bool value) { Attr(name, pb::BOOLEAN)->set_b(value); }
  void String(absl::string_view name, const std::string& value) {
    Attr(name, pb::STRING)->set_s(value);
  }

  // The program with this block.
  std::string Finish() {
    std::string block;
    {
      pb::BlockDesc head;
      head.set_idx(0);
      head.set_parent_idx(-1);
      block = head.SerializeAsString();
    }
    block.reserve(block.size() + vars_.size() + ops_.size());
    block += vars_;
    vars_ = std::string();
    block += ops_;
    ops_ = std::string();
    std::string program = Header(pb::ProgramDesc::kBlocksFieldNumber, block.size());
    program.reserve(block.size() + 64);
    program += block;
    pb::ProgramDesc tail;
    tail.mutable_version()->set_version(2006002);
    program += tail.SerializeAsString();
    return program;
  }

 private:
  static void Fill(absl::string_view slot, const std::vector<std::string>& args,
                   pb::OpDesc::Var* out) {
    out->set_parameter(std::string(slot));
    for (const std::string& arg : args) out->add_arguments(arg);
  }

  static std::string Header(int field_number, size_t size) {
    std::string header;
    google::protobuf::io::StringOutputStream stream(&header);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteVarint32(static_cast<uint32_t>(field_number << 3 | 2));
    out.WriteVarint32(static_cast<uint32_t>(size));
    out.Trim();
    return header;
  }

  template <typename M>
  static void Append(const M& message, int field_number, std::string* out) {
    *out += Header(field_number, message.ByteSizeLong());
    message.AppendToString(out);
  }

  const Attributes attributes_;
  pb::VarDesc var_;
  pb::OpDesc op_;
  std::string vars_, ops_;
};

// Names of one layer. Layer i has a parameter and a chain of activations.
struct Layer {
  explicit Layer(int64_t i)
      : prefix(absl::StrCat("encoder_layer_", i / 16, ".linear_", i)),
        param(absl::StrCat(prefix, ".w_0")) {}
  std::string Activation(int64_t j) const { return absl::StrCat(prefix, ".tmp_", j); }

  std::string prefix;
  std::string param;
};

constexpr int64_t kWidth = 64;

void AddForward(const Layer& layer, const std::string& input, int64_t ops, BlockWriter* block) {
  block->AddVar(layer.param, {kWidth, kWidth}, /*parameter=*/true, /*persistable=*/true);
  std::string x = input;
  for (int64_t j = 0; j < ops; ++j) {
    const std::string y = layer.Activation(j);
    block->AddVar(y, {-1, kWidth}, false, false);
    if (j == 0) {
      block->Bool("trans_x", false);
      block->Bool("trans_y", false);
      block->AddOp("matmul_v2", {{"X", {x}}, {"Y", {layer.param}}}, {{"Out", {y}}}, 0);
    } else if (j % 2 == 1) {
      block->Bool("use_cudnn", false);
      block->AddOp("relu", {{"X", {x}}}, {{"Out", {y}}}, 0);
    } else {
      block->Float("Scale_out", 1);
      block->Float("Scale_x", 1);
      block->Float("Scale_y", 1);
      block->Int("axis", -1);
      block->AddOp("elementwise_add", {{"X", {x}}, {"Y", {input}}}, {{"Out", {y}}}, 0);
    }
    x = y;
  }
}

void AddBackward(const Layer& layer, const std::string& input, int64_t ops, BlockWriter* block) {
  for (int64_t j = ops - 1; j >= 0; --j) {
    const std::string x = j == 0 ? input : layer.Activation(j - 1);
    const std::string y = layer.Activation(j);
    const std::string dx = x + "@GRAD", dy = y + "@GRAD";
    if (j > 0) block->AddVar(dx, {-1, kWidth}, false, false);
    if (j == 0) {
      const std::string dw = layer.param + "@GRAD";
      block->AddVar(dw, {kWidth, kWidth}, false, false);
      block->AddVar(dx, {-1, kWidth}, false, false);
      block->Bool("trans_x", false);
      block->Bool("trans_y", false);
      block->AddOp("matmul_v2_grad", {{"Out@GRAD", {dy}}, {"X", {x}}, {"Y", {layer.param}}},
                   {{"X@GRAD", {dx}}, {"Y@GRAD", {dw}}}, kRoleBackward, {layer.param, dw});
    } else if (j % 2 == 1) {
      block->Bool("use_cudnn", false);
      block->AddOp("relu_grad", {{"Out", {y}}, {"Out@GRAD", {dy}}}, {{"X@GRAD", {dx}}},
                   kRoleBackward);
    } else {
      block->Float("Scale_out", 1);
      block->Float("Scale_x", 1);
      block->Float("Scale_y", 1);
      block->Int("axis", -1);
      block->AddOp("elementwise_add_grad", {{"Out@GRAD", {dy}}, {"X", {x}}, {"Y", {input}}},
                   {{"X@GRAD", {dx}}, {"Y@GRAD", {}}}, kRoleBackward);
    }
  }
}

void AddUpdate(const Layer& layer, BlockWriter* block) {
  const std::string& p = layer.param;
  const std::string m1 = p + "_moment1_0", m2 = p + "_moment2_0";
  const std::string b1 = p + "_beta1_pow_acc_0", b2 = p + "_beta2_pow_acc_0";
  block->AddVar(m1, {kWidth, kWidth}, false, true);
  block->AddVar(m2, {kWidth, kWidth}, false, true);
  block->AddVar(b1, {1}, false, true);
  block->AddVar(b2, {1}, false, true);
  block->Float("beta1", 0.9f);
  block->Float("beta2", 0.999f);
  block->Float("epsilon", 1e-8f);
  block->Bool("lazy_mode", false);
  block->Attr("min_row_size_to_use_multithread", pb::LONG)->set_l(1000);
  block->Bool("multi_precision", false);
  block->Bool("use_global_beta_pow", false);
  block->AddOp("adam",
               {{"Beta1Pow", {b1}},
                {"Beta1Tensor", {}},
                {"Beta2Pow", {b2}},
                {"Beta2Tensor", {}},
                {"EpsilonTensor", {}},
                {"Grad", {p + "@GRAD"}},
                {"LearningRate", {"learning_rate_0"}},
                {"MasterParam", {}},
                {"Moment1", {m1}},
                {"Moment2", {m2}},
                {"Param", {p}},
                {"SkipUpdate", {}}},
               {{"Beta1PowOut", {b1}},
                {"Beta2PowOut", {b2}},
                {"MasterParamOut", {}},
                {"Moment1Out", {m1}},
                {"Moment2Out", {m2}},
                {"ParamOut", {p}}},
               kRoleOptimize, {p, p + "@GRAD"});
}

}  // namespace

std::string GenerateProgram(const GeneratedProgramOptions& options) {
  BlockWriter block(options.attributes);
  const int64_t layers = options.num_gradients;
  // Loss, its gradient's fill and the mean's gradient; the rest is split over the layers.
  const int64_t pairs = (options.num_ops - 3 - layers) / 2;
  const auto ops_of_layer = [&](int64_t i) {
    return std::max<int64_t>(1, pairs / layers + (i < pairs % layers));
  };

  block.AddVar("x", {-1, kWidth}, false, false, /*data=*/true);
  block.AddVar("learning_rate_0", {}, false, true);
  std::string activation = "x";
  for (int64_t i = 0; i < layers; ++i) {
    AddForward(Layer(i), activation, ops_of_layer(i), &block);
    activation = Layer(i).Activation(ops_of_layer(i) - 1);
  }
  block.AddVar("mean_0.tmp_0", {}, false, false);
  block.AddVar("mean_0.tmp_0@GRAD", {}, false, false);
  block.AddVar(activation + "@GRAD", {-1, kWidth}, false, false);
  block.Bool("reduce_all", true);
  block.AddOp("reduce_mean", {{"X", {activation}}}, {{"Out", {"mean_0.tmp_0"}}}, kRoleLoss);
  block.Attr("shape", pb::LONGS);
  block.Int("dtype", pb::VarType::FP32);
  block.Float("value", 1);
  block.AddOp("fill_constant", {}, {{"Out", {"mean_0.tmp_0@GRAD"}}}, kRoleBackward | kRoleLoss);
  block.Bool("reduce_all", true);
  block.AddOp("reduce_mean_grad", {{"Out@GRAD", {"mean_0.tmp_0@GRAD"}}, {"X", {activation}}},
              {{"X@GRAD", {activation + "@GRAD"}}}, kRoleBackward);
  for (int64_t i = layers; i-- > 0;) {
    const std::string input = i == 0 ? "x" : Layer(i - 1).Activation(ops_of_layer(i - 1) - 1);
    AddBackward(Layer(i), input, ops_of_layer(i), &block);
  }
  for (int64_t i = 0; i < layers; ++i) AddUpdate(Layer(i), &block);
  return block.Finish();
}

std::string GenerateStartup(const GeneratedProgramOptions& options) {
  BlockWriter block(options.attributes);
  const auto fill = [&block](const std::string& name, std::initializer_list<int64_t> dims,
                             bool is_parameter, float value) {
    block.AddVar(name, dims, is_parameter, /*persistable=*/true);
    auto* const shape = block.Attr("shape", pb::LONGS);
    for (int64_t dim : dims) shape->add_longs(dim);
    block.Int("dtype", pb::VarType::FP32);
    block.Float("value", value);
    block.AddOp("fill_constant", {}, {{"Out", {name}}}, 0);
  };
  fill("learning_rate_0", {}, false, 0.001F);
  for (int64_t i = 0; i < options.num_gradients; ++i) {
    const std::string p = Layer(i).param;
    fill(p, {kWidth, kWidth}, true, 0.01F);
    fill(p + "_moment1_0", {kWidth, kWidth}, false, 0);
    fill(p + "_moment2_0", {kWidth, kWidth}, false, 0);
    fill(p + "_beta1_pow_acc_0", {1}, false, 0.9F);
    fill(p + "_beta2_pow_acc_0", {1}, false, 0.999F);
  }
  return block.Finish();
}

}  // namespace weft
