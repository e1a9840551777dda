// Ops of the original, which the result has, too.
#include "checker/shares.h"

namespace checker {
namespace {

std::set<std::string_view> Words(std::string_view list) {
  std::set<std::string_view> words;
  for (size_t end = 0; (end = list.find(' ')) != list.npos; list.remove_prefix(end + 1)) {
    words.insert(list.substr(0, end));
  }
  return words;
}

// Ops that exchange values with other ranks, besides those that name a ring or begin with c_, mp_
// or ps_; that give two names to one memory; or that work on other streams.
const auto kNotPlain = Words(
    "all_gather all_reduce all_to_all allreduce alltoall as_strided barrier broadcast "
    "coalesce_tensor comm_init_all dist_concat fetch_barrier global_gather global_scatter "
    "inplace_abn inplace_abn_grad listen_and_serv memcpy_d2h memcpy_h2d p_recv p_send "
    "partial_allgather partial_allreduce partial_recv partial_send recv recv_v2 reduce "
    "reduce_scatter rnn_memory_helper send send_and_recv send_barrier send_v2 share_buffer "
    "share_data stream_wait sync_batch_norm sync_batch_norm_grad tensor_unfold view_dtype "
    "view_shape view_slice ");
// Ops that draw random numbers or take values from outside. Attributes with a default may be
// absent, so that no seed may be there by which to tell.
const auto kDraw = Words(
    "bernoulli binomial class_center_sample cudnn_lstm dirichlet dpsgd dropout dropout_nd "
    "exponential feed flash_attn flash_attn_qkvpacked flash_attn_unpadded "
    "flash_attn_varlen_qkvpacked flashmask_attention fractional_max_pool2d fractional_max_pool3d "
    "fused_attention fused_bias_dropout_residual_layer_norm fused_dot_product_attention "
    "fused_dropout_add fused_feedforward gaussian gaussian_inplace gaussian_random "
    "gaussian_random_batch_size_like generate_proposal_labels graph_khop_sampler "
    "graph_sample_neighbors gumbel_softmax load load_combine memory_efficient_attention "
    "multinomial nce poisson py_func pyramid_hash randint random random_crop randperm read "
    "retinanet_target_assign rnn rpn_target_assign rrelu run_program sample_logits sampling_id "
    "seed shuffle_batch standard_gamma tdm_sampler top_p_sampling truncated_gaussian_random "
    "truncated_gaussian_random_inplace uniform uniform_inplace uniform_random "
    "uniform_random_batch_size_like uniform_random_inplace weighted_sample_neighbors ");
const auto kConstant = Words("fill_constant assign_value fill full full_int_array arange ");
// Linear in all inputs together. So are gradient ops, in the inputs that are gradients.
const auto kLinear = Words("sum scale cast assign concat elementwise_add elementwise_sub ");

bool BeginsWith(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool NamesSeed(std::string_view name) {
  return name.find("seed") != name.npos || name.find("Seed") != name.npos;
}

// Refuses an op that communicates or shares memory. Returns whether it draws.
bool CheckIsPlain(const Op& op, uint64_t version) {
  bool draws = kDraw.count(op.type) > 0, has_inputs = false;
  bool is_plain = kNotPlain.count(op.type) == 0 && !BeginsWith(op.type, "c_") &&
                  !BeginsWith(op.type, "mp_") && !BeginsWith(op.type, "ps_");
  for (const Op::Slot& slot : op.slots) {
    draws = draws || (!slot.is_output && NamesSeed(slot.name));
  }
  for (const Op::Arg& arg : op.args) {
    has_inputs = has_inputs || !arg.is_output;
    // Before Paddle 2, what print gives has the memory of what it prints.
    is_plain = is_plain && (op.type != "print" || version >= 2000000 || arg.var == op.args[0].var);
  }
  for (const Attr& attr : op.attrs) {
    Expect(attr.type != 13 && attr.type != 14, "attribute ", attr.name, " names a variable");
    draws = draws || NamesSeed(attr.name);
    if (attr.name == "ring_id") {
      for (const uint64_t ring : attr.Numbers()) is_plain = is_plain && ring >> 63 == 1;
    } else if (attr.name == "execution_stream") {
      for (auto s : attr.Texts()) is_plain = is_plain && (s.empty() || s == "DefaultStream");
    }
    is_plain = is_plain && attr.name != "ring_ids";
  }
  Expect(is_plain, "no certificate for originals that communicate or share memory");
  return draws || (!has_inputs && kConstant.count(op.type) == 0);
}

// What an op and its blocks may use of block 0.
struct Uses {
  std::vector<Var*> reads, writes;
  bool draws = false, has_blocks = false;
};

// Adds what an op uses that is in the blocks `path`, the last of which are inside the first.
void AddUses(const Op& op, State* state, std::vector<uint64_t>* path, Uses* uses) {
  uses->draws = CheckIsPlain(op, state->version) || uses->draws;
  for (const Op::Arg& arg : op.args) {
    if (path->size() > 1) state->Spend(1);
    Var* const var = state->Find(arg.var);
    const auto is_local = [&](uint64_t i) { return state->locals[i].count(arg.var) > 0; };
    Expect(var != nullptr || std::any_of(path->begin(), path->end(), is_local), arg.var,
           " is not declared");
    if (var != nullptr) (arg.is_output ? uses->writes : uses->reads).push_back(var);
  }
  for (const Attr& attr : op.attrs) {
    if (attr.type != Attr::kBlock && attr.type != Attr::kBlocks) continue;
    for (const uint64_t block : attr.Numbers()) {
      Expect(block > path->back() && block < state->blocks.size() && path->size() < 64,
             "there is no such block");
      uses->has_blocks = true;
      path->push_back(block);
      for (Fields ops(state->blocks[block]); ops.Next(4);) {
        AddUses(Op(ops.Bytes()), state, path, uses);
      }
      path->pop_back();
    }
  }
}

// A value / n goes in. All outputs are divided by n, too, if the op is linear in what is divided.
// A whole number divided by n, or rounded after the division, is another one.
void CheckScaled(const Op& op, bool has_blocks, State* state) {
  const bool is_gradient = EndsWith(op.type, "_grad") && !EndsWith(op.type, "_grad_grad") &&
                           !EndsWith(op.type, "_double_grad") && !EndsWith(op.type, "_triple_grad");
  const Attr* const bias = op.type == "scale" ? op.Find("bias") : nullptr;
  Expect(!has_blocks && (is_gradient || kLinear.count(op.type) > 0) &&
             (bias == nullptr || bias->IsZero()),
         "it reads a value / n, and is not known to be linear");
  for (const Op::Arg& arg : op.args) {
    const Var& var = *state->VarOf(arg.var);
    const bool is_divided = is_gradient ? EndsWith(arg.name, "@GRAD")
                                        : arg.name != "ScaleTensor" && arg.name != "BiasTensor";
    Expect(!arg.is_output || is_divided, "its output ", arg.name, " is no gradient");
    Expect(arg.is_output || (var.kind == kScaled) == is_divided, "it reads ", var.name,
           ", which is ", is_divided ? "not " : "", "divided by n");
    Expect(!is_divided || var.FloatSize() > 0, var.name,
           ", which is divided by n, is not declared as floats");
  }
}

// The learning rate of the parameter that an op updates.
void KeepRate(const Op& op, State* state) {
  Var *param = nullptr, *rate = nullptr;
  for (const Op::Arg& arg : op.args) {
    if (!arg.is_output && arg.name == "Param") param = state->VarOf(arg.var);
    if (!arg.is_output && arg.name == "LearningRate") rate = state->VarOf(arg.var);
  }
  if (param != nullptr && rate != nullptr) state->rates[param] = rate;
}

// Inputs may be other copies of what the original reads there.
void FindCopies(const Op& op, const Op& now, bool has_blocks, State* state,
                std::vector<Var*>* from) {
  Expect(op.args.size() == now.args.size(), "the op of the original has other arguments");
  size_t i = 0;
  for (size_t a = 0; a < now.args.size(); ++a) {
    const Op::Arg& arg = now.args[a];
    Expect(Op::AreAtOnePlace(arg, op.args[a]), "the op of the original has other slots");
    if (arg.is_output) continue;
    Var *const var = (*from)[i], *const copy = state->VarOf(arg.var);
    (*from)[i++] = copy;
    if (copy == var) continue;
    const auto is_written = [&](const Op::Arg& other) {
      return other.is_output && other.var == op.args[a].var;
    };
    Expect(!has_blocks && !copy->is_rounded &&
               std::none_of(op.args.begin(), op.args.end(), is_written) && copy->of == var &&
               copy->of_version == var->version && copy->kind == kSame && copy->form == kWhole &&
               copy->type == var->type && copy->dtype == var->dtype && copy->Dims() == var->Dims(),
           "it reads ", copy->name, ", which does not have the value of ", var->name);
  }
}

}  // namespace

void Keep(const Op& op, const Op* now, State* state) {
  Uses uses;
  std::vector<uint64_t> path = {0};
  Expect(!state->has_ended, "an op of the original comes after averaging began");
  AddUses(op, state, &path, &uses);
  const bool is_backward = state->main == nullptr && (op.Number("op_role", 0) & 15) == 1;
  if (const Attr* const pairs = is_backward ? op.Find("op_role_var") : nullptr) {
    const std::vector<std::string_view> names = pairs->Texts();
    for (size_t i = 0; i < names.size(); ++i) {
      Var* const var = state->VarOf(names[i]);
      (i % 2 == 0 ? var->is_parameter : var->is_gradient) = true;
    }
  }
  if (state->averages) KeepRate(op, state);
  std::vector<Var*> from = uses.reads;  // what holds the values in the result
  if (now != nullptr && now != &op) FindCopies(op, *now, uses.has_blocks, state, &from);
  std::vector<Part> before;
  if (now == nullptr) {
    Expect(!is_backward && !uses.draws && !uses.has_blocks, "no rule leaves out such an op");
    for (const Op::Arg& arg : op.args) {
      Var* const var = state->VarOf(arg.var);
      before.push_back({var, var->version, var->number});
    }
  } else {
    state->Launch(0);
  }
  bool is_equal = !uses.draws, is_scaled = false;
  for (size_t i = 0; i < uses.reads.size(); ++i) {
    Var* const var = uses.reads[i];
    is_equal = is_equal && var->equal && state->HasValue(*var);
    var->read_first = var->read_first || !var->has_value;
    var->read_since_write = true;
    const bool has_it =
        now == nullptr || from[i] != var || var->kind == kSame || var->kind == kScaled;
    Expect(from[i] != var || (var->of == var && has_it), "it reads ", var->name,
           ", which does not have the value that it has in the original");
    if (now == nullptr) continue;
    Expect(!var->is_frozen, "it reads ", var->name, " after its broadcast");
    is_scaled = is_scaled || from[i]->kind == kScaled;
    state->Touch(0, from[i], false);
  }
  if (is_scaled) CheckScaled(op, uses.has_blocks, state);
  for (Var* var : uses.writes) {
    Expect(var->of == var && !var->is_frozen, "it writes ", var->name,
           ", which is new, or after its broadcast");
    Expect(!var->is_reduced || !is_backward, "it writes the gradient ", var->name, " again");
    // A block may leave what was there.
    Expect(!uses.has_blocks || var->kind == kSame, "it may leave ", var->name,
           ", which does not have the value that it has in the original");
    // Nor may a value be left that comes from outside, and that each rank has to itself.
    const bool was_equal = state->HasValue(*var) ? var->equal : !var->is_data && !var->read_first;
    var->equal = is_equal && (!uses.has_blocks || was_equal);
    var->read_first = var->read_first || (uses.has_blocks && !var->has_value);
    // An op of another role that writes a gradient again uses what is there.
    var->read_since_write =
        uses.has_blocks || (!is_backward && state->main == nullptr && var->has_value);
    if (now == nullptr) {
      if (var->kind == kSame) var->of_version = var->version, var->old_number = var->number;
      if (var->kind != kOld) var->kind = var->kind == kSame ? kOld : kLost;
    } else {
      var->kind = is_scaled ? kScaled : kSame;
    }
    var->has_value = true;
    var->is_rounded = false;
    var->number = 0;
    state->constants.erase(var);
    state->totals.erase(var);
    ++var->version;
    if (now != nullptr) state->Touch(0, var, true);
  }
  if (state->main != nullptr && state->HasShares()) KeepConstant(op, state);
  if (now == nullptr) LeaveOut(op, std::move(before), state);
}

}  // namespace checker
