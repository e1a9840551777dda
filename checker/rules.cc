// Ops that the result has and the original has not: each is an instance of a rule.
#include "checker/shares.h"

namespace checker {
namespace {

// What a variable holds is a value of the original, in this form, and still current there.
const Var& Current(const Var& var, bool is_whole) {
  Expect(var.of != nullptr && (var.of == &var || var.of_version == var.of->version) &&
             var.kind < kLost && (!is_whole || var.form == kWhole),
         var.name, " holds no current value");
  return var;
}

void Hold(const Var& value, uint32_t form, Var* var) {
  var->of = value.of;
  var->of_version = value.of->version;
  var->kind = value.kind;
  var->equal = value.equal;
  var->form = form;
}

Var& New(Var* var) {
  Expect(var->of != var && !var->in_buffer && var->parts.empty(), "it may not use ", var->name);
  return *var;
}

// A new op, with the variables in its slots. Functions that are rules return the stream that reads
// X and writes Out; kHost: none does.
struct NewOp : Slots {
  Var& X() const { return One(in); }
  Var& Out() const { return One(out); }
  Var& InPlace() const {
    Expect(&X() == &Out(), "expected Out to be X");
    return X();
  }

  // The ring of an op that is on the stream that computes, or on the stream of the ring.
  uint64_t UseRing(bool computes) {
    const auto ring = static_cast<uint64_t>(op.Number("ring_id", 0));
    const bool is_there = state.set_up.count(ring) > 0 || (computes && state.set_up.empty());
    Expect(ring <= 0x7fffffff, "attribute ring_id: expected a ring");
    Expect(state.main == nullptr || is_there, "its ring is not set up");
    state.rings.insert(ring);
    state.calls_compute = state.calls_compute && computes;
    return ring;
  }

  // What all ranks must do in one order. Ranks run one main program, so that names do not matter
  // there, but startup programs of their own.
  void Note(const std::string& call, std::string_view name) {
    state.schedule += state.main == nullptr ? Text(call, "\n") : Text(call, " ", name, "\n");
  }

  uint32_t StreamOf(uint64_t ring) {
    const uint32_t stream = state.streams.emplace(ring, state.streams.size() + 1).first->second;
    Expect(stream < kHost, "more than 16 rings");
    return stream;
  }

  uint32_t LaunchCall(const char* kind, const Var& var) {
    const bool computes = op.Number("use_calc_stream", 0) != 0;
    const uint64_t ring = UseRing(computes);
    Note(Text(std::to_string(ring), " ", kind, " ", std::to_string(var.dtype), " ",
              std::to_string(var.elements)),
         var.name);
    ++state.num_calls;
    return state.Launch(computes ? 0 : StreamOf(ring));
  }

  uint32_t Wait() {
    Expect(in == out, "expected X and the same Out");
    if (op.type == "c_sync_calc_stream") return WaitFor(0, kHost);
    const uint32_t ring = StreamOf(UseRing(false));
    if (op.type == "c_sync_comm_stream") return WaitFor(ring, kHost);
    return op.type == "c_wait_comm" ? WaitFor(ring, 0) : WaitFor(0, ring);
  }
  uint32_t WaitFor(uint32_t stream, uint32_t who) {
    Join(state.clocks[stream], &state.clocks[who]);
    return kHost;
  }

  // From here on, the original of the claim has the gradient of all ranks.
  void ReplaceGradient(Var* var, bool averages) {
    Var& gradient = *Current(*var, true).of;
    const bool is_scaled = var->kind == kScaled;
    Expect(gradient.is_gradient, gradient.name, " is no gradient of a parameter");
    Expect(!gradient.is_reduced, gradient.name, " is reduced twice");
    Expect(!gradient.read_since_write, "an op uses ", gradient.name, " before its reduction");
    Expect(gradient.has_value && gradient.IsFloats(), gradient.name,
           " is no tensor of a known size that this step computes");
    Expect(var->kind != kSum && (!is_scaled || (!averages && !state.sums)), var->name,
           " is divided by n or reduced already");
    Expect(!averages || !state.sums, "expected a sum, as the claim says");
    var->of_version = ++gradient.version;
    gradient.number = 0;
    ++state.num_gradients;
    gradient.is_reduced = true;
    if (&gradient != var) gradient.kind = kLost;
    var->kind = is_scaled || averages || state.sums ? kSame : kSum;
    var->equal = true;
  }

