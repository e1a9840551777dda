// A library for LD_PRELOAD: the N-th call of a function of the C library fails.
//
//   FAULT_CALL    the function: write, open, malloc, …
//   FAULT_AT      which call of it fails, from 1
//   FAULT_ERROR   the error number; SHORT: half the bytes are written or read
//   FAULT_SIGNAL  instead: the call succeeds, but this signal comes before it
//   FAULT_RANK    only in the process of this rank (WEFT_JOB_RANK); `launcher` has none
//   FAULT_COUNTS  a file that gets a line "<function> <calls>" for each function
//
//   FAULT_SYSTEM  set: system calls count, too, as functions whose names begin with `sys_`
//
// Calls count from the start of main. A call of a function that a library makes within itself is
// not seen: what the C library writes to standard output, for example. Its system calls are: a
// filter of the kernel sends SIGSYS for them. Programs that are executed have the filter, but not
// what handles the signal: FAULT_SYSTEM is for processes that execute none. oneDNN's mappings do
// not count: it uses memory for generated code that it has not got.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

enum Call {
  kAccept,
  kClose,
  kConnect,
  kFsync,
  kFtruncate,
  kMalloc,
  kMemfdCreate,
  kMmap,
  kOpen,
  kPoll,
  kPwrite,
  kRead,
  kRename,
  kSocket,
  kStat,
  kSysClose,
  kSysOpen,
  kSysRead,
  kSysStat,
  kSysWrite,
  kThread,
  kUnlink,
  kWrite,
  kCalls
};
const char* const kNames[kCalls] = {
    "accept",       "close",     "connect", "fsync",     "ftruncate", "malloc",
    "memfd_create", "mmap",      "open",    "poll",      "pwrite",    "read",
    "rename",       "socket",    "stat",    "sys_close", "sys_open",  "sys_read",
    "sys_stat",     "sys_write", "thread",  "unlink",    "write"};

std::atomic<bool> counts{false};
std::atomic<long> calls[kCalls];
int failing = -1;
long fails_at = 0;
int error_number = EIO;
bool is_short = false;
int signal_number = 0;

// Returns whether this call is the one that fails.
bool Fails(Call call) {
  if (!counts.load(std::memory_order_relaxed)) return false;
  if (calls[call].fetch_add(1) + 1 != fails_at || call != failing) return false;
  if (signal_number != 0) {
    raise(signal_number);
    return false;
  }
  errno = error_number;
  return true;
}

bool IsOfOneDnn(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && strstr(info.dli_fname, "libdnnl") != nullptr;
}

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct SystemCall {
  uint32_t number;
  Call call;
};
constexpr SystemCall kSystemCalls[] = {{SYS_close, kSysClose},     {SYS_openat, kSysOpen},
                                       {SYS_read, kSysRead},       {SYS_fstat, kSysStat},
                                       {SYS_newfstatat, kSysStat}, {SYS_pread64, kSysRead},
                                       {SYS_write, kSysWrite},     {SYS_writev, kSysWrite}};

// The system call that the filter lets through.
extern "C" long inject_system_call(long number, long, long, long, long, long);
extern "C" const char inject_system_call_end[];
asm(R"(
  .text
  .type inject_system_call, @function
inject_system_call:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  syscall
inject_system_call_end:
  ret
)");

// In place of a system call, whose registers are in the context.
void OnSystemCall(int, siginfo_t* info, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int saved = errno;
  long bytes = registers[REG_RDX];
  greg_t& result = registers[REG_RAX];
  for (const auto& [number, call] : kSystemCalls) {
    if (number != static_cast<uint32_t>(info->si_syscall)) continue;
    if ((call == kSysWrite && registers[REG_RDI] == STDERR_FILENO) || !Fails(call)) break;
    if (number == SYS_close) inject_system_call(number, registers[REG_RDI], 0, 0, 0, 0);
    const bool halves = number == SYS_read || number == SYS_write;
    if (!is_short || !halves || bytes < 2) {
      result = -error_number;
      errno = saved;
      return;
    }
    bytes /= 2;
    break;
  }
  result = inject_system_call(info->si_syscall, registers[REG_RDI], registers[REG_RSI], bytes,
                              registers[REG_R10], registers[REG_R8]);
  errno = saved;
}

