#include "transpiler/passes/sharding/share_writer.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "ops/schema/op_kinds.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "transpiler/passes/support/fused_buffer.h"
#include "transpiler/passes/support/op_builder.h"
#include "transpiler/passes/support/op_edits.h"

namespace weft {
namespace {

using Tensor = UpdateChain::Tensor;

// The op with other variables, which its pair of parameter and gradient names, too.
pb::OpDesc Renamed(const Op& op, const std::map<std::string, std::string>& names) {
  pb::OpDesc renamed = op.ToProto();
  const auto rename = [&](std::string* name) {
    const auto found = names.find(*name);
    if (found != names.end()) *name = found->second;
  };
  for (auto* slots : {renamed.mutable_inputs(), renamed.mutable_outputs()}) {
    for (pb::OpDesc::Var& slot : *slots) {
      for (std::string& argument : *slot.mutable_arguments()) rename(&argument);
    }
  }
  for (pb::OpDesc::Attr& attr : *renamed.mutable_attrs()) {
    if (attr.name() != kOpRoleVarAttr) continue;
    for (std::string& name : *attr.mutable_strings()) rename(&name);
  }
  return renamed;
}

pb::VarDesc ShareVar(const SharedBucket& bucket, size_t tensor) {
  const Tensor& of = bucket.first().tensors[tensor];
  pb::VarDesc var = TensorVar(bucket.shares[tensor], of.dtype, {bucket.share()});
  var.set_persistable(of.is_state);
  var.set_stop_gradient(of.is_state);
  return var;
}

// What takes the place of the variables of a chain.
std::map<std::string, std::string> SharesOf(const Program& main, const UpdateChain& chain,
                                            const SharedBucket& bucket) {
  std::map<std::string, std::string> names;
  for (size_t t = 0; t < chain.tensors.size(); ++t) {
    names.emplace(main.name(chain.tensors[t].name), bucket.shares[t]);
  }
  for (size_t p = 0; p < chain.partials.size(); ++p) {
    names.emplace(main.name(chain.partials[p]), bucket.partials[p]);
  }
  for (size_t s = 0; s < chain.scalars.size(); ++s) {
    names.emplace(main.name(chain.scalars[s]), main.name(bucket.first().scalars[s]));
  }
  return names;
}

// The blocks of the chains, as the ops list them that run them: states are shares, and what lasts
// no longer than the block is not listed.
void WriteRunners(const Program& main, absl::Span<const SharedBucket> buckets,
                  ProgramEdits* edits) {
  std::map<OpId, std::map<std::string, std::string>> names_of;  // empty: not listed
  for (const SharedBucket& bucket : buckets) {
    for (const UpdateChain* chain : bucket.chains) {
      if (chain->block == 0) continue;
      std::map<std::string, std::string>& names = names_of[chain->run_by];
      names.merge(SharesOf(main, *chain, bucket));
      for (const Tensor& tensor : chain->tensors) {
        if (!tensor.is_state) names[std::string(main.name(tensor.name))].clear();
      }
      names.erase(std::string(main.name(chain->tensors[UpdateChain::kGrad].name)));
      for (Symbol partial : chain->partials) names[std::string(main.name(partial))].clear();
    }
  }
  for (const auto& [id, names] : names_of) {
    pb::OpDesc op = main.op(id).ToProto();
    for (auto* slots : {op.mutable_inputs(), op.mutable_outputs()}) {
      for (pb::OpDesc::Var& slot : *slots) {
        std::vector<std::string> listed;
        for (const std::string& argument : slot.arguments()) {
          const auto found = names.find(argument);
          const std::string& name = found == names.end() ? argument : found->second;
          if (!name.empty() && !absl::c_linear_search(listed, name)) listed.push_back(name);
        }
        slot.clear_arguments();
        for (std::string& name : listed) slot.add_arguments(std::move(name));
      }
    }
    edits->main.Replace(id, op);
  }
}

std::map<std::string, std::string> SharesOf(const Program& main,
                                            absl::Span<const SharedBucket> buckets) {
  std::map<std::string, std::string> names;
  for (const SharedBucket& bucket : buckets) {
    for (const UpdateChain* chain : bucket.chains) names.merge(SharesOf(main, *chain, bucket));
  }
  return names;
}

class InitializerWriter {
 public:
  InitializerWriter(const ProgramPair& programs, int ring, ProgramEdits* edits)
      : programs_(programs),
        main_(*programs.main),
        startup_(*programs.startup),
        ring_(ring),
        edits_(*edits) {
    for (OpId id : startup_.block(0).ops()) {
      for (Symbol out : startup_.op(id).output_args()) {
        const bool is_first = initializer_.try_emplace(startup_.name(out), id).second;
        if (!is_first) several_.emplace(startup_.name(out));
      }
    }
  }

