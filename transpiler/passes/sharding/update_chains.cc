#include "transpiler/passes/sharding/update_chains.h"

#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/op_key.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "transpiler/passes/support/op_queries.h"

namespace weft {
namespace {

class ChainFinder {
 public:
  ChainFinder(const Program& program, const GradientAnalysis& analysis)
      : program_(program), analysis_(analysis), keys_(program) {}

  UpdateChains Find() {
    for (const Gradient& gradient : analysis_.gradients) Begin(gradient);
    FindReadersOfStacks();
    FindMakers();
    for (OpId id : program_.block(0).ops()) {
      Visit(program_.op(id));
      const auto completed = completed_by_.equal_range(id);
      for (auto it = completed.first; it != completed.second; ++it) Complete(it->second);
    }
    for (const auto& [block, run_by] : run_by_) {
      for (size_t i = 0; i < chains_.size(); ++i) {
        if (chains_[i].found.block == block) Complete(i);
      }
      for (OpId id : program_.block(block).ops()) Visit(program_.op(id));
    }
    CheckOtherUses();
    CheckSearches();
    UpdateChains result;
    result.sums = sums_;
    result.lists = lists_;
    for (Building& chain : chains_) {
      const Symbol param = chain.found.tensors[UpdateChain::kParam].name;
      if (chain.why_not.empty() && !chain.updates) chain.why_not = "no optimizer updates it";
      if (chain.why_not.empty() && chain.found.block != 0 && !chain.is_reset) {
        chain.why_not = "no op after its update resets what is accumulated";
      }
      if (chain.why_not.empty()) {
        result.by_param.emplace(param, std::move(chain.found));
      } else {
        result.by_param.erase(param);
        result.why_not.emplace(param, chain.why_not);
      }
    }
    return result;
  }

 private:
  struct Building {
    UpdateChain found;
    OpId completed_by;
    int64_t elements = 0;
    bool decays = false;  // adds a function of the parameter to the gradient
    bool updates = false;
    bool is_reset = false;  // what is accumulated, after the update
    std::string why_not;
  };

  void Begin(const Gradient& gradient) {
    Building chain;
    const absl::optional<TensorType> param = DeclaredType(program_, gradient.param);
    const absl::optional<TensorType> grad = DeclaredType(program_, gradient.grad);
    if (!param.has_value() || !grad.has_value() || NumElements(param->dims) < 0) {
      chain.why_not = "its shape is unknown";
    } else if (grad->kind != TensorType::Kind::kDense) {
      chain.why_not = "its gradient is row-sparse";
    } else if (NumElements(param->dims) < 2) {
      chain.why_not = "it has one element";
    } else if (NumElements(param->dims) > std::numeric_limits<int32_t>::max()) {
      chain.why_not = "it has too many elements for attributes of ops";
    } else if (NumElements(grad->dims) != NumElements(param->dims)) {
      chain.why_not = "its gradient has another shape";
    }
    if (param.has_value()) chain.found.dims = param->dims;
    chain.elements = NumElements(chain.found.dims);
    const DType none = DType::kFloat32;
    chain.found.tensors = {{gradient.param, param.has_value() ? param->dtype : none, "Param", true},
                           {gradient.grad, grad.has_value() ? grad->dtype : none, "Grad", false}};
    const size_t index = chains_.size();
    const auto [it, is_new] = of_param_.emplace(gradient.param, index);
    if (!is_new) {
      chain.why_not = chains_[it->second].why_not = "it has several gradients";
    }
    chain.completed_by = gradient.completed_by;
    if (gradient.block == 0) {
      completed_by_.emplace(gradient.completed_by, index);
    } else {
      chain.found.block = gradient.block;
      chain.found.run_by = RunnerOf(gradient.block);
      if (!chain.found.run_by.valid() && chain.why_not.empty()) {
        chain.why_not = "no op of the root block runs the block that updates it";
      }
    }
    chains_.push_back(std::move(chain));
  }

  OpId RunnerOf(int block) {
    const auto [it, is_new] = run_by_.emplace(block, OpId());
    if (is_new) {
      for (OpId id : program_.block(0).ops()) {
        if (absl::c_linear_search(program_.op(id).SubBlocks(), block)) it->second = id;
      }
    }
    return it->second;
  }

  void Complete(size_t chain) {
    owner_.emplace(chains_[chain].found.tensors[UpdateChain::kGrad].name, chain);
  }

  void Refuse(size_t chain, std::string why) {
    if (chains_[chain].why_not.empty()) chains_[chain].why_not = std::move(why);
  }

