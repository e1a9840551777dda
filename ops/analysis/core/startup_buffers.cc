#include "ops/analysis/core/startup_buffers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/feed_ops.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

std::vector<std::string> NamesOf(const Program& program, absl::Span<const Symbol> symbols) {
  std::vector<std::string> names;
  for (Symbol name : symbols) names.emplace_back(program.name(name));
  return names;
}

bool IsPersistable(const Program& program, VarId var) {
  return var.valid() && program.var(var).persistable();
}

// What the ops of a main program do with one buffer, or with its parts.
struct Accesses {
  int first_write = -1, last_read = -1;  // ops of the root block, by position
  OpId writer, reader;
  std::string written, read;  // names

  bool IsWritten() const { return writer.valid(); }
  bool IsRead() const { return reader.valid(); }
};

class UseFinder {
 public:
  UseFinder(const Program& main, absl::Span<const StartupBuffer> buffers)
      : main_(main), buffers_(buffers), traits_(main), uses_(buffers.size()) {
    accesses_.resize(buffers.size());
    for (size_t b = 0; b < buffers.size(); ++b) {
      Know(buffers[b].name, {b, /*is_part=*/false});
      for (const StartupBuffer::Part& part : buffers[b].parts) Know(part.name, {b, true});
    }
  }

  std::vector<StartupBufferUse> Run() {
    if (known_.empty()) return std::move(uses_);
    for (OpId id : main_.block(0).ops()) {
      Visit(main_.op(id), static_cast<int>(main_.op(id).position()));
    }
    for (size_t b = 0; b < buffers_.size(); ++b) Conclude(b);
    return std::move(uses_);
  }

 private:
  struct Member {
    size_t buffer;
    bool is_part;
  };
  struct OfBuffer {
    Accesses whole, parts;
  };

  void Know(const std::string& name, Member member) {
    const VarId var = main_.block(0).FindVar(name);
    if (var.valid()) known_[var].push_back(member);
  }

  // `position`: of the op of the root block.
  void Visit(const Op& op, int position) {
    if (IsFeed(op.type()) || IsFetch(op.type()) || traits_.Has(op, Trait::kStreamSync)) return;
    const Block block = main_.block(op.block());
    const auto for_each = [&](absl::Span<const Symbol> names, auto visit) {
      for (Symbol name : names) {
        const auto found = known_.find(block.Resolve(name));
        if (found == known_.end()) continue;
        for (const Member& member : found->second) visit(member, main_.name(name));
      }
    };
    if (traits_.Has(op, Trait::kAlias)) {
      std::vector<Member> moved;
      for_each(op.output_args(), [&](const Member& member, absl::string_view) {
        (member.is_part ? uses_[member.buffer].moves_parts : uses_[member.buffer].is_remade) = true;
        if (member.is_part) moved.push_back(member);
      });
      // From here on, what is done with the other buffer is done with the parts.
      const MadeBuffer made = MadeBufferOf(op);
      if (!moved.empty() && made.name.valid()) {
        std::vector<Member>& members = known_[block.Resolve(made.name)];
        for (const Member& member : moved) {
          const auto is_same = [&member](const Member& other) {
            return other.buffer == member.buffer;
          };
          if (absl::c_none_of(members, is_same)) members.push_back(member);
        }
      }
      if (!made.constant.has_value()) return;
    } else {
      for_each(op.input_args(), [&](const Member& member, absl::string_view name) {
        Accesses& of = Of(member);
        of.last_read = position;
        of.reader = op.id();
        of.read = std::string(name);
      });
    }
    for_each(op.output_args(), [&](const Member& member, absl::string_view name) {
      Accesses& of = Of(member);
      if (of.IsWritten()) return;
      of.first_write = position;
      of.writer = op.id();
      of.written = std::string(name);
    });
    for (int inner : op.SubBlocks()) {
      for (OpId id : main_.block(inner).ops()) Visit(main_.op(id), position);
    }
  }

