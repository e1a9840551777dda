// A graph as ops of a ProgramDesc, node by node.
#ifndef WEFT_PROTO_FORMATS_PT2_TRANSLATOR_H_
#define WEFT_PROTO_FORMATS_PT2_TRANSLATOR_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/formats/pt2/graph.h"
#include "proto/formats/pt2/updates.h"
#include "proto/program.h"

namespace weft::pt2 {

// Slots and the variables in them.
using Slots = std::vector<std::pair<absl::string_view, std::vector<std::string>>>;

// An op while its attributes are added.
class NewOp {
 public:
  explicit NewOp(pb::OpDesc* desc) : desc_(*desc) {}
  NewOp& Int(absl::string_view name, int64_t value);
  NewOp& Long(absl::string_view name, int64_t value);
  NewOp& Float(absl::string_view name, double value);
  NewOp& Bool(absl::string_view name, bool value);
  NewOp& Text(absl::string_view name, absl::string_view value);
  NewOp& Ints(absl::string_view name, const std::vector<int64_t>& values);
  NewOp& Longs(absl::string_view name, const std::vector<int64_t>& values);
  NewOp& Texts(absl::string_view name, const std::vector<std::string>& values);

 private:
  pb::OpDesc::Attr* Add(absl::string_view name, pb::AttrType type);
  pb::OpDesc& desc_;
};

// In which of its tensors, read together, an operator is linear.
enum class Linear : uint8_t {
  kNot,
  kInAll,    // in all of them together
  kInEach,   // in each, while the others are fixed
  kInFirst,  // in argument grad_output, or self where there is none
};

// What becomes of a graph.
class Translator {
 public:
  // All must outlive it.
  Translator(const Graph& graph, const Makers& makers, const Updates& updates);

  absl::StatusOr<pb::ProgramDesc> Run();

  // By variable: a number with which a step begins, beside the weights of the archive.
  const std::map<std::string, double>& rates() const { return rates_; }
  // By op: the number of the node for which it was added; for updates and states, the count of
  // nodes.
  const std::vector<size_t>& node_of_op() const { return node_of_op_; }
  // By value: the variable that holds it; not all values are in one.
  const absl::flat_hash_map<std::string, std::string>& variables() const { return vars_; }
  // The values that variables have as they are: inputs, the loss, its gradient, and gradients of
  // parameters. Other variables may have another form of a value.
  std::vector<std::string> plain_values() const;

  // Numbers of ops that write a parameter before the last op that does.
  const absl::flat_hash_set<size_t>& unfinished() const { return unfinished_; }

  // The operators that are read ("aten.relu.default"), with the op that each becomes; empty: ops
  // that its arguments decide.
  static std::map<std::string, std::string> Operators();

  using Rule = absl::Status (Translator::*)(const Node&);

 private:
  struct OpRule {
    Rule translate;
    Linear linear = Linear::kNot;
    absl::string_view op = "";  // where several rules share a function
    size_t outputs = 1;         // kList: a list
    // The one operator that may read outputs 1 and 2: the op has them in another form.
    absl::string_view reader = "";
  };
  static constexpr size_t kList = 0;
  static const std::map<absl::string_view, OpRule>& Rules();

  // What values follow from, before any op is made.
  absl::Status Survey();
  static absl::Status CheckOutputs(const Node& node);
  absl::Status FindSeed();
  absl::Status FollowSeed();
  absl::StatusOr<bool> IsLinearInSeed(const Node& node) const;
  absl::Status FindGradients();
  // Fills param_of_part_, gradient_vars_ and completed_.
  void FindParts(const std::string& gradient, const std::string& param);
  absl::StatusOr<std::string> GradientIn(const Update& update) const;
  // Nodes that make the values, or what these follow from.
  absl::flat_hash_set<const Node*> NodesFor(std::vector<std::string> values) const;
  void FindNeeded();
  // The last op that writes a variable; null: none.
  pb::OpDesc* WriterOf(const std::string& var);
  absl::Status CheckRules() const;
  // That nothing but their reader reads outputs of another form.
  absl::Status CheckReaders() const;
  bool Follows(const std::string& value) const { return follows_.contains(makers_.Origin(value)); }