  uint32_t Reduce() {
    if (state.averages) return LaunchCall(Exchange(*this) ? "mean" : "sum", InPlace());
    const int64_t reduction = op.Number("reduce_type", 0);
    if (IsAny(InPlace(), state)) {
      Expect(op.type == "c_allreduce_max" || reduction == 1, "expected a maximum");
      FindAny(&X(), &state);
      return LaunchCall("max", X());
    }
    Expect(op.type != "c_allreduce_max" && (reduction == 0 || reduction == 4),
           "attribute reduce_type: expected 0 or 4");
    const bool averages = op.type == "c_allreduce_avg" || reduction == 4;
    if (state.totals.count(&InPlace()) > 0) {
      Expect(!averages, "expected a sum");
      AddUp(&X(), &state);
      return LaunchCall("sum", X());
    }
    for (Var* var : PartsOf(&InPlace())) ReplaceGradient(var, averages);
    return LaunchCall(averages ? "mean" : "sum", X());
  }

  // A division by the number of ranks.
  uint32_t Scale() {
    if (state.averages) return Run<Compute>();
    const Attr* const scale = op.Find("scale");
    const bool is_share = state.shares.count(&InPlace()) > 0;
    const std::vector<float> factor = {1.0F / static_cast<float>(state.nranks)};
    Expect(state.nranks > 0 && scale != nullptr && scale->Values(&Fields::Float) == factor,
           "attribute scale: expected 1 / ranks");
    if (is_share) DivideShare(&X(), &state);
    for (Var* var : is_share ? std::vector<Var*>() : PartsOf(&X())) {
      Expect(!state.sums && Current(*var, true).kind != kScaled && var->FloatSize() > 0, var->name,
             " is not to be divided");
      var->kind = var->kind == kSum ? kSame : kScaled;
    }
    return state.Launch(0);
  }

  // A copy of a gradient in another type, or back.
  uint32_t Cast() {
    if (state.averages) return Run<Compute>();
    Var &x = X(), &y = Out();
    const bool is_any = IsAny(x, state), are_floats = x.FloatSize() > 0 && y.FloatSize() > 0;
    Expect(op.Number("in_dtype", -1) == x.dtype && op.Number("out_dtype", -1) == y.dtype &&
               are_floats != is_any && x.parts.size() == y.parts.size(),
           "the attributes or parts do not fit the variables");
    if (is_any) {
      CastAny(x, &y, &state);
      return state.Launch(0);
    }
    const std::vector<Var*> sources = PartsOf(&x), targets = PartsOf(&y);
    for (size_t i = 0; i < sources.size(); ++i) {
      const Var& source = Current(*sources[i], true);
      Var& target = *targets[i];
      const bool is_original = target.of == &target;
      const bool is_there =
          x.parts.empty() || (x.parts[i].second == y.parts[i].second && x.parts[i].second >= 0);
      Expect(is_there && source.Dims() == target.Dims() &&
                 (!is_original || (source.of == &target && target.is_gradient)),
             target.name, " cannot hold ", source.name);
      Hold(source, kWhole, &target);
      target.is_rounded = source.is_rounded || y.FloatSize() < x.FloatSize() || y.FloatSize() == 2;
      if (is_original && target.is_rounded) ++state.num_rounded;
    }
    return state.Launch(0);
  }

