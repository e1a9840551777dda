// What analyses find out about a program, each thing once.
#ifndef WEFT_OPS_ANALYSIS_CORE_PROGRAM_FACTS_H_
#define WEFT_OPS_ANALYSIS_CORE_PROGRAM_FACTS_H_

#include <memory>
#include <mutex>
#include <type_traits>

#include "absl/container/flat_hash_map.h"
#include "proto/program.h"

namespace weft {

// Keeps the results of analyses until a commit changes the program:
//
//   for (Symbol loss : facts.Get(FindLosses)) Check(loss);
//   if (facts.Get<DevicePlacement>().on_two_devices()) ...
//
// Whoever examines a program makes its facts, and hands them to all that need them. A function that
// takes facts can be given the program instead; it then finds out what it needs.
//
// A small value, whose copies share the results. Thread-safe as long as nobody changes the program:
// if several threads ask for the same result, one computes it.
class ProgramFacts {
 public:
  // Finds out nothing yet. Refers to the program, which only commits may change.
  ProgramFacts(const Program& program)  // NOLINT(google-explicit-constructor): see above
      : program_(&program), results_(std::make_shared<Results>()) {}

  const Program& program() const { return *program_; }

  // What `find` returns, which takes a program, or facts to ask for other results. Valid until the
  // next commit, and as long as a copy of these facts. Only the first call costs what `find` does.
  template <typename T>
  const T& Get(T (*find)(const Program&)) const {
    return Get<T>(reinterpret_cast<Key>(find), [&] { return find(*program_); });
  }
  template <typename T>
  const T& Get(T (*find)(const ProgramFacts&)) const {
    return Get<T>(reinterpret_cast<Key>(find), [&] { return find(*this); });
  }
  // Likewise T(program) or T(facts). A T that is made of facts must not keep them, as they keep it.
  template <typename T>
  const T& Get() const {
    return Get(+[](const ProgramFacts& facts) {
      if constexpr (std::is_constructible_v<T, const ProgramFacts&>) {
        return T(facts);
      } else {
        return T(facts.program());
      }
    });
  }

 private:
  using Key = const void*;  // a function
  struct Result {
    std::once_flag once;
    std::shared_ptr<const void> value;
  };
  struct Results {
    std::mutex mutex;
    int revision = 0;
    absl::flat_hash_map<Key, std::unique_ptr<Result>> of;
  };

  template <typename T, typename Make>
  const T& Get(Key key, const Make& make) const {
    Result& result = Find(key);
    std::call_once(result.once, [&] { result.value = std::make_shared<const T>(make()); });
    return *static_cast<const T*>(result.value.get());
  }
  // Drops the results of earlier revisions.
  Result& Find(Key key) const;

  const Program* program_;
  std::shared_ptr<Results> results_;
};

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_PROGRAM_FACTS_H_