  absl::Status Declare();
  // Whether bags alone read what the node makes, which look at what it is made from.
  bool IsOfBags(const Node& node) const;
  absl::Status TranslateNode(const Node& node);
  // Names the pair of a parameter and its gradient, which the op completes.
  static void MarkPair(const std::string& param, const std::string& gradient, pb::OpDesc* op);
  void MakeNewValues();
  bool IsComputedState(const Input& input) const;
  absl::Status AddUpdates();
  absl::Status AddUpdate(const Update& update);
  absl::Status AddAverages();
  absl::Status AddMutations();
  std::string RateVariable(double rate);

  const TensorMeta& MetaOf(const std::string& value) const {
    return graph_.tensors.at(makers_.Origin(value));
  }
  // The gradient of the loss, divided by the number of ranks as Weft has written: in place.
  bool IsDividedSeed(const std::string& value) const;
  pb::VarDesc* DeclareVar(const std::string& name, const TensorMeta& meta);
  // A new variable for an output of the current node; that of the value, or one beside it.
  std::string Output(const std::string& value);
  std::string Output(const std::string& value, const TensorMeta& meta);
  std::string Temporary(absl::string_view suffix, const TensorMeta& meta);
  NewOp Add(absl::string_view type, const Slots& inputs, const Slots& outputs);
  // The variable that holds a value.
  absl::StatusOr<std::string> Var(const Node& node, absl::string_view argument);
  std::string VarOf(const std::string& value);
  // The variable whose value, transposed if `is_transposed`, is the value. Its rows may lie along
  // several axes: so layers see sequences as they are, and batches stay apart.
  struct Operand {
    std::string var;
    bool is_transposed = false;
    TensorMeta meta;
    bool has_rows = false;  // along several axes
  };
  Operand OperandOf(const std::string& value);
  absl::StatusOr<Operand> MatrixOf(const Node& node, absl::string_view argument);
  // A matrix, or a batch of these, as it stands, without rows along several axes.
  Operand Plain(const Operand& operand, const std::string& value);
  // For a product whose left operand is `like`.
  Operand ProductOutput(const Node& node, const Operand& like, bool is_temporary);
  // A variable of the forward pass with these sizes: ops for gradients read shapes of what is not
  // there. nullopt: there is none.
  absl::optional<std::string> Like(const TensorMeta& meta) const;
  absl::StatusOr<std::string> LikeOutput(const Node& node) const;  // of output 0
  absl::StatusOr<std::string> LikeTable(const Node& node) const;
  static std::string KeyOf(const TensorMeta& meta);
  // Adds an op of one input, X, that makes output 0.
  absl::StatusOr<NewOp> AddUnary(const Node& node, absl::string_view type,
                                 absl::string_view argument = "self");

