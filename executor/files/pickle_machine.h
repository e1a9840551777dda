// The machine that the instructions of a pickle drive, as far as arrays need it.
#ifndef WEFT_EXECUTOR_FILES_PICKLE_MACHINE_H_
#define WEFT_EXECUTOR_FILES_PICKLE_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/schema/tensor_type.h"

namespace weft {

// An object of a pickle. Those that it is made of are named by their number.
struct PickleObject {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kBytes,
    kText,
    kTuple,
    kList,
    kDict,    // items: keys and values in turn
    kGlobal,  // a class or function; `number` is a Global
    kDType,
    kArray,
    kOther,  // a number of NumPy
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;      // of kBool, kInt, kGlobal
  absl::string_view text;  // of kBytes and kText
  std::vector<uint32_t> items;

  // Of kDType and kArray.
  DType dtype = DType::kFloat32;
  Dims dims;
  bool is_fortran_order = false;
  bool is_complete = false;  // has its elements, which are `text`
};

// Runs the instructions of a pickle of protocol 2 to 4. Memory is at most twice the bytes of the
// pickle, for decoded texts and for objects, and 64 MiB.
class PickleMachine {
 public:
  // Of any pickle. An array is made of 10 to 30 objects, which stand for some hundred bytes of the
  // file, so that files with more need not many more than these.
  static constexpr size_t kFreeObjects = 1 << 18;

  // `bytes` must outlive the objects.
  explicit PickleMachine(absl::string_view bytes) : rest_(bytes), size_(bytes.size()) {}

  // Returns the number of the object that the pickle leaves. InvalidArgument, with the byte at
  // which an instruction begins, if there is one that no array needs, an operand that does not fit
  // it, or no end.
  absl::StatusOr<uint32_t> Run();

  const PickleObject& object(uint32_t number) const { return objects_[number]; }

 private:
  using Kind = PickleObject::Kind;

  absl::Status Step(char instruction, bool* stops);
  absl::Status PushLiteral(char instruction, bool* known);
  absl::Status Collect(char instruction, bool* known);
  absl::Status Memorize(char instruction, bool* known);

  absl::StatusOr<absl::string_view> Take(uint64_t size);
  absl::StatusOr<uint64_t> TakeNumber(int bytes);
  absl::StatusOr<absl::string_view> TakeSized(int length_bytes);
  absl::StatusOr<absl::string_view> TakeLine();

  absl::StatusOr<uint32_t> Pop();
  // Those above the last mark, which goes too.
  absl::StatusOr<std::vector<uint32_t>> PopToMark();
  void Push(PickleObject object);
  absl::StatusOr<PickleObject*> Top(Kind kind, const char* expected);

  absl::Status CheckSize() const;
  absl::Status PushTuple(size_t size);
  absl::Status PushGlobal(absl::string_view module, absl::string_view name);
  absl::Status Reduce();
  absl::Status Build();
  absl::Status BuildArray(PickleObject* array, const PickleObject& state);
  absl::Status MakeDType(const PickleObject& arguments);
  absl::Status DecodeLatin1(const PickleObject& arguments);
  bool Is(uint32_t number, Kind kind) const { return objects_[number].kind == kind; }

  absl::string_view rest_;
  const size_t size_;
  std::deque<PickleObject> objects_;  // stay where they are
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;        // sizes of the stack
  std::deque<std::string> decoded_;  // texts that are not in the file as they are
  size_t decoded_bytes_ = 0;
  size_t items_ = 0;  // of all objects
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_FILES_PICKLE_MACHINE_H_