  void Visit(const Op& op) {
    std::vector<size_t> touched;
    ForEachArgument(op, [&](Symbol arg) {
      const auto owner = owner_.find(arg);
      if (owner != owner_.end() && !absl::c_linear_search(touched, owner->second)) {
        touched.push_back(owner->second);
      }
    });
    if (!touched.empty() && AddsPartials(op)) {
      sums_.push_back({op.id(), ReaderOfStack(op)});
      is_joint_.insert(op.id());
      // A share has one sum of squares for all of its parameters.
      for (size_t chain : touched) {
        absl::StrAppend(&chains_[chain].found.signature, " sum", op.id().value());
      }
      return;
    }
    if (!touched.empty() && ScalesLists(op)) {
      lists_.push_back(op.id());
      is_joint_.insert(op.id());
      const absl::Span<const Symbol> x = op.Input("X"), out = op.Output("Out");
      for (size_t i = 0; i < x.size(); ++i) {
        const auto owner = owner_.find(x[i]);
        if (owner != owner_.end()) AppendToList(op, x[i], out[i], &chains_[owner->second]);
      }
      return;
    }
    if (!touched.empty() && Resets(op, touched)) {
      for (size_t chain : touched) chains_[chain].is_reset = true;
      is_joint_.insert(op.id());
      return;
    }
    if (touched.size() == 1) {
      const std::string problem = Append(op, &chains_[touched[0]]);
      if (problem.empty()) {
        part_of_.emplace(op.id(), touched[0]);
      } else {
        Refuse(touched[0], absl::StrCat(op.DebugName(), " ", problem));
      }
    }
    for (size_t chain : touched) {
      if (touched.size() == 1) break;
      Refuse(chain, absl::StrCat(op.DebugName(), " reads several gradients"));
    }
  }

  void FindMakers() {
    for (const Op& op : AllOps(program_)) {
      if (!op.SubBlocks().empty()) continue;
      for (Symbol out : op.output_args()) {
        const auto [it, is_new] = made_by_.emplace(out, op.id());
        if (!is_new) it->second = OpId();
      }
    }
  }

  void FindReadersOfStacks() {
    for (const Op& op : AllOps(program_)) {
      for (Symbol arg : op.input_args()) {
        const auto stack = reader_of_stack_.find(arg);
        if (stack == reader_of_stack_.end()) continue;
        ++stack->second.count;
        if (SumsAll(op)) stack->second.sum = op.id();
      }
      if (!Stacks(op.type()) || op.output_args().size() != 1) continue;
      const VarId out = program_.block(op.block()).Resolve(op.output_args()[0]);
      const bool is_kept = !out.valid() || program_.var(out).persistable();
      if (!is_kept) reader_of_stack_.emplace(op.output_args()[0], StackReaders());
    }
  }

  // Adds up all elements, and keeps no dimensions: a number takes its place.
  static bool SumsAll(const Op& op) {
    return SumsElements(op.type()) && op.input_args().size() == 1 &&
           op.BoolAttr("reduce_all").value_or(false) && !op.BoolAttr("keep_dim").value_or(false);
  }

  // The only reader of a stack, if it adds up the elements in the same block; invalid otherwise.
  OpId ReaderOfStack(const Op& op) const {
    const auto found = reader_of_stack_.find(op.output_args()[0]);
    if (found == reader_of_stack_.end() || found->second.count != 1) return OpId();
    const OpId sum = found->second.sum;
    return sum.valid() && program_.op(sum).block() == op.block() ? sum : OpId();
  }

  // Overwrites what the chains have accumulated and used, and reads nothing of chains.
  bool Resets(const Op& op, const std::vector<size_t>& touched) const {
    if (!op.SubBlocks().empty()) return false;
    const auto is_owned = [&](Symbol arg) { return owner_.count(arg) > 0; };
    const auto is_other_than_accumulated = [&](Symbol arg) {
      const auto owner = owner_.find(arg);
      return owner != owner_.end() &&
             chains_[owner->second].found.tensors[UpdateChain::kGrad].name != arg;
    };
    return absl::c_none_of(op.input_args(), is_owned) &&
           absl::c_none_of(op.output_args(), is_other_than_accumulated) &&
           absl::c_all_of(touched, [&](size_t chain) {
             return chains_[chain].found.block == op.block() && op.block() != 0 &&
                    chains_[chain].updates;
           });
  }

