// The rules of op types along the batch, by subject. The record of an op says which one it has
// (OpSchema::Batch).
#ifndef WEFT_OPS_SCHEMA_BATCH_RULE_FUNCTIONS_H_
#define WEFT_OPS_SCHEMA_BATCH_RULE_FUNCTIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "ops/schema/batch_context.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/op_columns.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace batch {

using BatchRun = std::function<void(BatchContext&)>;

// Of an op without a rule whose traits do not say what it does to the batch. Reasons that several
// ops have follow.
inline BatchRule Unrelated(absl::string_view why) {
  BatchRule rule;
  rule.why_none = why;
  return rule;
}
inline constexpr char kNoBatch[] = "of attributes, or of inputs that are equal on all ranks";
inline constexpr char kWholeResult[] =
    "one result over all samples, which the results over parts do not give";
inline constexpr char kUnknownSize[] = "how many elements the result has depends on values";
inline constexpr char kOfOthers[] = "what another rank or a server sends is not known";
inline constexpr char kOfParameters[] =
    "of parameters and their updates, whose inputs are equal on all ranks";
inline constexpr char kRowsOfGradient[] = "rows of a gradient are not along the batch";
inline constexpr char kSparsifies[] = "what a rank sends of its gradient depends on values";
inline constexpr char kNotNeeded[] = "could have a rule; no program has needed it";

// --- Elements: row_batch_rules.cc ----------------------------------------------------------------

// All outputs have the shape that the inputs are broadcast to.
void Elementwise(BatchContext& context);
void Sum(BatchContext& context);

// --- Rows, and other dimensions of which each is computed alone: row_batch_rules.cc --------------

// Every output has the shares of the slots `data`, which are sharded along dimension 0; all other
// inputs are the same for each sample.
BatchRun Rows(std::vector<absl::string_view> data);

// The same for the first two dimensions: both are of planes, each of which is computed alone.
BatchRun Planes(std::vector<absl::string_view> data);

// Works along the axis of attribute `attr`, for each place of the other dimensions alone. With
// attribute `flatten`, it works along all. `keep`: the attribute that says whether outputs have
// that dimension; nullptr: they do.
BatchRun Along(absl::string_view slot, const char* attr, const char* flatten = nullptr,
               const char* keep = nullptr);

// Works along the last dimensions, so many.
BatchRun NotLast(absl::string_view slot, int num_dims = 1);

// Cuts X along its first or last axis, in overlapping parts along a new one.
void Frame(BatchContext& context);

// Takes the input apart along the axis, into outputs without that dimension.
BatchRun Apart(absl::string_view slot);

// The axes of a list attribute are not the batch; the shape stays the same.
BatchRun NotAlong(absl::string_view slot, const char* attr);

// Slices of X along an axis, each computed alone.
BatchRun SlicesAlong(const char* attr);

enum class Reduces : uint8_t { kMean, kSum, kMax, kMin, kProd, kOther };

BatchRun Reduced(Reduces what, const char* dims_attr = "dim", const char* all_attr = "reduce_all",
                 const char* keep_attr = "keep_dim");

// Of all elements, to one.
BatchRun Whole(BatchRelation of_shards);

// Whether a value fits a tensor that is sharded along the dimension which has, itself included,
// `behind` dimensions from there to the right: it is sharded there, too, or it is repeated there.
bool IsRepeatedOrShared(BatchRelation value, const Dims& dims, int behind);

// --- Indices: index_batch_rules.cc ---------------------------------------------------------------

// Each element of `ids` picks a row of a table that is replicated.
BatchRun Lookup(absl::string_view ids);

// Paddle's Out keeps the dimensions of X, X picks by Index along `attr`.
BatchRun Gather(const char* attr);
void GatherNd(BatchContext& context);

// All tensors have the batch, and the op picks or writes along another axis.
void TakeAlong(BatchContext& context);
void PutAlong(BatchContext& context);

