#include "executor/run/feeder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"
#include "executor/plan/run_checks.h"
#include "ops/analysis/core/type_flow.h"

namespace weft {
namespace {

std::string DescribeFeeds(const Plan& plan) {
  std::vector<std::string> feeds;
  for (const Plan::Variable& variable : plan.variables) {
    if (!variable.is_feed) continue;
    feeds.push_back(variable.declared.has_value()
                        ? absl::StrCat(variable.name, " (", ToString(*variable.declared), ")")
                        : variable.name);
  }
  if (feeds.empty()) {
    return "the program has no data variables; is it a startup program, which runs before that?";
  }
  return absl::StrCat("data variables of the program: ", absl::StrJoin(feeds, ", "));
}

absl::Status WithName(const FeedSource& source, const absl::Status& status) {
  return source.name.empty() ? status : Annotate(source.name, status);
}

FeedLayout LayoutOf(const FeedSource& source, const Plan::Variable& variable) {
  if (!variable.is_feed) return FeedLayout::Whole();
  const auto found = source.layouts.find(variable.name);
  return found == source.layouts.end() ? FeedLayout() : found->second;
}

// The dimensions of the part of one rank of a batch of dimensions `whole`. The number of ranks must
// divide that of the axis.
Dims PartDims(const FeedLayout& layout, const Dims& whole, int nranks) {
  Dims part = whole;
  if (layout.axis.has_value() && nranks > 1) part[*layout.axis] /= nranks;
  return part;
}

// Makes `part` a copy of part `rank` of a batch along an axis.
void CopyPart(const Tensor& whole, int axis, int nranks, int rank, Tensor* part) {
  size_t outer = 1, inner = SizeOf(whole.dtype());
  for (int i = 0; i < whole.rank(); ++i) {
    if (i < axis) outer *= whole.dim(i);
    if (i > axis) inner *= whole.dim(i);
  }
  const size_t stride = inner * whole.dim(axis), bytes = stride / nranks;
  part->Resize(whole.dtype(), PartDims({axis}, whole.dims(), nranks));
  const char* const from = static_cast<const char*>(whole.raw()) + rank * bytes;
  char* const to = static_cast<char*>(part->raw());
  for (size_t i = 0; i < outer; ++i) std::memcpy(to + i * bytes, from + i * stride, bytes);
}

// "8 rows", "6 along axis 1".
std::string CountAlong(const Dims& dims, size_t axis) {
  if (axis > 0) return absl::StrCat(dims[axis], " along axis ", axis);
  return absl::StrCat(dims[0], dims[0] == 1 ? " row" : " rows");
}

// A fed variable of one rank.
struct Part {
  std::string name;
  TensorType type;
};

std::string Describe(const std::vector<Part>& parts) {
  return absl::StrJoin(parts, ", ", [](std::string* out, const Part& part) {
    absl::StrAppend(out, part.name, " ", ToString(part.type));
  });
}

// Stops at the first op that runs a block: whether and how often it does depends on values.
absl::Status CheckOps(const Program& main, const std::vector<Part>& parts) {
  TypeFlow flow(main);
  for (const Part& part : parts) {
    const VarId var = main.block(0).FindVar(part.name);
    if (var.valid()) flow.Assume(var, part.type);
  }
  absl::Status status;
  flow.Run(0, [&](const TypeFlow::Step& step) {
    if (step.op.block() != 0) return false;
    if (!step.fits) status = flow.Error(step);
    return step.fits;
  });
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; a rank is fed with ", Describe(parts)));
}

uint64_t Bytes(const TensorType& type) {
  return static_cast<uint64_t>(NumElements(type.dims)) * SizeOf(type.dtype);
}

absl::string_view NumPyName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kInt8:
      return "int8";
    case DType::kUint8:
      return "uint8";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    default:
      return "";
  }
}

// "; with NumPy: ..." for an array that NumPy brings to the declared type; else empty.
std::string HowToFit(const TensorType& found, const TensorType& declared) {
  if (found.kind != declared.kind) return "";
  std::string text;
  const absl::string_view dtype = NumPyName(declared.dtype);
  if (found.dtype != declared.dtype && !dtype.empty()) {
    absl::StrAppend(&text, ".astype(\"", dtype, "\")");
  }
  if (found.dims.size() != declared.dims.size()) {
    int64_t fixed = 1, open = 0;
    for (int64_t dim : declared.dims) {
      if (dim < 0) {
        ++open;
      } else {
        fixed *= dim;
      }
    }
    const int64_t size = NumElements(found.dims);
    const bool fits = open == 0 ? size == fixed : open == 1 && fixed > 0 && size % fixed == 0;
    if (!fits) return "";
    absl::StrAppend(&text, ".reshape(", absl::StrJoin(declared.dims, ", "), ")");
  }
  return text.empty() ? "" : absl::StrCat("; with NumPy: array", text);
}

}  // namespace