  // proto/formats/pt2/aten_ops.cc
  absl::Status CheckOneType(const Node& node) const;
  absl::Status AddOrSubtract(const Node& node);
  absl::Status ReverseSubtract(const Node& node);
  absl::Status Multiply(const Node& node);
  absl::Status Divide(const Node& node);
  absl::Status Negate(const Node& node);
  absl::Status PowerOfNumber(const Node& node);
  absl::Status Power(const Node& node);
  absl::Status Binary(const Node& node);
  absl::Status Clamp(const Node& node);
  absl::Status ClampByTensors(const Node& node);
  absl::Status Lerp(const Node& node);
  absl::Status AddProduct(const Node& node);
  absl::Status Convert(const Node& node);
  absl::Status Unary(const Node& node);
  absl::Status UnaryGrad(const Node& node);
  absl::Status Activation(const Node& node);
  absl::Status ActivationGrad(const Node& node);
  absl::Status ReluGrad(const Node& node);
  // proto/formats/pt2/aten_shapes.cc
  absl::Status Transpose2d(const Node& node);
  absl::Status Transpose(const Node& node);
  absl::Status Permute(const Node& node);
  absl::Status Reshape(const Node& node);
  absl::Status Expand(const Node& node);
  absl::Status Join(const Node& node);
  absl::Status Split(const Node& node);
  absl::Status Unbind(const Node& node);
  absl::Status Slice(const Node& node);
  absl::Status SliceGrad(const Node& node);
  absl::Status Gather(const Node& node);
  absl::Status Reduce(const Node& node);
  absl::Status Norm(const Node& node);
  absl::Status Fill(const Node& node);
  absl::Status FillShape(const Node& node);
  absl::Status Range(const Node& node);
  // proto/formats/pt2/aten_layers.cc
  absl::Status MatrixProduct(const Node& node);
  absl::Status AddMatrixProduct(const Node& node);
  absl::Status Softmax(const Node& node);
  absl::Status SoftmaxGrad(const Node& node);
  absl::Status Convolution(const Node& node);
  absl::Status ConvolutionGrad(const Node& node);
  absl::Status MaxPool(const Node& node);
  absl::Status MaxPoolGrad(const Node& node);
  absl::Status AveragePool(const Node& node);
  absl::Status AveragePoolGrad(const Node& node);
  // proto/formats/pt2/aten_sequences.cc
  absl::Status Embedding(const Node& node);
  absl::Status EmbeddingGrad(const Node& node);
  absl::Status LayerNorm(const Node& node);
  absl::Status LayerNormGrad(const Node& node);
  absl::Status GroupNorm(const Node& node);
  absl::Status GroupNormGrad(const Node& node);
  absl::Status BatchNorm(const Node& node);
  absl::Status BatchNormGrad(const Node& node);
  absl::Status Attention(const Node& node);
  absl::Status AttentionGrad(const Node& node);
  absl::Status Dropout(const Node& node);
  absl::Status DropoutGrad(const Node& node);
  absl::Status EmbeddingBag(const Node& node);
  absl::Status EmbeddingBagGrad(const Node& node);
  // proto/formats/pt2/aten_masks.cc
  absl::Status Compare(const Node& node);
  absl::Status Logic(const Node& node);
  absl::Status MaskedFill(const Node& node);
  absl::Status Where(const Node& node);
  absl::Status WhereNumber(const Node& node);
  absl::Status SafeSoftmax(const Node& node);
  absl::Status ScalarTensor(const Node& node);
  // proto/formats/pt2/aten_losses.cc
  absl::Status NllLoss(const Node& node);
  absl::Status NllLossGrad(const Node& node);
  absl::Status MseLoss(const Node& node);
  absl::Status MseLossGrad(const Node& node);
  absl::Status BinaryLoss(const Node& node);
  absl::Status HuberLoss(const Node& node);
  absl::Status HuberLossGrad(const Node& node);
  // proto/formats/pt2/aten_collectives.cc
  absl::Status AllReduce(const Node& node);
  absl::Status AllGather(const Node& node);
  absl::Status ReduceScatter(const Node& node);
  absl::Status Broadcast(const Node& node);

