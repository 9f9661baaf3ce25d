// EXPERIMENTAL. Arrays and submits whose types are known when the program runs: what bindings of other languages stand
// on. Element types are values, regions are numbers, kernels are handles with a table of what stands where in their
// parameters, functions are pointers with a user pointer. Programs in C++ use kmm/kmm.hpp, whose templates make the
// same calls; both may use the same arrays.
//
// Owns: a share of an array's state (Array). Must not know: the types of elements and arguments. C++17.
//
// Names and layouts may change in any version before 1.0. Errors are those of the typed API (kmm/error.hpp): IA
// InvalidArgument, CA ConflictingAccess, UR UninitializedRead, IR InvalidResource, OM OutOfMemory, TE TaskError,
// DL DeadlockError, DE DeviceError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "kmm/api/array.hpp"
#include "kmm/api/runtime_handle.hpp"
#include "kmm/core/data_type.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/detail/kernel_handle.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/error.hpp"

namespace kmm {
namespace dynamic {

/// Axes of an array at most.
inline constexpr std::size_t max_rank = detail::max_rank;

/// Indices [begin[k], end[k]) along each axis k of an array; axes beyond its rank are not looked at.
using Box = detail::Box;

/// The box from `begin` to `end`, for as many axes as both have. IA where their numbers differ or are above `max_rank`.
Box box(const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& end);

/// One chunk of a distribution: its home, and its place in the array.
using Chunk = detail::ChunkGeometry;

/// A handle of an array of any element type and rank: copies share its elements, also with `kmm::Array`. Concurrent
/// const calls on one object are fine.
class Array {
  public:
    /// Unbound: the first submit that overwrites all of it binds it, and its regions become the chunks. IA if there are
    /// more than `max_rank` sizes, one is negative, the type has no size, or the elements have more bytes than 63 bits
    /// count.
    Array(DataType type, const std::vector<std::int64_t>& shape);
    /// Bound, without content. `chunks` cover the array exactly; those without elements are left out. IA.
    Array(const RuntimeHandle& runtime, DataType type, const std::vector<std::int64_t>& shape,
          const std::vector<Chunk>& chunks);
    /// Of the same state.
    template<typename T, std::size_t N>
    Array(const kmm::Array<T, N>& array) : Array(array.record(), N, DataType::of<T>()) {}

    /// The same array with its types. IA if they are others.
    template<typename T, std::size_t N = 1>
    kmm::Array<T, N> as() const {
        check_is(DataType::of<T>(), N);
        Dim<N> shape;
        for (std::size_t k = 0; k + 1 <= N; k++) shape[k] = size(k);
        return kmm::Array<T, N>(ArrayInstance<N>(record_, shape, type_));
    }

    DataType type() const noexcept { return type_; }
    std::size_t rank() const noexcept { return rank_; }
    /// 1 beyond the rank.
    std::int64_t size(std::size_t axis) const noexcept { return axis < rank_ ? shape_[axis] : 1; }
    /// All of it.
    Box whole() const noexcept;
    /// Used in messages.
    std::string name() const { return detail::array_name(*record_); }
    Array& named(std::string name) {
        detail::array_set_name(*record_, std::move(name));
        return *this;
    }
    bool is_bound() const noexcept { return detail::array_is_bound(*record_); }
    /// In the order of the distribution. IA when unbound.
    std::vector<Chunk> chunks() const { return detail::array_chunks(*record_); }

    /// Copies a region to or from the program's memory, host or device. `strides`: for each axis, between neighbours,
    /// in elements; null: row-major and packed. They block, see all earlier submits, and come after what the thread has
    /// put on its legacy default stream. IA for a null pointer, an unbound array, a region outside; TE UR OM DL DE.
    /// What they leave when they throw: see kmm::Array.
    void copy_to(void* output, const Box& region, const std::int64_t* strides = nullptr) const;
    void copy_to(void* output) const { copy_to(output, whole()); }
    void copy_from(const void* input, const Box& region, const std::int64_t* strides = nullptr) const;
    void copy_from(const void* input) const { copy_from(input, whole()); }
    /// Every element becomes the one at `value`. IA when unbound or null.
    EventId fill(const void* value) const;
    /// Waits for all work on the array; nothing when unbound. TE DL.
    void synchronize() const { detail::array_synchronize(*record_); }

    /// For the library's own headers.
    const detail::ArrayRef& record() const noexcept { return record_; }

  private:
    Array(detail::ArrayRef record, std::size_t rank, DataType type);
    void check_is(DataType type, std::size_t rank) const;
    void check_region(const char* what, const void* memory, const Box& region) const;

    detail::ArrayRef record_;
    DataType type_;
    std::size_t rank_;
    const std::int64_t* shape_;  ///< the record's
};

/// How a task uses a region: `Overwrite` replaces all of it, and does not see what was there.
enum class AccessMode : std::uint8_t { Read, Write, Overwrite };

/// One region that a task uses. The submit keeps a share of the array.
struct Access {
    const Array* array = nullptr;
    AccessMode mode = AccessMode::Read;
    Box region;
};

/// The accesses of one task as an argument: read during the call, and not to be kept.
class Accesses {
  public:
    Accesses() = default;  // nvcc takes {} for a list of one Access where there is only the constructor below
    Accesses(std::initializer_list<Access> list) noexcept {
        data_ = list.begin();  // lives until the call has ended
        size_ = list.size();
    }
    Accesses(const std::vector<Access>& list) noexcept : data_(list.data()), size_(list.size()) {}
    Accesses(const Access* data, std::size_t size) noexcept : data_(data), size_(size) {}
    const Access* begin() const noexcept { return data_; }
    const Access* end() const noexcept { return data_ + size_; }
    std::size_t size() const noexcept { return size_; }
    const Access& operator[](std::size_t i) const noexcept { return data_[i]; }