  // Tensors become parts of one buffer.
  uint32_t Coalesce() {
    Expect(in == out && more.size() == 1, "expected Input, the same Output, and FusedOutput");
    Var& fused = New(more[0]);
    const int64_t size = fused.FloatSize(), given = op.Number("user_defined_size_of_dtype", -1);
    const int64_t align = op.Number("use_align", 1) == 0 ? 1 : op.Number("align_size", -1);
    const bool copies = op.Number("copy_data", 0) != 0;
    // In the next step, it is a buffer from the start.
    Expect(fused.accesses.empty(), fused.name, " is used before it is a buffer");
    Expect(size > 0 && op.Number("dtype", -1) == fused.dtype && align <= 1 << 20 &&
               (given == -1 || given == size) && (align <= 1 || align % size == 0) &&
               !fused.persistable && fused.block == state.block,
           "expected FusedOutput of floats, and attributes with its type and size");
    const bool is_known = align > 0;  // else the device decides where parts begin
    const int64_t unit = std::max<int64_t>(1, align / size);
    std::vector<uint64_t> shapes, ranks;
    int64_t end = 0;
    for (Var* var : in) {
      const bool is_state =
          (state.averages || var->is_elsewhere) && var->IsState() && var->elements >= 0;
      Expect((is_state || var->IsFloats()) &&
                 state.shares.count(var) + state.totals.count(var) == 0 &&
                 var->dtype == fused.dtype && var->elements <= int64_t{1} << 40 &&
                 end < int64_t{1} << 60,
             var->name, " is no tensor of a known size and of this type");
      Expect(!var->in_buffer && var->parts.empty() && var != &fused, var->name,
             " is in a buffer already");
      var->in_buffer = true;
      fused.parts.emplace_back(var, is_known ? end : -1);
      end += (var->elements + unit - 1) / unit * unit;
      const std::vector<int64_t> dims = var->Dims();
      shapes.insert(shapes.end(), dims.begin(), dims.end());
      ranks.push_back(dims.size());
      if (state.averages) {
        Move(var, copies, &state);
        continue;
      }
      if (copies) var->read_first = var->read_first || !var->has_value;
      if (!copies) var->kind = kLost, state.constants.erase(var);
    }
    const std::vector<uint64_t> its_shapes = op.Numbers("concated_shapes");
    const std::vector<uint64_t> its_ranks = op.Numbers("concated_ranks");
    Expect(
        (its_shapes.empty() && its_ranks.empty()) || (its_shapes == shapes && its_ranks == ranks),
        "its attributes have other shapes than the variables");
    Expect(!in.empty() && (!is_known || fused.elements == end), "FusedOutput is not declared with ",
           std::to_string(end), " elements");
    return state.Launch(0);
  }

  // Of rank 0. In the main program, of what is equal on all ranks: nothing changes.
  uint32_t Broadcast() {
    Var& var = InPlace();
    const bool is_startup = state.main != nullptr;
    Expect(var.of == &var && var.kind == kSame && state.HasValue(var) && (is_startup || var.equal),
           var.name, " has no value, or not an equal one on all ranks");
    var.is_frozen = is_startup;
    var.equal = true;
    return LaunchCall("broadcast", var);
  }

  uint32_t Gather() {
    if (state.shares.count(&X()) > 0) {
      Expect(op.Find("nranks") != nullptr, "expected a number of ranks");
      GatherShare(X(), Out(), &state);
      return LaunchCall("gather", X());
    }
    Var &x = X(), &y = New(&Out());
    std::vector<int64_t> dims = x.Dims();
    const bool is_known = x.elements >= 0 && x.elements <= int64_t{1} << 40;
    if (dims.empty()) dims.push_back(1);
    if (is_known) dims[0] *= static_cast<int64_t>(state.nranks);
    Expect(op.Find("nranks") != nullptr && state.nranks > 0 && x.of == &x &&
               Current(x, true).kind <= kScaled &&
               state.shares.count(&y) + state.totals.count(&y) == 0 && is_known &&
               y.elements >= 0 && y.Dims() == dims && y.dtype == x.dtype,
           "expected a number of ranks, and Out declared for the values of all");
    Hold(x, kGathered, &y);
    return LaunchCall("gather", x);
  }

  uint32_t Split() {
    const Var& x = X();
    Expect(Current(x, false).form == kGathered && out.size() == state.nranks &&
               op.Find("num") != nullptr,
           "expected the values of all ranks, and a part for each");
    for (uint32_t i = 0; i < out.size(); ++i) {
      Var& part = New(out[i]);
      Expect(&part != &x && part.elements == x.of->elements && part.dtype == x.dtype, part.name,
             " is not declared for the value of a rank");
      Hold(x, kPart + i, &part);
    }
    return state.Launch(0);
  }

  uint32_t SumParts() {
    if (!in.empty() && state.totals.count(in[0]) > 0) return Run<JoinSums>();
    Var& sum = Out();
    Expect(state.nranks > 0 && in.size() == state.nranks, "expected a part for each rank");
    std::set<uint32_t> forms;
    for (Var* part : in) {
      Expect(Current(*part, false).form >= kPart && part->kind == in[0]->kind && part->of == &sum &&
                 forms.insert(part->form).second,
             part->name, " is not the value of another rank");
    }
    sum.kind = in[0]->kind;
    ReplaceGradient(&sum, false);
    return state.Launch(0);
  }