  Accesses& Of(const Member& member) {
    return member.is_part ? accesses_[member.buffer].parts : accesses_[member.buffer].whole;
  }

  void Conclude(size_t b) {
    StartupBufferUse& use = uses_[b];
    if (use.is_remade) return;
    const Accesses &whole = accesses_[b].whole, &parts = accesses_[b].parts;
    const std::string& name = buffers_[b].name;
    use.writes_buffer = whole.IsWritten() && !parts.IsWritten();
    const Accesses& source = use.writes_buffer ? whole : parts;
    const Accesses& copy = use.writes_buffer ? parts : whole;
    use.reads_copy = copy.IsRead();
    if (copy.IsWritten()) {
      use.conflict = absl::StrCat(main_.op(whole.writer).DebugName(), " writes ", name, ", and ",
                                  main_.op(parts.writer).DebugName(), " writes ", parts.written,
                                  ", which the startup program makes a part of it");
      return;
    }
    if (!copy.IsRead() || !source.IsWritten() || copy.last_read < source.first_write) return;
    const bool is_one_op = copy.last_read == source.first_write;
    if (is_one_op && main_.op(source.writer).SubBlocks().empty() && copy.reader == source.writer) {
      return;  // it reads before it writes
    }
    use.conflict =
        absl::StrCat(main_.op(copy.reader).DebugName(), " reads ", copy.read, " after ",
                     main_.op(source.writer).DebugName(), " has written ", source.written,
                     ": the startup program makes ", use.writes_buffer ? copy.read : source.written,
                     " a part of ", name);
  }

  const Program& main_;
  const absl::Span<const StartupBuffer> buffers_;
  OpTraits traits_;
  absl::flat_hash_map<VarId, std::vector<Member>> known_;
  std::vector<OfBuffer> accesses_;      // by buffer
  std::vector<StartupBufferUse> uses_;  // by buffer
};

}  // namespace

std::vector<StartupBuffer> FindStartupBuffers(const Program& startup) {
  std::map<std::string, StartupBuffer> buffers;
  std::map<std::string, std::string> buffer_of;  // by part
  const Storage storage(startup);
  for (const Storage::Buffer& made : storage.buffers()) {
    if (made.block != 0) break;
    const std::vector<std::string> slices = NamesOf(startup, made.parts);
    for (const std::string& slice : slices) {
      const auto before = buffer_of.find(slice);
      if (before == buffer_of.end()) continue;
      std::vector<StartupBuffer::Part>& parts = buffers[before->second].parts;
      parts.erase(std::remove_if(parts.begin(), parts.end(),
                                 [&](const auto& part) { return part.name == slice; }),
                  parts.end());
      buffer_of.erase(before);
    }
    if (!IsPersistable(startup, made.var)) continue;
    const std::string name(startup.name(made.name));
    StartupBuffer& buffer = buffers[name];
    for (const StartupBuffer::Part& part : buffer.parts) buffer_of.erase(part.name);
    buffer = {name, 0, {}};
    const Storage::Layout layout = storage.LayoutOf(made);
    if (!layout.is_known()) continue;
    buffer.size = layout.size;
    for (size_t i = 0; i < slices.size(); ++i) {
      if (!IsPersistable(startup, made.part_vars[i])) continue;
      buffer.parts.push_back({slices[i], layout.offsets[i], layout.counts[i]});
      buffer_of[slices[i]] = name;
    }
  }
  std::vector<StartupBuffer> found;
  for (auto& [name, buffer] : buffers) {
    if (!buffer.parts.empty()) found.push_back(std::move(buffer));
  }
  return found;
}

std::vector<StartupBufferUse> FindStartupBufferUses(const Program& main,
                                                    absl::Span<const StartupBuffer> buffers) {
  return UseFinder(main, buffers).Run();
}

}  // namespace weft