  absl::optional<double> ConstantOf(const std::string& value) const;
  absl::StatusOr<bool> MasksWithZeros(const Node& node) const;
  std::string Not(const std::string& mask, const TensorMeta& meta);
  absl::Status AddMaskedFill(const Node& node, const std::string& x, const std::string& mask,
                             const std::string& number);
  void Cast(const std::string& x, pb::VarType::Type from, const std::string& out,
            pb::VarType::Type to);
  // The variable that holds a value, converted.
  std::string As(const std::string& value, pb::VarType::Type dtype);
  // The same; half precision becomes fp32.
  std::string InFloat(const std::string& value);
  absl::StatusOr<std::string> Promoted(const Node& node, absl::string_view argument);
  absl::Status MultiplyBy(const Node& node, const std::string& x, double factor, double bias,
                          const std::string& out);
  absl::StatusOr<std::string> Number(const Node& node, absl::string_view suffix, double value,
                                     pb::VarType::Type dtype);
  absl::StatusOr<Operand> MultiplyMatrices(const Node& node, absl::string_view x,
                                           absl::string_view y, bool is_temporary);
  const Node* ReaderOf(const std::string& value, absl::string_view target,
                       absl::string_view argument, const std::string& out) const;
  // A gradient, repeated along axes of known sizes to the shape of output 0; nullopt: it is not.
  absl::optional<std::string> Repeated(const Node& node, const std::string& gradient);
  absl::StatusOr<bool> AddPowerGrad(const Node& node, const std::string& gradient,
                                    const std::string& factor, bool divides);
  absl::StatusOr<bool> AddProductGrad(const Node& node, absl::string_view op);
  void AddGradOfSum(const std::string& gradient, absl::string_view op, const std::string& x,
                    const std::string& out);
  absl::Status FillBatch(const Node& node, double value, const std::string& out);
  absl::StatusOr<std::string> LikeReduced(const Node& node) const;
  absl::Status DivideByCount(const Node& node);
  // A part of an axis.
  struct Section {
    int64_t axis = 0, start = 0, end = 0;
    bool is_element = false;  // one, whose axis goes
    bool is_all = false;
  };
  absl::StatusOr<Section> SectionOf(const Node& node, int64_t rank) const;
  static void SetSection(const Section& section, NewOp op);
  static std::string KeyOf(const Section& section, const TensorMeta& meta);
  bool AreCountsOfMeans(const std::vector<const Node*>& nodes) const;
  absl::StatusOr<bool> IsBinaryLossGrad(const Node& node, std::string* x, std::string* label,
                                        std::string* gradient) const;
  absl::Status AddBinaryLossGrad(const Node& node, absl::string_view op, const std::string& x,
                                 const std::string& label, const std::string& gradient);
  static absl::StatusOr<double> HuberDelta(const Node& node);
  absl::Status ReduceLoss(const Node& node, int reduction, const std::string& losses);
  absl::StatusOr<std::string> GradOfLosses(const Node& node, int reduction,
                                           const std::string& losses, const TensorMeta& meta);
  absl::StatusOr<std::pair<std::string, std::string>> SquaresOf(const Node& node);
  struct AttentionTerms {
    std::string query, key, value;  // values
    bool is_causal = false;
    double factor = 1;
    TensorMeta scores;
  };
  // An output of an op that computes half precision in fp32.
  std::string FloatOutput(const Node& node, size_t i, const std::string& like);
  void FinishOutput(const Node& node, size_t i, const std::string& var);
  std::string Statistics(const Node& node, size_t i, TensorMeta meta);
  void FinishOutputs(const Node& node, const Slots& outputs);
  absl::StatusOr<Slots> NormInputs(
      const Node& node, std::vector<std::pair<absl::string_view, absl::string_view>> arguments);
  Slots NormGradOutputs(const Node& node);
  absl::StatusOr<const Node*> NormOf(const Node& node, absl::string_view argument,
                                     absl::string_view target) const;
  absl::StatusOr<AttentionTerms> TermsOf(const Node& node);
  absl::StatusOr<std::string> CausalMask(const Node& node, int64_t length);
  absl::StatusOr<bool> AddFactorGrad(const Node& node);
  absl::StatusOr<bool> AddBatchFactorGrad(const Node& node, const std::string& left,
                                          const std::string& right);
  bool IsTransposed(const std::string& x, const std::string& y) const;
  absl::Status AddBias(const Node& node, absl::string_view argument, const Operand& x, int axis);
  // `must_be_added`: only if the forward pass adds what has the shape of `out`.
  bool AddBiasGrad(const std::string& gradient, int axis, const std::string& out,
                   bool must_be_added = false);
  absl::StatusOr<absl::string_view> ConvolutionOp(const Node& node) const;
  static absl::Status SetConvolution(const Node& node, NewOp op);
  absl::Status SetPool(const Node& node, NewOp op);
  absl::Status SetAveragePool(const Node& node, NewOp op);

  const Graph& graph_;
  const Makers& makers_;
  const Updates& updates_;