  // Each rank gets its part of the sums.
  uint32_t Scatter() {
    const std::vector<Var*> vars = PackedVars(X(), Out(), state.nranks);
    for (Var* var : vars) {
      Expect(var->of == var, var->name, " is a copy");
      ReplaceGradient(var, false);
    }
    const Kind kind = vars.empty() ? kLost : vars[0]->kind;
    Expect(op.Find("nranks") != nullptr &&
               std::all_of(vars.begin(), vars.end(), [&](Var* var) { return var->kind == kind; }),
           "expected a number of ranks, and sums of one kind");
    HoldShare(vars, X(), kind, &Out(), &state);
    for (Var* var : vars) var->kind = kLost;  // as it was before, of this rank
    return LaunchCall("scatter", X());
  }

  // Each rank gets a part from each rank.
  uint32_t Send() {
    SendParts(&X(), &Out(), &state);
    return LaunchCall("all-to-all", X());
  }

  template <void (*rule)(const Slots&)>
  uint32_t Run() {
    rule(*this);
    return state.Launch(0);
  }
  uint32_t Condition() {
    RunBranch(*this);
    return kHost;
  }

  // A ring of all ranks, on as many devices if they are named. It waits until the ops before end.
  uint32_t SetUp() {
    const size_t devices = op.Numbers("devices").size();
    const auto ring = static_cast<uint64_t>(op.Number("ring_id", 0));
    Expect((devices == 0 || devices == state.nranks) && state.set_up.insert(ring).second &&
               state.rings.count(ring) == 0,
           "the ring does not have all ranks, is set up twice, or after its use");
    Note(Text(std::to_string(ring), " ", op.type), in.empty() ? "" : X().name);
    return WaitFor(0, kHost);
  }

  // An id is made by rank 0 and sent to the endpoints of the others.
  uint32_t MakeId() {
    const Attr *const own = op.Find("endpoint"), *const others = op.Find("other_endpoints");
    const auto rank = static_cast<uint64_t>(op.Number("rank", 0));
    Expect(out.size() == 1 && own != nullptr && others != nullptr && state.nranks > 0,
           "expected Out, endpoints, and a known number of ranks");
    std::vector<std::string_view> all = others->Texts();
    Expect(rank <= all.size() && own->Texts().size() == 1, "expected a rank and its endpoint");
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(rank), own->Texts()[0]);
    const std::set<std::string_view> different(all.begin(), all.end());
    for (const std::string_view endpoint : all) {
      for (const char c : endpoint) Expect(c > 0x20 && c < 0x7f, "expected printable endpoints");
    }
    Expect(all.size() == state.nranks && different.size() == all.size() &&
               (state.endpoints.empty() || (all == state.endpoints && rank == state.rank)),
           "expected an endpoint for each rank, the same for all rings");
    state.endpoints = std::move(all);
    state.rank = rank;
    Var& id = New(out[0]);
    Expect(id.type == 17 && !id.has_value, id.name, " is no new id");
    id.has_value = true;
    Note("id", id.name);
    return WaitFor(0, kHost);
  }