  private:
    const Access* data_ = nullptr;
    std::size_t size_ = 0;
};

/// What a running function sees of its task. Accesses have the numbers that they had in the submit.
class RunningTask {
  public:
    explicit RunningTask(detail::TaskContext& context) noexcept : context_(context) {}
    /// Of the first element of the region: host memory in functions on the host, else that device's. Null for a region
    /// without elements.
    void* address(std::size_t access) const noexcept { return context_.addresses[access]; }
    /// For each axis of the array, between neighbours, in elements.
    const std::int64_t* strides(std::size_t access) const noexcept { return context_.layouts[access].strides; }
    const DomainChunk& chunk() const noexcept { return *context_.chunk; }
    /// A HostResource or DeviceResource: its stream is what a function on a device enqueues its work on.
    Resource& resource() const noexcept { return *context_.resource; }

  private:
    detail::TaskContext& context_;
};

/// A function and what it is given. The submit takes `user` over: `destroy` (if any) is called once with it, after the
/// function or instead of it, on any thread, also where the submit is refused or dropped.
struct Function {
    void (*run)(void* user, const RunningTask& task) = nullptr;  ///< may throw: the task fails with it
    void* user = nullptr;
    void (*destroy)(void* user) noexcept = nullptr;
};

/// One entry of the table of a kernel's parameters: the field to store at byte `offset`, known at submit or launch.
struct Parameter {
    enum class Field : std::uint8_t {
        Address,  ///< of the region's first element; 8 bytes; null for a region without elements
        Begin,    ///< of the region along `axis`
        End,
        Size,
        Stride,  ///< between neighbours along `axis`, in elements
    };
    Field field = Field::Address;
    std::uint8_t size_bytes = 8;  ///< 8, or 4 where the number fits; IA at submit where it does not
    std::uint16_t axis = 0;
    std::uint32_t access = 0;
    std::uint32_t offset = 0;
};

/// A launch. What is pointed to is read during the call.
struct Kernel {
    const void* handle = nullptr;  ///< of the runtime's driver, for the task's device: see `kernel_handle`
    std::uint32_t grid[3] = {1, 1, 1};
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t shared_bytes = 0;  ///< dynamic shared memory of a block
    /// Packed as the kernel takes them, each aligned as its type is; what the table names may hold anything.
    const void* parameters = nullptr;
    std::uint32_t parameter_bytes = 0;
    const Parameter* table = nullptr;
    std::uint32_t table_size = 0;
};

/// The handle of a `__global__` function of this file on a device. With CUDA it is a CUfunction, so that those of
/// modules that were compiled when the program runs do as well. DE.
template<typename... P>
const void* kernel_handle(void (*kernel)(P...), const RuntimeHandle& runtime, DeviceId device) {
    return detail::kernel_handle(kernel, runtime.info().device(device).device_ordinal());
}

/// Whether a submit from this thread would block now until earlier tasks are done (RuntimeConfig::max_pending_tasks).
/// Any thread; a moment later it may be otherwise.
bool would_wait(const RuntimeHandle& runtime) noexcept;

/// One submit: tasks of one kind that take their place in the order together, as those of one `parallel_submit`. Its
/// calls and its end may be on different threads, one after the other. A call that throws adds no task, and the others
/// stay; but OM drops the whole submit.
class Submit {
  public:
    /// `name` and `location` stand in messages; the name is copied, those of the location live as long as the program.
    explicit Submit(const RuntimeHandle& runtime, std::string name = {},
                    const SourceLocation& location = SourceLocation::current());
    /// Drops what was not committed.
    ~Submit();
    Submit(const Submit&) = delete;
    Submit& operator=(const Submit&) = delete;

    /// A task on a thread of the host pool. IA for a null function, an array that is null, a region outside its array,
    /// and where the submit has tasks of another kind; so below.
    void host_function(const DomainChunk& chunk, const Function& function, const Accesses& accesses);
    /// A task that enqueues work on its device, on a thread of the runtime with the device current. IA IR.
    void device_function(DeviceId device, const DomainChunk& chunk, const Function& function, const Accesses& accesses);
    /// A launch. IA also for a null handle, a table that names no access, axis or byte, a number that does not fit, and
    /// grid, block and shared memory beyond the device's limits, each by name; IR.
    void kernel(DeviceId device, const DomainChunk& chunk, const Kernel& kernel, const Accesses& accesses);

    /// Queues everything; blocks only where `would_wait`. Once. The event of all tasks; EventId() if there are none. IA
    /// CA UR OM as from the typed API; then nothing was queued, and no array bound.
    EventId commit();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace dynamic
}  // namespace kmm