Feeder::Feeder(FeedSource source, const World& world, int64_t begin_step, int64_t end_step)
    : source_(std::move(source)),
      world_(world),
      reader_(
          world.count, begin_step, end_step,
          [this](int64_t step, std::vector<BatchReader::Part> spare) {
            return ReadParts(step, std::move(spare));
          },
          source_.when) {}

absl::StatusOr<std::unique_ptr<Feeder>> Feeder::Create(const Plan& plan, FeedSource source,
                                                       const World& world, int64_t steps,
                                                       int64_t begin_step) {
  auto feeder =
      std::unique_ptr<Feeder>(new Feeder(std::move(source), world, begin_step, begin_step + steps));
  WEFT_RETURN_IF_ERROR(WithName(feeder->source_, feeder->BindVariables(plan)));
  if (!feeder->source_.types) return feeder;
  for (int64_t i = 0; i < std::min(steps, feeder->source_.num_steps); ++i) {
    const int64_t step = begin_step + i;
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> types, feeder->source_.types(step));
    WEFT_RETURN_IF_ERROR(WithName(feeder->source_, feeder->CheckStep(step, types)));
  }
  return feeder;
}

absl::Status Feeder::BindVariables(const Plan& plan) {
  absl::flat_hash_set<int> fed;
  for (const std::string& name : source_.variables) {
    const int variable = plan.FindVariable(name);
    if (variable == Plan::kNoVariable) {
      return absl::InvalidArgumentError(
          absl::StrCat("feed ", name, ": the program has no such variable; ", DescribeFeeds(plan)));
    }
    if (!fed.insert(variable).second) {
      return absl::InvalidArgumentError(absl::StrCat("feed ", name, ": given twice"));
    }
    const Plan::Variable& declaration = plan.variables[variable];
    // A loop may change its data in place.
    const bool is_read_first = declaration.is_feed && declaration.first_reader >= 0;
    if (declaration.is_written && !is_read_first) {
      return absl::InvalidArgumentError(absl::StrCat(
          "feed ", name, ": an op of the program writes it, in every step; ", DescribeFeeds(plan)));
    }
    if (!declaration.declared.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "feed ", name, ": the program does not declare it as a tensor; ", DescribeFeeds(plan)));
    }
    variables_.push_back(variable);
    declarations_.push_back(declaration);
    layouts_.push_back(LayoutOf(source_, declaration));
  }
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    const Plan::Variable& variable = plan.variables[v];
    if (!variable.is_feed || variable.first_reader < 0 || fed.contains(static_cast<int>(v))) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("feed ", variable.name, ": missing, but ",
                                                   plan.reader_names[variable.first_reader],
                                                   " reads it; ", DescribeFeeds(plan)));
  }
  return absl::OkStatus();
}

absl::Status Feeder::Feed(int64_t step, int rank, absl::Span<Tensor* const> tensors) {
  if (variables_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(BatchReader::Part part, reader_.Take(step, rank - world_.first));
  for (size_t i = 0; i < variables_.size(); ++i) {
    Tensor* const tensor = tensors[variables_[i]];
    if (tensor->memory() == part[i].memory()) {
      std::swap(*tensor, part[i]);
    } else {
      WEFT_RETURN_IF_ERROR(tensor->CopyFrom(part[i]));
    }
  }
  reader_.GiveBack(rank - world_.first, std::move(part));
  return absl::OkStatus();
}

absl::StatusOr<absl::optional<Tensor>> Feeder::Peek(int64_t step, int rank, int variable) {
  const auto fed = std::find(variables_.begin(), variables_.end(), variable);
  if (fed == variables_.end()) return absl::FailedPreconditionError("the variable is not fed");
  return reader_.Peek(step, rank - world_.first, fed - variables_.begin());
}

int64_t Feeder::samples(absl::Span<Tensor* const> tensors) const {
  for (size_t i = 0; i < variables_.size(); ++i) {
    const Tensor& fed = *tensors[variables_[i]];
    const absl::optional<int> axis = layouts_[i].axis;
    if (axis.has_value() && fed.rank() > *axis) return fed.dim(*axis);
  }
  return 0;
}

absl::StatusOr<std::vector<BatchReader::Part>> Feeder::ReadParts(
    int64_t step, std::vector<BatchReader::Part> spare) const {
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> batch, source_.read(step));
  std::vector<TensorType> types;
  for (const Tensor& tensor : batch) {
    if (!tensor.allocated()) {
      return absl::InternalError(absl::StrCat("step ", step, ": a tensor to feed has no value"));
    }
    types.push_back({tensor.dtype(), tensor.dims()});
  }
  WEFT_RETURN_IF_ERROR(WithName(source_, CheckStep(step, types)));
  std::vector<BatchReader::Part> parts = std::move(spare);
  for (BatchReader::Part& part : parts) part.resize(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const bool is_split = layouts_[i].axis.has_value() && world_.size > 1;
    for (int local = 0; local < world_.count; ++local) {
      Tensor* const part = &parts[local][i];
      if (is_split) {
        CopyPart(batch[i], *layouts_[i].axis, world_.size, world_.first + local, part);
      } else {
        WEFT_RETURN_IF_ERROR(part->CopyFrom(batch[i]));
      }
    }
  }
  return parts;
}