// Parts of X along the axis of an attribute, or else the first, are written or added to. The batch
// is another axis, of X and of the parts.
BatchRun Scatter(absl::string_view ids, absl::string_view parts, const char* attr);
void ScatterNdAdd(BatchContext& context);
void IndexPut(BatchContext& context);

// --- Shapes and sizes: shape_batch_rules.cc ------------------------------------------------------

void Reshape(BatchContext& context);
void Transpose(BatchContext& context);
// `adds`: a new dimension, at the axis.
BatchRun Joined(bool adds);
// Lists of numbers X, one of which is the size of the batch, joined to a list of sizes. False, and
// nothing set, for other inputs.
bool JoinSizes(BatchContext& context);
void Slice(BatchContext& context);
void SetValue(BatchContext& context);
void Expand(BatchContext& context);
void ExpandAs(BatchContext& context);
void Unsqueeze(BatchContext& context);
void Squeeze(BatchContext& context);
void FlattenRange(BatchContext& context);
void Pad(BatchContext& context);
// The dimension of the batch stays whole.
void Crop(BatchContext& context);
void ArrayToTensor(BatchContext& context);
// Dimensions are repeated as often as the attribute says, the batch once.
BatchRun Repeat(const char* attr);
void BatchSizeLike(BatchContext& context);
void Like(BatchContext& context);
void ShapeOf(BatchContext& context);
void ElementCount(BatchContext& context);
void FillConstant(BatchContext& context);

// --- Matrices: matrix_batch_rules.cc -------------------------------------------------------------

// Attributes that transpose; nullptr: there is none.
BatchRun MatMul(const char* transpose_x, const char* transpose_y);
void MatVec(BatchContext& context);
void Dot(BatchContext& context);
void Mul(BatchContext& context);
void AddMatMul(BatchContext& context);
void Einsum(BatchContext& context);
void MultiDot(BatchContext& context);
void Kron(BatchContext& context);
void Cross(BatchContext& context);
void Diagonal(BatchContext& context);
void DiagEmbed(BatchContext& context);
// A square matrix, or several, and right sides. `may_be_vectors`: right sides may have one
// dimension less.
BatchRun Solve(const char* matrix_slot, const char* right_slot, bool may_be_vectors = false);

// --- Layers, losses, draws, updates, arrays, branches: layer_batch_rules.cc ----------------------

void LayerNorm(BatchContext& context);
void BatchNorm(BatchContext& context);
void SyncBatchNorm(BatchContext& context);
void ChannelSums(BatchContext& context);
void Rnn(BatchContext& context);
// Without y, works along the last dimension.
void Swiglu(BatchContext& context);
void SequenceMask(BatchContext& context);
void SoftmaxCrossEntropy(BatchContext& context);
void SigmoidCrossEntropy(BatchContext& context);
void KlDiv(BatchContext& context);
void NllLoss(BatchContext& context);
void Ctc(BatchContext& context);
void Accuracy(BatchContext& context);

void Dropout(BatchContext& context);
// Draws a value of the shape that `shape` finds. Without a seed, it differs from that of one
// device, whatever inputs are.
BatchRun Draw(BatchRun shape);
// Draws by the values of its inputs, as `rule` says.
BatchRun DrawBy(BatchRun rule);
// The places of its windows are drawn, unless an attribute gives them.
void FractionalPool(BatchContext& context);
void RandomizedRelu(BatchContext& context);
void Seed(BatchContext& context);

void LinearUpdate(BatchContext& context);
// Of gradients that all ranks have, or of which each has a part.
void Unscale(BatchContext& context);
void UpdateLossScale(BatchContext& context);

void First(BatchContext& context);
void ReadFromArray(BatchContext& context);
void Length(BatchContext& context);
void Selected(BatchContext& context);

}  // namespace batch
}  // namespace weft

#endif  // WEFT_OPS_SCHEMA_BATCH_RULE_FUNCTIONS_H_