// The kernel sends SIGSYS for kSystemCalls, but not to this library.
void CatchSystemCalls() {
  struct sigaction action = {};
  action.sa_sigaction = OnSystemCall;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(SIGSYS, &action, nullptr);
  const uint64_t end = reinterpret_cast<uint64_t>(inject_system_call_end);
  constexpr size_t kPointer = offsetof(seccomp_data, instruction_pointer);
  constexpr int kCount = sizeof(kSystemCalls) / sizeof(kSystemCalls[0]);
  sock_filter filter[kCount + 7] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kPointer),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(end), 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kPointer + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(end >> 32), kCount + 1, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (int i = 0; i < kCount; ++i) {
    filter[5 + i] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSystemCalls[i].number,
                             static_cast<uint8_t>(kCount - i), 0);
  }
  filter[5 + kCount] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[6 + kCount] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  sock_fprog program = {kCount + 7, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("inject: system calls cannot be caught");
  }
}

void ReadEnvironment() {
  const char* rank = getenv("FAULT_RANK");
  const char* own = getenv("WEFT_JOB_RANK");
  if (rank != nullptr && strcmp(rank, own == nullptr ? "launcher" : own) != 0) return;
  const char* call = getenv("FAULT_CALL");
  for (int i = 0; call != nullptr && i < kCalls; ++i) {
    if (strcmp(call, kNames[i]) == 0) failing = i;
  }
  if (const char* at = getenv("FAULT_AT")) fails_at = atol(at);
  if (const char* error = getenv("FAULT_ERROR")) {
    is_short = strcmp(error, "SHORT") == 0;
    error_number = is_short ? EIO : atoi(error);
  }
  if (const char* number = getenv("FAULT_SIGNAL")) signal_number = atoi(number);
  if (getenv("FAULT_SYSTEM") != nullptr) CatchSystemCalls();
  counts = true;
}

void WriteCounts() {
  if (!counts.exchange(false)) return;
  const char* path = getenv("FAULT_COUNTS");
  if (path == nullptr) return;
  char text[1024];
  int size = 0;
  for (int i = 0; i < kCalls; ++i) {
    size += snprintf(text + size, sizeof(text) - size, "%s %ld\n", kNames[i], calls[i].load());
  }
  const long file = syscall(SYS_open, path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, text, size);
  syscall(SYS_close, file);
}

int (*program_main)(int, char**, char**);

int CountingMain(int argc, char** argv, char** environment) {
  ReadEnvironment();
  const int status = program_main(argc, argv, environment);
  WriteCounts();
  return status;
}

// What `open` and `openat` are called with besides, if they make a file.
#define MODE_ARGUMENT(flags)               \
  va_list arguments;                       \
  va_start(arguments, flags);              \
  const int mode = va_arg(arguments, int); \
  va_end(arguments)

// `name` calls the C library's function of this name, which is found once.
#define NEXT(name) static auto* const next = Next<decltype(name)>(#name)

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  program_main = main;
  return Next<int(decltype(main), int, char**, void (*)(), void (*)(), void (*)(), void*)>(
      "__libc_start_main")(CountingMain, argc, argv, init, fini, rtld_fini, stack_end);
}

void exit(int status) {
  WriteCounts();
  Next<void(int)>("exit")(status);
  __builtin_unreachable();
}

void _exit(int status) {
  WriteCounts();
  for (;;) syscall(SYS_exit_group, status);
}

int accept(int socket, struct sockaddr* address, socklen_t* size) {
  NEXT(accept);
  return Fails(kAccept) ? -1 : next(socket, address, size);
}