  void Write(const SharedBucket& bucket) {
    for (size_t t = 0; t < bucket.shares.size(); ++t) {
      if (!bucket.first().tensors[t].is_state) continue;
      pb::VarDesc share = ShareVar(bucket, t);
      share.mutable_type()->mutable_lod_tensor()->mutable_tensor()->set_data_type(
          static_cast<pb::VarType::Type>(TypeOf(bucket, t)));
      edits_.startup->AddVar(0, share);
      if (absl::c_all_of(bucket.chains, [&](const UpdateChain* chain) {
            return BeginsWithZeros(NameOf(chain->tensors[t].name));
          })) {
        WriteZeros(bucket, t);
      } else {
        WriteParts(bucket, t);
      }
    }
    for (size_t s = 0; s < bucket.first().scalars.size(); ++s) {
      for (const UpdateChain* chain : bucket.chains) {
        if (chain != bucket.chains[0]) Forget(NameOf(chain->scalars[s]));
      }
    }
  }

 private:
  std::string NameOf(Symbol in_main) const { return std::string(main_.name(in_main)); }

  DType TypeOf(const SharedBucket& bucket, size_t tensor) const {
    return TypeAtStart(bucket.first().tensors[tensor], programs_);
  }

  bool BeginsWithZeros(const std::string& name) const {
    const auto found = initializer_.find(name);
    if (found == initializer_.end() || several_.count(name) > 0) return false;
    const Op op = startup_.op(found->second);
    return op.type() == "fill_constant" && op.input_args().empty() &&
           op.FloatAttr("value").value_or(1) == 0 &&
           op.StringAttr("str_value").value_or("0").find_first_not_of("0.") == std::string::npos;
  }

  // The whole value is needed no longer, and was made by one op, if any.
  void Forget(const std::string& name) {
    const VarId var = startup_.block(0).FindVar(name);
    if (!var.valid()) return;
    const auto found = initializer_.find(name);
    const bool is_alone =
        found == initializer_.end() ||
        (several_.count(name) == 0 && startup_.op(found->second).output_args().size() == 1);
    if (!is_alone) return MakeTemporary(var);
    if (found != initializer_.end()) edits_.startup->Erase(found->second);
    edits_.startup->EraseVar(var);
  }

  void MakeTemporary(VarId id) {
    pb::VarDesc var = startup_.var(id).ToProto();
    var.set_persistable(false);
    var.set_is_parameter(false);
    edits_.startup->ReplaceVar(id, var);
  }

  void Append(const NewOp& op) { edits_.startup->Append(0, BuildOp(op)); }

  void WriteZeros(const SharedBucket& bucket, size_t tensor) {
    Append(
        FillOp(bucket.shares[tensor], TypeOf(bucket, tensor), {bucket.share()}, 0, kRoleForward));
    for (const UpdateChain* chain : bucket.chains) Forget(NameOf(chain->tensors[tensor].name));
  }

  void WriteParts(const SharedBucket& bucket, size_t tensor) {
    FusedTensors tensors;
    tensors.dtype = TypeOf(bucket, tensor);
    for (const UpdateChain* chain : bucket.chains) {
      tensors.names.push_back(NameOf(chain->tensors[tensor].name));
      tensors.dims.push_back(chain->dims);
      const VarId whole = startup_.block(0).FindVar(tensors.names.back());
      if (whole.valid()) MakeTemporary(whole);
    }
    if (bucket.padding > 0) {
      tensors.names.push_back(edits_.names.Next("share_padding"));
      tensors.dims.push_back({bucket.padding});
      edits_.startup->AddVar(0, TensorVar(tensors.names.back(), tensors.dtype, {bucket.padding}));
      Append(FillOp(tensors.names.back(), tensors.dtype, {bucket.padding}, 0, kRoleForward));
    }
    const std::string whole = edits_.names.Next("fused_whole");
    const std::string parts = edits_.names.Next("parts_of_ranks");
    edits_.startup->AddVar(0, FusedBuffer(whole, tensors, DenseAlignment(tensors)));
    edits_.startup->AddVar(0, TensorVar(parts, tensors.dtype, {bucket.elements}));
    edits_.startup->Append(
        0, Coalesce(tensors, whole, FusedValues::kCopied, kRoleForward, DenseAlignment(tensors)));
    Append({"alltoall",
            {{"X", {whole}}},
            {{"Out", {parts}}},
            {{"ring_id", ring_}, {"use_calc_stream", true}},
            kRoleForward});
    Append({"slice",
            {{"Input", {parts}}},
            {{"Out", {bucket.shares[tensor]}}},
            {{"axes", std::vector<int32_t>{0}},
             {"starts", std::vector<int32_t>{0}},
             {"ends", std::vector<int32_t>{static_cast<int32_t>(bucket.share())}}},
            kRoleForward});
  }