  uint32_t Init() {
    Var& id = New(&X());
    Expect(id.has_value && !id.is_frozen, id.name, " is no unused id");
    id.is_frozen = true;
    Expect(
        op.Find("nranks") != nullptr && op.Number("rank", -1) == static_cast<int64_t>(state.rank),
        "the ring does not have all ranks, or this one has another number");
    return SetUp();
  }
};

// Where it may be: m in main programs, s in startup programs; where states are shared out, also d
// and e; where parameters are averaged, a and t. Its role in main programs is backward, or optimize
// where parameters are averaged; *: any; f: where states are shared out, forward, too. Slots have
// these names or begin in lower case, as in Paddle 3; others are empty. Attributes: i an integer,
// b a boolean, f a float, s text, S texts, I integers, B a block, n the number of ranks, 0 what is
// zero or empty, * anything.
struct Rule {
  std::string_view where, types, in, out, attrs;
  uint32_t (NewOp::*apply)();
  std::string_view also = "", more = "";  // second slots of inputs, of outputs
};
constexpr std::string_view kOfCall = " ring_id:i use_calc_stream:b ",
                           kOfRanks = " ring_id:i use_calc_stream:b nranks:n ",
                           kOfFill = " dtype:i shape:I value:f str_value:s ";
constexpr Rule kRules[] = {
    {"msat*", " c_wait_compute c_wait_comm c_sync_calc_stream c_sync_comm_stream ", "X", "Out",
     " ring_id:i ", &NewOp::Wait},
    {"mst*", " c_broadcast broadcast ", "X", "Out", " ring_id:i use_calc_stream:b root:0 ",
     &NewOp::Broadcast},
    {"ma", " c_allreduce_sum c_allreduce_avg ", "X", "Out",
     " ring_id:i use_calc_stream:b accumulate_type:* ", &NewOp::Reduce},
    {"ma", " all_reduce ", "X", "Out",
     " ring_id:i use_calc_stream:b accumulate_type:* reduce_type:i ", &NewOp::Reduce},
    {"d", " c_allreduce_max ", "X", "Out", kOfCall, &NewOp::Reduce},
    {"mda", " scale ", "X", "Out", " scale:f bias:0 bias_after_scale:* nranks:n ", &NewOp::Scale},
    {"ma", " cast ", "X", "Out", " in_dtype:i out_dtype:i ", &NewOp::Cast},
    {"mdeaf", " coalesce_tensor ", "Input", "Output",
     " align_size:i concated_ranks:I concated_shapes:I constant:* copy_data:b dtype:i "
     "persist_output:0 set_constant:0 use_align:b user_defined_size_of_dtype:i ",
     &NewOp::Coalesce, "", "FusedOutput"},
    {"mdf", " c_allgather all_gather ", "X", "Out", kOfRanks, &NewOp::Gather},
    {"m", " split ", "X", "Out", " axis:0 num:n sections:0 ", &NewOp::Split},
    {"m", " sum ", "X", "Out", " ", &NewOp::SumParts},
    {"st", " c_comm_init_all comm_init_all ", "", "", " ring_id:i nranks:n devices:I ",
     &NewOp::SetUp},
    {"st", " c_gen_nccl_id ", "", "Out", " rank:i endpoint:s other_endpoints:S ring_id:i ",
     &NewOp::MakeId},
    {"st", " c_comm_init ", "X", "", " ring_id:i nranks:n rank:i device_id:* endpoints:0 ",
     &NewOp::Init},
    {"d", " c_reducescatter reduce_scatter ", "X", "Out", kOfRanks, &NewOp::Scatter},
    {"de", " fill_constant ", "", "Out", kOfFill, &NewOp::Run<FillNew>},
    {"e", " alltoall all_to_all ", "X", "Out", kOfCall, &NewOp::Send},
    {"e", " slice ", "Input", "Out", " axes:I starts:I ends:I ", &NewOp::Run<SliceShare>},
    {"a", " assign ", "X", "Out", " ", &NewOp::Run<Compute>},
    {"a",
     " elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_mod equal "
     "less_than greater_equal logical_and logical_or ",
     "X", "Out", " axis:i ", &NewOp::Run<Compute>, "Y"},
    {"a", " increment ", "X", "Out", " step:f ", &NewOp::Run<Count>},
    {"a", " fill_constant ", "", "Out", kOfFill, &NewOp::Run<Fill>},
    {"a", " conditional_block ", "Cond", "Out", " sub_block:B is_scalar_condition:b ",
     &NewOp::Condition, "Input", "Scope"},
    {"t", " assign ", "X", "Out", " ", &NewOp::Run<BeginState>},
    {"t", " fill_constant ", "", "Out", kOfFill, &NewOp::Run<BeginState>},
};
constexpr std::string_view kOfAll =
    "op_role:i op_role_var:* op_callstack:* op_namescope:* op_device:0 with_quant_attr:0 "
    "use_mkldnn:0 use_model_parallel:0 ";

const Rule& RuleOf(std::string_view type, const char* programs) {
  const std::string word = Text(" ", type, " ");
  const auto is_it = [&](const Rule& rule) {
    return rule.where.find_first_of(programs) != rule.where.npos &&
           rule.types.find(word) != rule.types.npos;
  };
  const auto* const rule = std::find_if(std::begin(kRules), std::end(kRules), is_it);
  Expect(rule != std::end(kRules) && type.find(' ') == type.npos, "no rule inserts such an op");
  return *rule;
}

void CheckAttr(const Attr& attr, std::string_view known, uint64_t nranks) {
  const size_t at = known.find(Text(" ", attr.name, ":"));
  Expect(at != known.npos && attr.name.find_first_of(" :") == attr.name.npos,
         "no rule allows attribute ", attr.name);
  const char what = known[at + attr.name.size() + 2];
  const auto is = [&](char kind, uint64_t a, uint64_t b) {
    return what == kind && (attr.type == a || attr.type == b);
  };
  Expect(what == '*' || is('i', Attr::kInt, Attr::kLong) || is('b', Attr::kBool, Attr::kBool) ||
             is('f', Attr::kFloat, Attr::kFloat) || is('s', Attr::kString, Attr::kString) ||
             is('S', Attr::kStrings, Attr::kStrings) || is('I', Attr::kInts, Attr::kLongs) ||
             is('B', Attr::kBlock, Attr::kBlock) ||
             (is('n', Attr::kInt, Attr::kLong) && attr.Numbers() == std::vector{nranks}) ||
             (what == '0' && attr.IsZero()),
         "attribute ", attr.name, " has another type or value than the rule says");
}

// What a slot holds.
std::vector<Var*> VarsOf(const Op& op, bool is_output, std::string_view slot, State* state) {
  const auto is_it = [&](const Op::Slot& other) {
    return other.is_output == is_output && !slot.empty() && !other.name.empty() &&
           other.name.substr(1) == slot.substr(1) && (other.name[0] | 32) == (slot[0] | 32);
  };
  Expect(std::count_if(op.slots.begin(), op.slots.end(), is_it) <= 1, "slot ", slot,
         " is there twice");
  std::vector<Var*> vars;
  for (const Op::Arg& arg : op.args) {
    if (!is_it(arg)) continue;
    vars.push_back(state->VarOf(arg.var));
    const uint64_t block = vars.back()->block;
    const auto& named = is_output ? state->writes : state->reads;
    Expect(block == state->block || (block == 0 && named.count(vars.back()) > 0), arg.var,
           " is not named by the op that runs the block, or is in another one");
  }
  return vars;
}

}  // namespace

