#include "ops/analysis/devices/op_times.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/types/optional.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

// The dense type of a variable, unknown dimensions replaced; none if it has none.
absl::optional<TensorType> TypeOf(const Op& op, Symbol name, int64_t batch) {
  const VarId id = op.program().block(op.block()).Resolve(name);
  if (!id.valid()) return absl::nullopt;
  absl::optional<TensorType> type = DeclaredType(op.program().var(id));
  if (!type.has_value() || type->kind != TensorType::Kind::kDense) return absl::nullopt;
  for (int64_t& dim : type->dims) dim = dim < 0 ? batch : dim;
  return type;
}

double ElementsOf(const TensorType& type) {
  double elements = 1;
  for (int64_t dim : type.dims) elements *= static_cast<double>(dim);
  return elements;
}

absl::optional<TensorType> FirstOf(const Op& op, std::initializer_list<absl::string_view> slots,
                                   int64_t batch) {
  for (absl::string_view slot : slots) {
    for (absl::Span<const Symbol> args : {op.Input(slot), op.Output(slot)}) {
      if (!args.empty()) return TypeOf(op, args[0], batch);
    }
  }
  return absl::nullopt;
}

WorkKind WorkOf(const Op& op) {
  const OpSchema* schema = FindOpSchema(op.type());
  return schema == nullptr ? WorkKind::kElements : schema->work();
}

// [.., M, K] times [.., K, N] is [.., M, N]: the square root of the product of the three sizes is M
// K N, times the square root of the cube of the number of matrices.
double ProductMultiplications(const Op& op, int64_t batch) {
  const auto x = FirstOf(op, {"X"}, batch);
  const auto y = FirstOf(op, {"Y", "Vec"}, batch);
  const auto out = FirstOf(op, {"Out", "Out@GRAD"}, batch);
  if (!x.has_value() || !y.has_value() || !out.has_value()) return 0;
  double matrices = 1;
  for (size_t i = 0; y->dims.size() > 2 && i + 2 < out->dims.size(); ++i) {
    matrices *= static_cast<double>(out->dims[i]);
  }
  return std::sqrt(ElementsOf(*x) * ElementsOf(*y) * ElementsOf(*out) / std::max(1.0, matrices));
}

// Each element of the output, or of the input of a transposed one, meets the filters of its
// channel.
double ConvolutionMultiplications(const Op& op, int64_t batch) {
  const auto filter = FirstOf(op, {"Filter"}, batch);
  const bool is_transposed = WorkOf(op) == WorkKind::kTransposedConvolution;
  const auto image =
      is_transposed ? FirstOf(op, {"Input"}, batch) : FirstOf(op, {"Output", "Output@GRAD"}, batch);
  if (!filter.has_value() || !image.has_value() || filter->dims.empty()) return 0;
  return ElementsOf(*image) * ElementsOf(*filter) /
         std::max<double>(1, static_cast<double>(filter->dims[0]));
}

double BytesOf(const Op& op, int64_t batch) {
  double bytes = 0;
  for (Symbol name : op.args()) {
    const auto type = TypeOf(op, name, batch);
    if (type.has_value()) bytes += ElementsOf(*type) * static_cast<double>(SizeOf(type->dtype));
  }
  return bytes;
}

double TimeOf(const Op& op, const OpTimeOptions& options) {
  return std::max(FlopsOf(op, options.batch) / options.flops_per_second,
                  BytesOf(op, options.batch) / options.bytes_per_second);
}

}  // namespace

double FlopsOf(const Op& op, int64_t batch) {
  const double products = absl::EndsWith(op.type(), "_grad") ? 2 : 1;
  switch (WorkOf(op)) {
    case WorkKind::kElements:
      return 0;
    case WorkKind::kProduct:
      return 2 * products * ProductMultiplications(op, batch);
    case WorkKind::kConvolution:
    case WorkKind::kTransposedConvolution:
      return 2 * products * ConvolutionMultiplications(op, batch);
  }
  return 0;
}

std::vector<double> EstimateOpTimes(const Program& program, const OpTimeOptions& options) {
  std::vector<double> of_block(program.num_blocks(), 0);
  // Blocks come after those that they are nested in.
  std::vector<double> times;
  for (int block = program.num_blocks() - 1; block >= 0; --block) {
    times.clear();
    for (OpId id : program.block(block).ops()) {
      const Op op = program.op(id);
      double seconds = TimeOf(op, options);
      for (int sub : op.SubBlocks()) {
        if (sub > block) seconds += of_block[sub];
      }
      times.push_back(seconds);
      of_block[block] += seconds;
    }
  }
  return times;
}

}  // namespace weft