  const ProgramPair& programs_;
  const Program& main_;
  const Program& startup_;
  const int ring_;
  ProgramEdits& edits_;
  absl::flat_hash_map<std::string, OpId> initializer_;  // the first op that writes a variable
  std::set<std::string, std::less<>> several_;          // variables that several ops write
};

}  // namespace

DType TypeAtStart(const UpdateChain::Tensor& tensor, const ProgramPair& programs) {
  const Program& startup = *programs.startup;
  const VarId var = startup.block(0).FindVar(std::string(programs.main->name(tensor.name)));
  const absl::optional<TensorType> type =
      var.valid() ? DeclaredType(startup.var(var)) : absl::nullopt;
  return type.has_value() ? type->dtype : tensor.dtype;
}

void WriteSharedUpdates(const Program& main, absl::Span<const SharedBucket> buckets,
                        ProgramEdits* edits) {
  std::set<VarId> forgotten;
  for (const SharedBucket& bucket : buckets) {
    const UpdateChain& first = bucket.first();
    for (size_t t = 0; t < first.tensors.size(); ++t) {
      if (t == UpdateChain::kGrad) continue;
      edits->main.AddVar(first.tensors[t].is_state ? 0 : first.block, ShareVar(bucket, t));
    }
    for (size_t p = 0; p < first.partials.size(); ++p) {
      const VarId whole = main.block(first.block).Resolve(first.partials[p]);
      pb::VarDesc partial = main.var(whole).ToProto();
      partial.set_name(bucket.partials[p]);
      edits->main.AddVar(first.block, partial);
    }
    for (size_t k = 0; k < first.ops.size(); ++k) {
      const UpdateChain* last = &first;
      for (const UpdateChain* chain : bucket.chains) {
        const bool is_later = main.op(chain->ops[k]).position() > main.op(last->ops[k]).position();
        if (is_later) last = chain;
      }
      for (const UpdateChain* chain : bucket.chains) {
        if (chain != last) edits->main.Erase(chain->ops[k]);
      }
      const OpId kept = last->ops[k];
      edits->main.Replace(kept, Renamed(main.op(kept), SharesOf(main, *last, bucket)));
    }
    for (const UpdateChain* chain : bucket.chains) {
      for (size_t t = 0; t < chain->tensors.size(); ++t) {
        const VarId id = main.block(chain->block).Resolve(chain->tensors[t].name);
        if (t == UpdateChain::kParam) {
          pb::VarDesc var = main.var(id).ToProto();
          var.set_persistable(false);
          edits->main.ReplaceVar(id, var);
        } else if (t != UpdateChain::kGrad) {
          // Others may use a temporary of the root block before the block of the chain.
          const bool is_of_chain = main.var(id).block() == chain->block;
          if (chain->tensors[t].is_state || is_of_chain) forgotten.insert(id);
        }
      }
      for (Symbol partial : chain->partials) {
        const VarId id = main.block(chain->block).Resolve(partial);
        if (main.var(id).block() == chain->block) forgotten.insert(id);
      }
      if (chain == bucket.chains[0]) continue;
      for (Symbol scalar : chain->scalars) {
        forgotten.insert(main.block(chain->block).Resolve(scalar));
      }
    }
  }
  for (VarId id : forgotten) edits->main.EraseVar(id);
  WriteRunners(main, buckets, edits);
}

void WriteSums(const Program& main, absl::Span<const UpdateChains::PartialSum> sums,
               absl::Span<const SharedBucket> buckets, int ring, ProgramEdits* edits) {
  const std::map<std::string, std::string> share_of = SharesOf(main, buckets);
  for (const UpdateChains::PartialSum& partial_sum : sums) {
    const OpId id = partial_sum.op, reader = partial_sum.reader;
    const Op op = main.op(id);
    std::vector<std::string> parts, whole;
    for (Symbol in : op.input_args()) {
      const std::string name(main.name(in));
      const auto share = share_of.find(name);
      if (share == share_of.end()) {
        whole.push_back(name);
      } else if (!absl::c_linear_search(parts, share->second)) {
        parts.push_back(share->second);
      }
    }
    if (parts.empty()) continue;
    const auto declare = [&](const std::string& name, Symbol like) {
      pb::VarDesc var = main.var(main.block(op.block()).Resolve(like)).ToProto();
      var.set_name(name);
      edits->main.AddVar(op.block(), var);
      return name;
    };
    const auto add = [&](const std::vector<std::string>& from, const std::string& to) {
      edits->main.InsertBefore(id, BuildOp({"sum", {{"X", from}}, {{"Out", {to}}}, {}, op.role()}));
    };
    const auto insert_in_place = [&](const char* type, const std::string& name, NewAttrs attrs) {
      attrs.push_back({"ring_id", ring});
      edits->main.InsertBefore(id, BuildOp(InPlaceOp(type, {name}, std::move(attrs), op.role())));
    };
    const Symbol out = op.output_args()[0];
    const std::string sum = reader.valid()
                                ? declare(edits->names.Next("norm_of_all"), op.input_args()[0])
                                : std::string(main.name(out));
    const std::string total =
        whole.empty() ? sum : declare(edits->names.Next("norm_of_shares"), op.input_args()[0]);
    add(parts, total);
    insert_in_place("c_wait_compute", total, {});
    insert_in_place("c_allreduce_sum", total, {{"use_calc_stream", false}});
    insert_in_place("c_wait_comm", total, {});
    if (!whole.empty()) {
      whole.insert(whole.begin(), total);
      add(whole, sum);
    }
    edits->main.Erase(id);
    if (!reader.valid()) continue;
    pb::OpDesc reads_sum = main.op(reader).ToProto();
    SetInput(&reads_sum, "X", {sum});
    edits->main.Replace(reader, reads_sum);
    const VarId stack = main.block(op.block()).Resolve(out);
    if (main.var(stack).block() == op.block()) edits->main.EraseVar(stack);
  }
}

void WriteLists(const Program& main, absl::Span<const OpId> lists,
                absl::Span<const SharedBucket> buckets, int ring, ProgramEdits* edits) {
  const std::map<std::string, std::string> share_of = SharesOf(main, buckets);
  for (OpId id : lists) {
    const Op op = main.op(id);
    const absl::Span<const Symbol> x = op.Input("X"), out = op.Output("Out");
    std::vector<std::string> from, to;
    std::set<std::string> shares;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto share = share_of.find(std::string(main.name(x[i])));
      if (share == share_of.end()) {
        from.push_back(std::string(main.name(x[i])));
        to.push_back(std::string(main.name(out[i])));
      } else if (shares.insert(share->second).second) {
        from.push_back(share->second);
        to.push_back(share_of.at(std::string(main.name(out[i]))));
      }
    }
    if (shares.empty()) continue;
    pb::OpDesc scaled = op.ToProto();
    SetInput(&scaled, "X", from);
    SetOutput(&scaled, "Out", to);
    edits->main.Replace(id, scaled);
    if (!UnscalesGradients(op.type())) continue;
    const auto insert = [&](const NewOp& inserted) {
      edits->main.InsertAfter(id, BuildOp(inserted));
    };
    const std::string flag(main.name(op.Output("FoundInfinite")[0]));
    const std::string number = edits->names.Next("found_infinite");
    edits->main.AddVar(op.block(), TensorVar(number, DType::kInt32, {1}));
    insert(CastOp(flag, DType::kBool, number, DType::kInt32, op.role()));
    insert(InPlaceOp("c_wait_compute", {number}, {{"ring_id", ring}}, op.role()));
    insert(InPlaceOp("c_allreduce_max", {number}, {{"ring_id", ring}, {"use_calc_stream", false}},
                     op.role()));
    insert(InPlaceOp("c_wait_comm", {number}, {{"ring_id", ring}}, op.role()));
    insert(CastOp(number, DType::kInt32, flag, DType::kBool, op.role()));
  }
}