  // A sum of which no other input belongs to a chain, and each partial once: a share of a bucket
  // has one for all its tensors.
  bool AddsPartials(const Op& op) const {
    if (op.output_args().size() != 1) return false;
    if (op.type() != "sum" && !ReaderOfStack(op).valid()) return false;
    std::set<Symbol> partials;
    return absl::c_all_of(op.input_args(),
                          [&](Symbol in) {
                            if (owner_.count(in) == 0) return true;
                            return is_partial_.count(in) > 0 && partials.insert(in).second;
                          }) &&
           owner_.count(op.output_args()[0]) == 0;
  }

  // Of tensors of chains, and of nothing else of them.
  bool ScalesLists(const Op& op) const {
    if (!UnscalesGradients(op.type()) && !UpdatesLossScale(op.type())) return false;
    const absl::Span<const Symbol> x = op.Input("X");
    if (op.Output("Out").size() != x.size()) return false;
    if (UnscalesGradients(op.type()) && op.Output("FoundInfinite").size() != 1) return false;
    for (Symbol in : op.input_args()) {
      if (owner_.count(in) > 0 && !absl::c_linear_search(x, in)) return false;
    }
    return absl::c_all_of(x, [&](Symbol in) { return is_partial_.count(in) == 0; });
  }

  void AppendToList(const Op& op, Symbol in, Symbol out, Building* chain) {
    UpdateChain& found = chain->found;
    const auto is = [](Symbol name) {
      return [name](const UpdateChain::Tensor& tensor) { return tensor.name == name; };
    };
    const auto tensor = absl::c_find_if(found.tensors, is(in));
    if (tensor == found.tensors.end() || chain->updates) {
      if (chain->why_not.empty()) chain->why_not = absl::StrCat(op.DebugName(), " reads it");
      return;
    }
    absl::StrAppend(&found.signature, " list", op.id().value(), " t",
                    tensor - found.tensors.begin());
    if (out == in) return;
    const DType dtype = tensor->dtype;
    const bool is_new = absl::c_none_of(found.tensors, is(out));
    absl::StrAppend(&found.signature, is_new ? " new" : " t",
                    absl::c_find_if(found.tensors, is(out)) - found.tensors.begin());
    if (!is_new) return;
    found.tensors.push_back({out, dtype, "Out", false});
    owner_.emplace(out, static_cast<size_t>(chain - chains_.data()));
  }

  // Why the op is no part of a chain; empty: it is.
  std::string Append(const Op& op, Building* chain) {
    if (!chain->why_not.empty()) return chain->why_not;
    if (chain->updates) return "reads what the update leaves";
    const OpSchema* const schema = FindOpSchema(op.type());
    const bool sums_squares = SumsSquares(op.type());
    const bool needs_whole = NeedsAllElements(op.type());
    const bool is_function = schema != nullptr &&
                             (schema->Has(Trait::kElementwise) || needs_whole) &&
                             !schema->Has(Trait::kSideEffect) && op.SubBlocks().empty();
    if (!is_function && !sums_squares) return "is not known to work by element, or by tensor";
    if (op.block() != chain->found.block) return "is in another block";
    for (Symbol in : op.input_args()) TakeDecay(op, in, chain);
    // Nobody knows that padding stays zero then.
    if (sums_squares && chain->decays) return "adds up squares after weight decay";
    chain->found.needs_whole = chain->found.needs_whole || needs_whole;
    std::string& signature = chain->found.signature;
    const absl::string_view key = keys_.Of(op, {});
    absl::StrAppend(&signature, key.size(), ":", key);
    const size_t num_inputs = op.signature().inputs.size();
    for (size_t s = 0; s < num_inputs + op.signature().outputs.size(); ++s) {
      const bool is_output = s >= num_inputs;
      const OpSignature::Slot& slot =
          is_output ? op.signature().outputs[s - num_inputs] : op.signature().inputs[s];
      signature += ';';
      for (Symbol arg : op.args(slot)) {
        const std::string problem =
            AppendArg(op, arg, std::string(program_.name(slot.name)), is_output, chain);
        if (!problem.empty()) return problem;
      }
    }
    chain->found.ops.push_back(op.id());
    chain->updates = absl::c_linear_search(op.output_args(), Param(*chain));
    return "";
  }

