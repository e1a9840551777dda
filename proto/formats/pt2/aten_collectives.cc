// Collectives of _c10d_functional, which make new values. A wait hands on its input: here, all ops
// after a collective wait for it.
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/communication_ops.h"
#include "proto/formats/pt2/translator.h"

namespace weft::pt2 {
namespace {

absl::StatusOr<Reduction> ReductionOf(const Node& node) {
  static const auto* const reductions =
      new std::map<std::string, Reduction>{{"sum", Reduction::kSum},
                                           {"avg", Reduction::kAvg},
                                           {"max", Reduction::kMax},
                                           {"min", Reduction::kMin},
                                           {"product", Reduction::kProd}};
  WEFT_ASSIGN_OR_RETURN(const std::string name, node.Text("reduce_op", ""));
  const auto found = reductions->find(name);
  if (found != reductions->end()) return found->second;
  return node.ArgumentError("reduce_op", "sum, avg, max, min or product");
}

// PyTorch numbers process groups as they are made; the first, 0, has all ranks.
absl::StatusOr<int64_t> RingOf(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, node.Text("group_name", ""));
  int64_t ring;
  if (absl::SimpleAtoi(name, &ring) && ring >= 0 && ring <= INT32_MAX) return ring;
  return node.ArgumentError("group_name", "the number of a process group, as \"0\"");
}

absl::StatusOr<int64_t> GroupSizeOf(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t size, node.Int("group_size"));
  if (size >= 1 && size <= INT32_MAX) return size;
  return node.ArgumentError("group_size", "1 or more ranks");
}

}  // namespace

// Of one tensor, or of each of a list.
absl::Status Translator::AllReduce(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t ring, RingOf(node));
  std::vector<std::string> values;
  if (node.Has("inputs")) {
    WEFT_ASSIGN_OR_RETURN(values, node.TensorList("inputs"));
  } else {
    WEFT_ASSIGN_OR_RETURN(values.emplace_back(), node.Tensor("input"));
  }
  if (values.size() != node.outputs.size()) {
    return node.Error(
        absl::StrCat("expected ", values.size(), " outputs, found ", node.outputs.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string x = VarOf(values[i]);
    Add("all_reduce", {{"x", {x}}}, {{"out", {Output(node.outputs[i])}}})
        .Int(kReduceTypeAttr, static_cast<int>(reduction))
        .Int("ring_id", ring)
        .Bool("use_calc_stream", true);
  }
  return absl::OkStatus();
}

absl::Status Translator::AllGather(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t ring, RingOf(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t size, GroupSizeOf(node));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "input"));
  Add("all_gather", {{"x", {x}}}, {{"out", {Output(node.outputs[0])}}})
      .Int("nranks", size)
      .Int("ring_id", ring)
      .Bool("use_calc_stream", true);
  return absl::OkStatus();
}

absl::Status Translator::ReduceScatter(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(node));
  if (reduction != Reduction::kSum && reduction != Reduction::kAvg) {
    return node.ArgumentError("reduce_op", "sum or avg");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t ring, RingOf(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t size, GroupSizeOf(node));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "input"));
  const std::string& value = node.outputs[0];
  const bool divides = reduction == Reduction::kAvg;
  const std::string sum = divides ? Temporary("sum", MetaOf(value)) : Output(value);
  Add("reduce_scatter", {{"x", {x}}}, {{"out", {sum}}})
      .Int("nranks", size)
      .Int("ring_id", ring)
      .Bool("use_calc_stream", true);
  if (!divides) return absl::OkStatus();
  return MultiplyBy(node, sum, 1.0 / static_cast<double>(size), 0, Output(value));
}

absl::Status Translator::Broadcast(const Node& node) {
  WEFT_ASSIGN_OR_RETURN(const int64_t ring, RingOf(node));
  WEFT_ASSIGN_OR_RETURN(const int64_t root, node.Int("src"));
  WEFT_ASSIGN_OR_RETURN(const std::string x, Var(node, "input"));
  Add("broadcast", {{"x", {x}}}, {{"out", {Output(node.outputs[0])}}})
      .Int("root", root)
      .Int("ring_id", ring)
      .Bool("use_calc_stream", true);
  return absl::OkStatus();
}

}  // namespace weft::pt2
