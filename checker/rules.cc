// Ops that the result has and the original has not: each is an instance of a rule.
#include <algorithm>

#include "checker/walk.h"

namespace checker {

// Where it may be: m in main programs, s in startup programs; b: its role is backward. Slots have
// these names or begin in lower case, as in Paddle 3; others are empty. Attributes: i an integer, b
// a boolean, f a float, s text, S texts, I integers, n the number of ranks, 0 what is zero or
// empty,
// * anything.
struct Walk::Rule {
  std::string_view where, types, in, out, more, attrs;
  void (Walk::*apply)();
};
const Walk::Rule Walk::kRules[] = {
    {"ms", " c_wait_compute c_wait_comm c_sync_calc_stream c_sync_comm_stream ", "X", "Out", "",
     " ring_id:i ", &Walk::Wait},
    {"ms", " c_broadcast broadcast ", "X", "Out", "", " ring_id:i use_calc_stream:b root:0 ",
     &Walk::Broadcast},
    {"mb", " c_allreduce_sum c_allreduce_avg ", "X", "Out", "",
     " ring_id:i use_calc_stream:b accumulate_type:* ", &Walk::AllReduce},
    {"mb", " all_reduce ", "X", "Out", "",
     " ring_id:i use_calc_stream:b accumulate_type:* reduce_type:i ", &Walk::AllReduce},
    {"mb", " scale ", "X", "Out", "", " scale:f bias:0 bias_after_scale:* nranks:n ", &Walk::Scale},
    {"mb", " cast ", "X", "Out", "", " in_dtype:i out_dtype:i ", &Walk::Cast},
    {"mb", " coalesce_tensor ", "Input", "Output", "FusedOutput",
     " align_size:i concated_ranks:I concated_shapes:I constant:* copy_data:b dtype:i "
     "persist_output:0 set_constant:0 use_align:b user_defined_size_of_dtype:i ",
     &Walk::Coalesce},
    {"mb", " c_allgather all_gather ", "X", "Out", "", " ring_id:i nranks:n use_calc_stream:b ",
     &Walk::Gather},
    {"mb", " split ", "X", "Out", "", " axis:0 num:n sections:0 ", &Walk::Split},
    {"mb", " sum ", "X", "Out", "", " ", &Walk::SumParts},
    {"s", " c_comm_init_all comm_init_all ", "", "", "", " ring_id:i nranks:n devices:I ",
     &Walk::SetUp},
    {"s", " c_gen_nccl_id ", "", "Out", "", " rank:i endpoint:s other_endpoints:S ring_id:i ",
     &Walk::MakeId},
    {"s", " c_comm_init ", "X", "", "", " ring_id:i nranks:n rank:i device_id:* endpoints:0 ",
     &Walk::Init},
};
constexpr std::string_view kOfAll =
    "op_role:i op_role_var:* op_callstack:* op_namescope:* op_device:0 with_quant_attr:0 "
    "use_mkldnn:0 use_model_parallel:0 ";

void Walk::Insert() {
  const char program = main_ == nullptr ? 'm' : 's';
  const Rule* rule = nullptr;
  for (const Rule& candidate : kRules) {
    const bool is_it = candidate.where.find(program) != candidate.where.npos &&
                       candidate.types.find(Text(" ", op_->type, " ")) != candidate.types.npos;
    if (is_it) rule = &candidate;
  }
  Expect(rule != nullptr && op_->type.find(' ') == op_->type.npos, "no rule inserts such an op");
  const std::string known = Text(rule->attrs, kOfAll);
  for (const Attr& attr : op_->attrs) {
    const size_t at = known.find(Text(" ", attr.name, ":"));
    Expect(at != known.npos && attr.name.find_first_of(" :") == attr.name.npos,
           "no rule allows attribute ", attr.name);
    const char what = known[at + attr.name.size() + 2];
    const auto is = [&](char kind, uint64_t a, uint64_t b) {
      return what == kind && (attr.type == a || attr.type == b);
    };
    const bool is_right =
        what == '*' || is('i', Attr::kInt, Attr::kLong) || is('b', Attr::kBool, Attr::kBool) ||
        is('f', Attr::kFloat, Attr::kFloat) || is('s', Attr::kString, Attr::kString) ||
        is('S', Attr::kStrings, Attr::kStrings) || is('I', Attr::kInts, Attr::kLongs) ||
        (is('n', Attr::kInt, Attr::kLong) && attr.Numbers() == std::vector{setting_.nranks}) ||
        (what == '0' && attr.IsZero());
    Expect(is_right, "attribute ", attr.name, " has another type or value than the rule says");
  }
  in_ = Args(false, rule->in);
  out_ = Args(true, rule->out);
  more_ = Args(true, rule->more);
  size_t num_args = 0;
  for (const Slot& slot : op_->slots) slot.ForArgs([&](std::string_view) { ++num_args; });
  Expect(num_args == in_.size() + out_.size() + more_.size(), "it has another variable");
  (this->*rule->apply)();
  Expect(rule->where != "mb" || (Number("op_role", 1) & 15) == 1,
         "attribute op_role: expected backward");
}

std::vector<Var*> Walk::Args(bool is_output, std::string_view name) {
  std::vector<Var*> args;
  bool is_found = false;
  for (const Slot& slot : op_->slots) {
    const bool is_it = slot.is_output == is_output && !name.empty() && !slot.name.empty() &&
                       slot.name.substr(1) == name.substr(1) &&
                       (slot.name[0] | 32) == (name[0] | 32);
    Expect(!is_it || !is_found, "slot ", name, " is there twice");
    is_found = is_found || is_it;
    if (is_it) slot.ForArgs([&](std::string_view arg) { args.push_back(VarOf(arg)); });
  }
  return args;
}

std::vector<uint64_t> Walk::Numbers(std::string_view name) const {
  const Attr* const attr = op_->Find(name);
  return attr == nullptr ? std::vector<uint64_t>() : attr->Numbers();
}

int64_t Walk::Number(std::string_view attr, int64_t absent) const {
  if (op_->Find(attr) == nullptr) return absent;
  const std::vector<uint64_t> numbers = Numbers(attr);
  return numbers.empty() ? 0 : static_cast<int64_t>(numbers[0]);
}

Var& Walk::NewVar(Var* var) const {
  Expect(var->of != var && !var->in_buffer && var->parts.empty(), "it may not use ", var->name);
  return *var;
}

namespace {

// What an op works on that has one X and one Out.
Var& One(const std::vector<Var*>& args) {
  Expect(args.size() == 1, "expected one X, and one Out");
  return *args[0];
}

Var& InPlace(const std::vector<Var*>& in, const std::vector<Var*>& out) {
  Expect(&One(in) == &One(out), "expected Out to be X");
  return *in[0];
}

std::vector<Var*> PartsOf(Var* var) {
  std::vector<Var*> parts;
  for (const auto& [part, offset] : var->parts) parts.push_back(part);
  return parts.empty() ? std::vector<Var*>{var} : parts;
}

// What a variable holds is a value of the original, in this form, and still current there.
const Var& Current(const Var& var, bool is_whole) {
  Expect(var.of != nullptr && (var.of == &var || var.of_version == var.of->version) &&
             var.kind != kLost && (!is_whole || var.form == kWhole),
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

}  // namespace

void Walk::AllReduce() {
  const int64_t reduction = Number("reduce_type", 0);
  Expect(reduction == 0 || reduction == 4, "attribute reduce_type: expected 0 or 4");
  const bool averages = op_->type == "c_allreduce_avg" || reduction == 4;
  Var& var = InPlace(in_, out_);
  for (Var* part : PartsOf(&var)) Reduce(part, averages);
  TouchAll(LaunchCall(averages ? "mean" : "sum", var), &var, true);
}

void Walk::Reduce(Var* var, bool averages) {
  Var& gradient = *VarOf(Current(*var, true).of->name);
  const bool is_scaled = var->kind == kScaled;
  Expect(gradient.is_gradient && !gradient.is_reduced, gradient.name,
         gradient.is_reduced ? " is reduced twice" : " is no gradient of a parameter");
  Expect(!gradient.read_since_write, "an op uses ", gradient.name, " before its reduction");
  Expect(gradient.has_value && !gradient.persistable && gradient.type == 7 &&
             gradient.elements >= 0 && gradient.FloatSize() > 0,
         gradient.name, " is no tensor of a known size that this step computes");
  Expect(var->kind != kSum && (!is_scaled || (!averages && !setting_.sums)), var->name,
         " is divided by n or reduced already");
  Expect(!averages || !setting_.sums, "expected a sum, as the claim says");
  // From here on, the original of the claim has the gradient of all ranks.
  var->of_version = ++gradient.version;
  ++num_gradients;
  gradient.is_reduced = true;
  if (&gradient != var) gradient.kind = kLost;
  var->kind = is_scaled || averages || setting_.sums ? kSame : kSum;
  var->equal = true;
}

// A division by the number of ranks.
void Walk::Scale() {
  const Attr* const scale = op_->Find("scale");
  const std::vector<float> factor = {1.0F / static_cast<float>(setting_.nranks)};
  Expect(setting_.nranks > 0 && scale != nullptr && scale->Values(&Fields::Float) == factor,
         "attribute scale: expected 1 / ranks");
  Var& x = InPlace(in_, out_);
  for (Var* var : PartsOf(&x)) {
    Expect(!setting_.sums && Current(*var, true).kind != kScaled && var->FloatSize() > 0, var->name,
           " is not to be divided");
    var->kind = var->kind == kSum ? kSame : kScaled;
  }
  TouchAll(Launch(0), &x, true);
}

// A copy of a gradient in another type, or back.
void Walk::Cast() {
  Var &x = One(in_), &y = One(out_);
  Expect(Number("in_dtype", -1) == x.dtype && Number("out_dtype", -1) == y.dtype &&
             x.FloatSize() > 0 && y.FloatSize() > 0 && x.parts.size() == y.parts.size(),
         "the attributes or parts do not fit the variables");
  const std::vector<Var*> sources = PartsOf(&x), targets = PartsOf(&y);
  for (size_t i = 0; i < sources.size(); ++i) {
    const Var& source = Current(*sources[i], true);
    Var& target = *targets[i];
    const bool is_original = target.of == &target;
    Expect(
        (x.parts.empty() || (x.parts[i].second >= 0 && x.parts[i].second == y.parts[i].second)) &&
            source.Dims() == target.Dims() &&
            (!is_original || (source.of == &target && target.is_gradient)),
        target.name, " cannot hold ", source.name);
    Hold(source, kWhole, &target);
    target.is_rounded = source.is_rounded || y.FloatSize() < x.FloatSize() || y.FloatSize() == 2;
    if (is_original && target.is_rounded) ++num_rounded;
  }
  TouchAll(Launch(0), &x, false);
  TouchAll(0, &y, true);
}

// Tensors become parts of one buffer.
void Walk::Coalesce() {
  const int64_t dtype = Number("dtype", -1), size = Decl::SizeOf(dtype);
  const int64_t given = Number("user_defined_size_of_dtype", -1), align = Number("align_size", -1);
  const bool copies = Number("copy_data", 0) != 0, aligns = Number("use_align", 1) != 0;
  Expect(size > 0 && align <= 1 << 20 && (given == -1 || given == size) && !in_.empty() &&
             in_ == out_ && more_.size() == 1,
         "expected a type of floats and its size, Input, the same Output, and FusedOutput");
  const bool is_known = !aligns || align > 0;  // else the device decides where parts begin
  const int64_t unit = aligns ? std::max<int64_t>(1, align / size) : 1;
  std::vector<uint64_t> shapes, ranks;
  int64_t end = 0;
  Var& fused = NewVar(more_[0]);
  Launch(0);
  for (Var* var : in_) {
    Spend(0, 64);
    Expect(var->type == 7 && var->dtype == dtype && var->elements >= 0 &&
               var->elements <= int64_t{1} << 40 && !var->persistable && end < int64_t{1} << 60,
           var->name, " is no tensor of a known size and of this type");
    Expect(!var->in_buffer && var->parts.empty() && var != &fused, var->name,
           " is in a buffer already");
    var->in_buffer = true;
    fused.parts.emplace_back(var, is_known ? end : -1);
    end += (var->elements + unit - 1) / unit * unit;
    const std::vector<int64_t> dims = var->Dims();
    shapes.insert(shapes.end(), dims.begin(), dims.end());
    ranks.push_back(dims.size());
    if (copies) var->read_first = var->read_first || !var->has_value;
    if (!copies) var->kind = kLost;
  }
  const auto is_list = [&](const char* attr, const std::vector<uint64_t>& list) {
    const std::vector<uint64_t> numbers = Numbers(attr);
    return numbers.empty() || numbers == list;
  };
  Expect(is_list("concated_shapes", shapes) && is_list("concated_ranks", ranks),
         "its attributes have other shapes than the variables");
  Expect(fused.dtype == dtype && (!is_known || fused.elements == end),
         "FusedOutput is not declared with ", std::to_string(end), " elements of this type");
  TouchAll(0, &fused, true);
}

// Of rank 0. In the main program, of what is equal on all ranks: nothing changes.
void Walk::Broadcast() {
  Var& var = InPlace(in_, out_);
  Expect(var.of == &var && var.kind == kSame && HasValue(var) && (main_ != nullptr || var.equal),
         var.name, " has no value, or not an equal one on all ranks");
  var.is_frozen = main_ != nullptr;
  var.equal = true;
  Touch(LaunchCall("broadcast", var), &var, true);
}

void Walk::Gather() {
  Var &x = One(in_), &y = NewVar(&One(out_));
  std::vector<int64_t> dims = x.Dims();
  if (dims.empty()) dims.push_back(1);
  dims[0] *= static_cast<int64_t>(setting_.nranks);
  Expect(op_->Find("nranks") != nullptr && setting_.nranks > 0 && x.of == &x &&
             Current(x, true).kind <= kScaled && x.elements >= 0 && y.elements >= 0 &&
             y.Dims() == dims && y.dtype == x.dtype,
         "expected a number of ranks, and Out declared for the values of all");
  Hold(x, kGathered, &y);
  const uint32_t stream = LaunchCall("gather", x);
  Touch(stream, &x, false);
  Touch(stream, &y, true);
}

void Walk::Split() {
  Var& x = One(in_);
  Expect(Current(x, false).form == kGathered && out_.size() == setting_.nranks &&
             op_->Find("num") != nullptr,
         "expected the values of all ranks, and a part for each");
  Touch(Launch(0), &x, false);
  for (uint32_t i = 0; i < out_.size(); ++i) {
    Var& part = NewVar(out_[i]);
    Expect(&part != &x && part.elements == x.of->elements && part.dtype == x.dtype, part.name,
           " is not declared for the value of a rank");
    Hold(x, kPart + i, &part);
    Touch(0, &part, true);
  }
}

void Walk::SumParts() {
  Var& sum = One(out_);
  Expect(in_.size() == setting_.nranks, "expected a part for each rank");
  std::set<uint32_t> forms;
  Launch(0);
  for (Var* part : in_) {
    Expect(Current(*part, false).form >= kPart && part->kind == in_[0]->kind && part->of == &sum &&
               forms.insert(part->form).second,
           part->name, " is not the value of another rank");
    Touch(0, part, false);
  }
  sum.kind = in_[0]->kind;
  Reduce(&sum, false);
  Touch(0, &sum, true);
}

}  // namespace checker