  // The op that makes `in` of the parameter alone, for `reader`, becomes a part of the chain: it
  // may run as late as its reader. Other readers are CheckOtherUses' business.
  void TakeDecay(const Op& reader, Symbol in, Building* chain) {
    const auto found = made_by_.find(in);
    if (found == made_by_.end() || !found->second.valid() || owner_.count(in) > 0) return;
    const Op maker = program_.op(found->second);
    const auto is_param = [&](Symbol arg) { return arg == Param(*chain); };
    if (maker.block() != reader.block() || maker.position() > reader.position() ||
        maker.output_args().size() != 1 || maker.input_args().empty() ||
        !absl::c_all_of(maker.input_args(), is_param) || SumsSquares(maker.type())) {
      return;
    }
    if (!Append(maker, chain).empty()) return;
    part_of_.emplace(maker.id(), static_cast<size_t>(chain - chains_.data()));
    chain->decays = true;
  }

  static Symbol Param(const Building& chain) {
    return chain.found.tensors[UpdateChain::kParam].name;
  }

  std::string AppendArg(const Op& op, Symbol arg, const std::string& slot, bool is_output,
                        Building* chain) {
    UpdateChain& found = chain->found;
    std::string& signature = found.signature;
    if (program_.name(arg) == kEmptyVarName) {
      signature += " -";
      return "";
    }
    for (size_t i = 0; i < found.tensors.size(); ++i) {
      if (found.tensors[i].name != arg) continue;
      absl::StrAppend(&signature, " t", i);
      return "";
    }
    for (size_t i = 0; i < found.partials.size(); ++i) {
      if (found.partials[i] != arg) continue;
      absl::StrAppend(&signature, " n", i);
      return "";
    }
    for (size_t i = 0; i < found.scalars.size(); ++i) {
      if (found.scalars[i] != arg) continue;
      absl::StrAppend(&signature, " s", i);
      return "";
    }
    const absl::optional<TensorType> type = DeclaredType(program_, arg, op.block());
    if (!type.has_value() || type->kind != TensorType::Kind::kDense) {
      return absl::StrCat("takes ", program_.name(arg), ", whose elements are unknown");
    }
    const int64_t elements = NumElements(type->dims);
    const bool persists = program_.var(program_.block(op.block()).Resolve(arg)).persistable();
    const bool is_read = absl::c_linear_search(op.input_args(), arg);
    const bool is_written = absl::c_linear_search(op.output_args(), arg);
    if (elements == chain->elements && (persists ? is_read : is_output && !is_read)) {
      absl::StrAppend(&signature, " t", found.tensors.size(), ":", DTypeName(type->dtype),
                      persists);
      found.tensors.push_back({arg, type->dtype, slot, persists});
      owner_.emplace(arg, static_cast<size_t>(chain - chains_.data()));
      return "";
    }
    const bool casts_partial = op.type() == "cast" && is_partial_.count(op.input_args()[0]) > 0;
    if ((SumsSquares(op.type()) || casts_partial) && is_output && elements == 1 && !persists &&
        !is_read) {
      absl::StrAppend(&signature, " n", found.partials.size());
      found.partials.push_back(arg);
      owner_.emplace(arg, static_cast<size_t>(chain - chains_.data()));
      is_partial_.insert(arg);
      return "";
    }
    if (elements == 1 && persists && is_read && is_written) {
      absl::StrAppend(&signature, " s", found.scalars.size());
      found.scalars.push_back(arg);
      owner_.emplace(arg, static_cast<size_t>(chain - chains_.data()));
      return "";
    }
    if (elements == 1 && !is_output && !is_written) {
      absl::StrAppend(&signature, " ", program_.name(arg));
      return "";
    }
    return absl::StrCat("takes ", program_.name(arg), ", which has other elements");
  }

  // States that other ops use, too, and parameters that are written otherwise, or read after the
  // update.
  void CheckOtherUses() {
    Updated updated;
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const int block = BlockOfChains(op);
      if (block == 0) {
        CheckUses(op, &updated);
        continue;
      }
      // What it lists beside is of chains of the block.
      for (Symbol arg : op.args()) {
        const auto owner = owner_.find(arg);
        const auto param = of_param_.find(arg);
        const auto check = [&](size_t chain) {
          if (chains_[chain].found.block == block) return;
          Refuse(chain, absl::StrCat(op.DebugName(), " uses ", program_.name(arg), ", too"));
        };
        if (owner != owner_.end()) check(owner->second);
        if (param != of_param_.end()) check(param->second);
      }
      for (OpId inner : program_.block(block).ops()) CheckUses(program_.op(inner), &updated);
    }
  }

  using Updated = std::map<Symbol, size_t>;  // parameters, by now

  // The block that the op runs, if it has chains; 0: none.
  int BlockOfChains(const Op& op) const {
    for (int block : op.SubBlocks()) {
      if (run_by_.count(block) > 0) return block;
    }
    return 0;
  }