  // Values that follow from the gradient of the loss, and those of them that are linear in it.
  absl::flat_hash_set<std::string> follows_, linear_;
  const Node* seed_ = nullptr;  // makes the gradient of the loss
  std::string loss_;            // a value
  // By value: the parameter whose gradient it is.
  absl::flat_hash_map<std::string, std::string> param_of_gradient_;
  // By value: the same, and of values that are reduced or scaled to a gradient.
  absl::flat_hash_map<std::string, std::string> param_of_part_;
  // By parameter whose gradient is reduced in place: the variable; empty: not declared yet.
  absl::flat_hash_map<std::string, std::string> gradient_vars_;
  // By value: the parameter whose gradient, of a rank, is complete with it.
  absl::flat_hash_map<std::string, std::string> completed_;
  absl::flat_hash_set<const Node*> needed_, needed_before_updates_;
  // Values that follow the update of a parameter, with its name; and the nodes that make them.
  absl::flat_hash_map<std::string, std::string> averaged_;
  absl::flat_hash_set<const Node*> averaging_;
  // By parameter that averages follow: the number of the last op so far that writes it.
  absl::flat_hash_map<std::string, size_t> writer_of_averaged_;
  absl::flat_hash_set<size_t> unfinished_;
  // By value: the needed nodes that read it, under any name.
  absl::flat_hash_map<std::string, std::vector<const Node*>> readers_;

  pb::ProgramDesc desc_;
  std::vector<size_t> node_of_op_;
  const Node* node_ = nullptr;  // that is translated
  int role_ = 0;
  absl::flat_hash_set<std::string> names_;              // of variables
  absl::flat_hash_map<std::string, std::string> vars_;  // by value
  absl::flat_hash_map<std::string, std::string> like_;  // by KeyOf
  // By value and element type: what As has made.
  std::map<std::pair<std::string, pb::VarType::Type>, std::string> converted_;
  // By value and KeyOf a shape: the variable that Reshape has made.
  std::map<std::pair<std::string, std::string>, std::string> reshaped_;
  // Buffers whose new value an op has written.
  absl::flat_hash_set<std::string> written_;
  // What makes VarOf fail: a value that no op has made.
  absl::Status lost_;
  // By value of a matrix: the variable that has its rows along several axes.
  absl::flat_hash_map<std::string, Operand> rows_;
  // By value of a transposed matrix: what it is the transposed of.
  absl::flat_hash_map<std::string, std::string> transposed_;
  // By prediction and target: the difference and its square.
  std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>> squares_;
  // Products of the forward pass.
  struct Product {
    Operand x, y;
    std::vector<Size> sizes;
    std::string of_x, of_y;  // values
  };
  std::vector<Product> products_;
  // By output 1 of an embedding bag.
  struct Bag {
    std::string ids, rows;  // variables: indices, and what is looked up
    TensorMeta meta;        // of the rows
    std::string reduction;
  };
  absl::flat_hash_map<std::string, Bag> bags_;
  // What layers add: x + bias, the bias along an axis.
  struct BiasSum {
    std::string x, bias;  // variables
    int axis;
    std::vector<Size> sizes, bias_sizes;
  };
  std::vector<BiasSum> bias_sums_;
  // By KeyOf: of what the forward pass takes a section.
  absl::flat_hash_map<std::string, std::string> sections_;
  // By KeyOf: what a sum or mean over all elements reads in the forward pass.
  absl::flat_hash_map<std::string, std::string> reduced_;
  // By value: the gradient whose sum over all axes but the last it is; the axes stay with size 1.
  absl::flat_hash_map<std::string, std::string> row_sums_;
  // By output 1 of an attention: its probabilities.
  absl::flat_hash_map<std::string, std::string> probabilities_;
  std::map<int64_t, std::string> causal_masks_;  // by length of the sequence
  // By prediction and target: what a loss keeps for its gradient.
  std::map<std::pair<std::string, std::string>, std::string> residuals_;
  std::map<std::string, double> rates_;
  std::map<double, std::string> rate_variables_;
};

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_TRANSLATOR_H_