void WriteShareInitializers(const ProgramPair& programs, absl::Span<const SharedBucket> buckets,
                            int ring, ProgramEdits* edits) {
  InitializerWriter writer(programs, ring, edits);
  for (const SharedBucket& bucket : buckets) writer.Write(bucket);
}

void DescribeShares(const Program& main, absl::Span<const SharedBucket> buckets, Setting* setting) {
  const auto name_of = [&](Symbol symbol) { return std::string(main.name(symbol)); };
  for (const SharedBucket& bucket : buckets) {
    for (size_t t = 0; t < bucket.shares.size(); ++t) {
      if (!bucket.first().tensors[t].is_state) continue;
      std::vector<SharedTensor>& of = setting->shares[bucket.shares[t]];
      for (const UpdateChain* chain : bucket.chains) {
        of.push_back({name_of(chain->tensors[t].name), {chain->dims.begin(), chain->dims.end()}});
      }
      if (bucket.padding > 0) of.push_back({"", {bucket.padding}});
    }
    for (size_t s = 0; s < bucket.first().scalars.size(); ++s) {
      std::vector<std::string>& of = setting->common[name_of(bucket.first().scalars[s])];
      for (const UpdateChain* chain : bucket.chains) of.push_back(name_of(chain->scalars[s]));
    }
  }
}

}  // namespace weft