  void CheckUses(const Op& op, Updated* updated) {
    if (is_joint_.count(op.id()) > 0) return;
    const auto part = part_of_.find(op.id());
    const bool is_part = part != part_of_.end();
    ForEachArgument(op, [&](Symbol arg) {
      const auto owner = owner_.find(arg);
      const bool is_foreign = owner != owner_.end() && (!is_part || part->second != owner->second);
      if (is_foreign && !IsAnotherValue(op, owner->second, arg)) {
        Refuse(owner->second, absl::StrCat(op.DebugName(), " uses ", program_.name(arg), ", too"));
      }
      const auto done = updated->find(arg);
      if (done != updated->end()) {
        Refuse(done->second, absl::StrCat(op.DebugName(), " uses it after its update"));
      }
      const auto param = of_param_.find(arg);
      if (param == of_param_.end() || (is_part && part->second == param->second)) return;
      // Parameters are gathered for the root block.
      if (op.block() != 0 && chains_[param->second].found.block == op.block()) {
        Refuse(param->second, absl::StrCat(op.DebugName(), " uses it, too"));
      }
    });
    for (Symbol arg : op.output_args()) {
      const auto param = of_param_.find(arg);
      if (param == of_param_.end()) continue;
      if (is_part && part->second == param->second) {
        updated->emplace(arg, param->second);
      } else {
        Refuse(param->second, absl::StrCat(op.DebugName(), " writes it"));
      }
    }
  }

  // Where an element is not finite, what a search leaves depends on all gradients, until an update
  // of the loss scale makes them zero.
  void CheckSearches() {
    for (OpId id : lists_) {
      const Op op = program_.op(id);
      if (!UnscalesGradients(op.type())) continue;
      std::set<Symbol> made_zero;
      for (OpId other : lists_) {
        const Op update = program_.op(other);
        if (!UpdatesLossScale(update.type()) ||
            update.Input("FoundInfinite") != op.Output("FoundInfinite")) {
          continue;
        }
        made_zero.insert(update.Input("X").begin(), update.Input("X").end());
      }
      for (Symbol out : op.Output("Out")) {
        const auto owner = owner_.find(out);
        if (owner == owner_.end() || made_zero.count(out) > 0) continue;
        Refuse(owner->second,
               absl::StrCat(op.DebugName(), " changes it if another gradient is not finite"));
      }
    }
  }

  // What the op uses under the name is not what the chain has there: it is a backward op that makes
  // the gradient, or an op of the step before the block of the chain, which first overwrites it.
  bool IsAnotherValue(const Op& op, size_t index, Symbol arg) const {
    const Building& chain = chains_[index];
    // Of a chain that is refused, ops may be missing.
    if (op.block() != 0 || !chain.why_not.empty()) return false;
    if (chain.found.tensors[UpdateChain::kGrad].name == arg) {
      return op.position() <= program_.op(chain.completed_by).position();
    }
    if (chain.found.block == 0 || absl::c_linear_search(chain.found.scalars, arg)) return false;
    const auto is_state = [arg](const UpdateChain::Tensor& tensor) {
      return tensor.name == arg && tensor.is_state;
    };
    return absl::c_none_of(chain.found.tensors, is_state) &&
           op.position() < program_.op(chain.found.run_by).position();
  }

  const Program& program_;
  const GradientAnalysis& analysis_;
  OpKeyBuilder keys_;
  std::vector<Building> chains_;
  std::map<Symbol, size_t> of_param_;
  std::multimap<OpId, size_t> completed_by_;  // of the root block
  std::map<int, OpId> run_by_;                // by block of chains other than the root block
  std::map<Symbol, size_t> owner_;            // of gradients, states and temporaries
  std::map<OpId, size_t> part_of_;
  // The only op that writes it; invalid: there are several.
  absl::flat_hash_map<Symbol, OpId> made_by_;
  std::set<Symbol> is_partial_;
  struct StackReaders {
    int count = 0;
    OpId sum = {};  // one of them, which adds up all elements
  };
  std::map<Symbol, StackReaders> reader_of_stack_;  // by output
  std::vector<UpdateChains::PartialSum> sums_;
  std::vector<OpId> lists_;
  std::set<OpId> is_joint_;  // of several chains: sums and lists
};

}  // namespace

UpdateChains FindUpdateChains(const Program& program, const GradientAnalysis& analysis) {
  return ChainFinder(program, analysis).Find();
}

}  // namespace weft