int close(int file) {
  NEXT(close);
  if (!Fails(kClose)) return next(file);
  next(file);
  errno = error_number;
  return -1;
}

int connect(int socket, const struct sockaddr* address, socklen_t size) {
  NEXT(connect);
  return Fails(kConnect) ? -1 : next(socket, address, size);
}

int fsync(int file) {
  NEXT(fsync);
  return Fails(kFsync) ? -1 : next(file);
}

int ftruncate(int file, off_t size) noexcept {
  NEXT(ftruncate);
  return Fails(kFtruncate) ? -1 : next(file, size);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  NEXT(memfd_create);
  return Fails(kMemfdCreate) ? -1 : next(name, flags);
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  NEXT(mmap);
  return !IsOfOneDnn(__builtin_return_address(0)) && Fails(kMmap)
             ? MAP_FAILED
             : next(address, size, protection, flags, file, offset);
}

int open(const char* path, int flags, ...) {
  NEXT(open);
  MODE_ARGUMENT(flags);
  return Fails(kOpen) ? -1 : next(path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  NEXT(openat);
  MODE_ARGUMENT(flags);
  return Fails(kOpen) ? -1 : next(directory, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return Fails(kOpen) ? nullptr : next(path, mode);
}

int poll(struct pollfd* files, nfds_t count, int timeout) {
  NEXT(poll);
  return Fails(kPoll) ? -1 : next(files, count, timeout);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  NEXT(pwrite);
  if (!Fails(kPwrite)) return next(file, bytes, size, offset);
  return is_short && size > 1 ? next(file, bytes, size / 2, offset) : -1;
}

ssize_t read(int file, void* bytes, size_t size) {
  NEXT(read);
  if (!Fails(kRead)) return next(file, bytes, size);
  return is_short && size > 1 ? next(file, bytes, size / 2) : -1;
}

int rename(const char* from, const char* to) noexcept {
  NEXT(rename);
  return Fails(kRename) ? -1 : next(from, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
  NEXT(renameat2);
  return Fails(kRename) ? -1 : next(from_directory, from, to_directory, to, flags);
}

int socket(int domain, int type, int protocol) noexcept {
  NEXT(socket);
  return Fails(kSocket) ? -1 : next(domain, type, protocol);
}

int stat(const char* path, struct stat* result) noexcept {
  NEXT(stat);
  return Fails(kStat) ? -1 : next(path, result);
}

int fstat(int file, struct stat* result) noexcept {
  NEXT(fstat);
  return Fails(kStat) ? -1 : next(file, result);
}

int unlink(const char* path) noexcept {
  NEXT(unlink);
  return Fails(kUnlink) ? -1 : next(path);
}

ssize_t write(int file, const void* bytes, size_t size) {
  NEXT(write);
  if (file == STDERR_FILENO || !Fails(kWrite)) return next(file, bytes, size);
  return is_short && size > 1 ? next(file, bytes, size / 2) : -1;
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  NEXT(writev);
  if (file == STDERR_FILENO || !Fails(kWrite)) return next(file, parts, count);
  return is_short ? write(file, parts[0].iov_base, parts[0].iov_len) : -1;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  NEXT(pthread_create);
  return Fails(kThread) ? EAGAIN : next(thread, attributes, run, argument);
}

void* malloc(size_t size) noexcept { return Fails(kMalloc) ? nullptr : __libc_malloc(size); }

void* calloc(size_t count, size_t size) noexcept {
  return Fails(kMalloc) ? nullptr : __libc_calloc(count, size);
}

void* realloc(void* bytes, size_t size) noexcept {
  return Fails(kMalloc) ? nullptr : __libc_realloc(bytes, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return Fails(kMalloc) ? nullptr : __libc_memalign(alignment, size);
}

int posix_memalign(void** bytes, size_t alignment, size_t size) noexcept {
  if (Fails(kMalloc)) return ENOMEM;
  *bytes = __libc_memalign(alignment, size);
  return *bytes == nullptr ? ENOMEM : 0;
}

}  // extern "C"