absl::Status Feeder::CheckStep(int64_t step, absl::Span<const TensorType> types) const {
  if (types.size() != variables_.size()) {
    return absl::InternalError(absl::StrCat("step ", step, ": expected ", variables_.size(),
                                            " tensors to feed, found ", types.size()));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("step ", step, ": feed ", declarations_[i].name),
                                  Check(i, types[i])));
  }
  return absl::OkStatus();
}

absl::Status Feeder::Check(size_t i, const TensorType& whole) const {
  const TensorType& declared = *declarations_[i].declared;
  const FeedLayout& layout = layouts_[i];
  if (whole.dtype != declared.dtype || whole.kind != declared.kind ||
      whole.dims.size() != declared.dims.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", ToString(declared), ", found ",
                                                   ToString(whole), HowToFit(whole, declared)));
  }
  // The mean over no rows is undefined.
  if (NumElements(whole.dims) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", ToString(declared),
                                                   " of one row or more, found ", ToString(whole),
                                                   ", which has no elements"));
  }
  const bool is_split = layout.axis.has_value() && world_.size > 1;
  const auto axis = static_cast<size_t>(layout.axis.value_or(0));
  if (is_split && whole.dims.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a scalar cannot be split over ", world_.size,
        " ranks; give it whole to each (option:feed_layout ", declarations_[i].name, "=whole)"));
  }
  if (is_split && whole.dims.size() <= axis) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a dimension ", axis, " to split, found ", ToString(whole)));
  }
  const std::string count = !is_split ? "" : CountAlong(whole.dims, axis);
  if (is_split && whole.dims[axis] % world_.size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " cannot be split equally over ", world_.size,
        " ranks; leave such a last batch out (option:drop_last), or state how to split the "
        "variable (option:feed_layout)"));
  }
  const TensorType part = {whole.dtype, PartDims(layout, whole.dims, world_.size)};
  if (FitsDeclared(part.dims, declared.dims)) return absl::OkStatus();
  std::string message = absl::StrCat("expected ", ToString(declared), ", found ", ToString(part));
  if (is_split) {
    absl::StrAppend(&message, " (", count, " over ", world_.size, " ranks)");
    if (whole.dims == declared.dims) {
      absl::StrAppend(&message, "; feed the batch of all ranks together, ",
                      declared.dims[axis] * world_.size, " along axis ", axis);
    }
  }
  return absl::InvalidArgumentError(message);
}

absl::Status CheckFeeds(const Program& main, const Plan& plan, const FeedSource& source,
                        const World& world, int64_t steps, int64_t begin_step) {
  if (!source.types) return absl::OkStatus();
  const uint64_t available = AvailableMemory();
  absl::flat_hash_set<std::string> checked;
  for (int64_t i = 0; i < std::min(steps, source.num_steps); ++i) {
    const int64_t step = begin_step + i;
    WEFT_ASSIGN_OR_RETURN(const std::vector<TensorType> types, source.types(step));
    std::vector<Part> parts;
    uint64_t bytes = 0;
    for (size_t v = 0; v < types.size(); ++v) {
      const Plan::Variable& variable = plan.variables[plan.FindVariable(source.variables[v])];
      parts.push_back({variable.name, types[v]});
      parts.back().type.dims = PartDims(LayoutOf(source, variable), types[v].dims, world.size);
      // A rank has one part; others are ready, and being made of a whole batch.
      const int64_t held = world.count * std::min(steps, 1 + BatchReader::kMaxBatches);
      bytes += Bytes(types[v]) + held * Bytes(parts.back().type);
    }
    if (!checked.insert(Describe(parts)).second) continue;
    absl::Status status = CheckFitsMemory(
        "the batch, with the parts of the ranks and those read ahead,", bytes, available);
    if (status.ok()) status = CheckOps(main, parts);
    WEFT_RETURN_IF_ERROR(WithName(source, Annotate(absl::StrCat("step ", step), status)));
  }
  return absl::OkStatus();
}

}  // namespace weft