void Insert(const Op& op, State* state) {
  const bool is_main = state->main == nullptr;
  if (UpdatesShares(op, *state)) return UpdateShares(op, state);
  const char* const programs = state->averages      ? (is_main ? "a" : "t")
                               : state->HasShares() ? (is_main ? "dm" : "es")
                               : is_main            ? "m"
                                                    : "s";
  const Rule& rule = RuleOf(op.type, programs);
  const std::string known = Text(rule.attrs, kOfAll);
  for (const Attr& attr : op.attrs) CheckAttr(attr, known, state->nranks);
  NewOp added{{op, *state, VarsOf(op, false, rule.in, state), VarsOf(op, true, rule.out, state),
               VarsOf(op, true, rule.more, state), VarsOf(op, false, rule.also, state)}};
  const size_t size = added.in.size() + added.out.size() + added.more.size() + added.also.size();
  Expect(op.args.size() == size, "it has another variable");
  const auto has = [&](char what) { return rule.where.find(what) != rule.where.npos; };
  const bool adds_up = !added.in.empty() && state->totals.count(added.in[0]) > 0;
  const bool optimizes = state->averages || adds_up;
  const int64_t role = op.Number("op_role", state->averages ? 0 : 1) & ~int64_t{256};  // of a loss
  const bool may_be_forward = has('f') && state->HasShares() && !optimizes;
  Expect(!is_main || has('*') || role == (optimizes ? 2 : 1) || (role == 0 && may_be_forward),
         "attribute op_role: expected ",
         optimizes        ? "optimize"
         : may_be_forward ? "forward or backward"
                          : "backward");
  // Of shares, and of what ranks add up, other rules know nothing.
  for (Var* var : has('d') || has('e') || has('*') ? std::vector<Var*>() : added.out) {
    Expect(state->shares.count(var) == 0 && (adds_up || state->totals.count(var) == 0), var->name,
           " is a share, or the sum of shares");
  }
  state->has_ended = state->has_ended || (is_main && state->averages && !has('*'));
  const uint32_t stream = (added.*rule.apply)();
  if (stream == kHost) return;
  added.in.insert(added.in.end(), added.also.begin(), added.also.end());
  for (Var* var : added.in) state->Touch(stream, var, false);
  added.out.insert(added.out.end(), added.more.begin(), added.more.end());
  for (Var* var : added.out) state->Touch(stream, var, true);
}

}  // namespace checker
