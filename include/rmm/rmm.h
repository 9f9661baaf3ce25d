// The C interface of rmm: memory resources for bindings (Python, Julia, ..) and for the allocator hooks of
// other libraries.
//
// C11, and C++. Owns the names that begin with rmm_ and RMM_C_. Must not know: C++, CUDA's headers.
//
// What holds for every function
// - Threads: any function, from any thread, at any time. Texts and figures of errors are the calling thread's.
// - Errors: a function that can fail returns an `int` of `rmm_status`, 0 for success. A call that fails has changed
//   nothing, and written nothing but what its comment says; `rmm_last_error` gives the reason. No C++ exception
//   leaves the library, and it prints nothing except reports of wrong frees on stderr. A null pointer where one is
//   needed is RMM_INVALID_ARGUMENT.
// - Streams: CUDA's handles; 0 or 1 is the legacy default stream, 2 the calling thread's. Memory is ordered on its
//   stream as in C++: it may be used at once on that stream, and on others after synchronization. No function waits for
//   the device unless its resource does.
// - Devices: numbers of the driver. A resource belongs to the device that was current when it was opened; its calls
//   make that device current, and then the one of before again.
// - After fork, in a child whose parent had used a device: calls that allocate or ask fail with RMM_LOGIC_ERROR, calls
//   that free do nothing.
//
// What stays
// - Numbers of codes, names of kinds and options, signatures: none is changed or taken away, some are added. Options
//   are text, so that a new one changes no struct and no signature; a library that does not know one says so and names
//   those that it knows.
// - Structs that the library fills begin with their size, which the caller sets (`rmm_statistics s = {sizeof s};`). The
//   library writes no more than that, so that an old program runs with a new library; fields that an old library does
//   not know stay 0.
#ifndef RMM_RMM_H
#define RMM_RMM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RMM_C_API __attribute__((visibility("default")))
#else
#define RMM_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// Grows by one with every version that adds something.
#define RMM_C_VERSION 1

/// RMM_C_VERSION of the library that runs.
RMM_C_API int rmm_c_version(void);

struct CUstream_st;  ///< what cudaStream_t points to

enum rmm_status {
    RMM_OK = 0,
    RMM_OUT_OF_MEMORY = 1,     ///< memory, or a limit that was set, is exhausted: `rmm_last_shortage` has the figures
    RMM_BAD_ALLOC = 2,         ///< an allocation failed for another reason
    RMM_INVALID_ARGUMENT = 3,  ///< an argument of this interface: null, an unknown kind or option, a value that is none
    RMM_LOGIC_ERROR = 4,       ///< a precondition of the resource does not hold; no usable driver; after a fork
    RMM_DEVICE_ERROR = 5,      ///< the driver reported a failure
    RMM_ERROR = 6              ///< anything else
};

/// The error text of the last call that failed on this thread: UTF-8, the text of the C++ exception, cut after 4095
/// bytes; "" if none has failed. Valid until the next failure on this thread; calls that succeed do not change it.
RMM_C_API const char* rmm_last_error(void);

enum rmm_limit {
    RMM_LIMIT_UNKNOWN = 0,
    RMM_LIMIT_DEVICE = 1,  ///< the driver has no more memory of the device
    RMM_LIMIT_HOST = 2,    ///< the host has no more
    RMM_LIMIT_MAXIMUM = 3  ///< a limit that was set: of a pool, of a limiting resource
};

/// The figures behind RMM_OUT_OF_MEMORY; bytes, 0 (device: -1) where unknown.
typedef struct rmm_shortage {
    size_t struct_size;  ///< set by the caller
    int32_t device;
    int32_t limit;  ///< of enum rmm_limit: what stood in the way
    size_t requested_bytes;
    size_t device_free_bytes;
    size_t device_total_bytes;
    size_t pool_bytes;  ///< what the pool holds from its upstream
    size_t pool_in_use_bytes;
    size_t pool_free_bytes;
    size_t pool_largest_free_bytes;  ///< the largest request that the pool could still serve
    size_t pool_maximum_bytes;       ///< 0: none
    size_t pool_num_blocks;          ///< in use
    size_t other_pools_bytes;        ///< of the device, held by other resources of this process
    size_t elsewhere_bytes;          ///< of the device, in use and not known to this library
} rmm_shortage;

/// The figures of this thread's last failure, if that was RMM_OUT_OF_MEMORY; else RMM_INVALID_ARGUMENT, which leaves
/// `rmm_last_error` as it is.
RMM_C_API int rmm_last_shortage(rmm_shortage* out);

// ---- Resources

/// A reference-counted memory resource. It is closed with its last reference, and its memory goes back to where it came
/// from; all blocks that were allocated from it must have been freed by then.
typedef struct rmm_resource rmm_resource;

/// Opens a resource on the current device. `*out` is one reference, the caller's; null where it fails.
///
/// `options`: entries `key=value`, separated by blanks or commas, or null. A value that contains blanks, commas or
/// quotes stands in double quotes, with each double quote in it doubled. Bytes: "1048576", "4GiB", "1.5GB", "50%" (of
/// the device's memory, rounded down to a multiple of 256). Booleans: 0, 1, false, true. RMM_INVALID_ARGUMENT for a key
/// that is unknown, given twice, or missing though needed.
///
/// `upstream`: the resource that the memory comes from, of the same device; the new resource keeps a reference to it.
/// Kinds marked (p) take null for the kind "cuda"; (a) must have one; all others take none.
///
///   kind                    options
///   cuda                                                          each request goes to the driver
///   managed                                                       of memory that moves between host and device
///   pinned                                                        page-locked host memory
///   cuda_async              initial (0), maximum, release_threshold      the driver's stream-ordered pool
///   cuda_async_managed
///   system                                                        pageable host memory that the device can reach
///   sam_headroom            headroom (needed)                     system, on the device, of which so much stays free
///   pool             (p)    initial (0), maximum, release_threshold, name
///   arena            (p)    size (half of the free memory), name
///   fixed_size       (p)    block (1MiB), blocks (128), name
///   binning          (p)    min_exponent, max_exponent (both or none): bins of 2^min to 2^max bytes
///   vmm                     maximum, name                         a pool on virtual memory, which does not fragment
///                           ipc, fabric, rdma, multicast (0)      how other processes, devices and objects reach it
///   pinned_pool             initial (0), maximum, name            a pool of page-locked host memory
///   aligned          (a)    alignment (256), threshold (0)
///   limiting         (a)    limit (needed)
///   logging          (a)    file ($RMM_LOG_FILE), flush (0)
///   prefetch         (a)
///   statistics       (a)
///   thread_safe      (a)                                          a lock around an upstream that is not
///   tracking         (a)    stacks (0)
///
/// What each does is said in docs/choosing-a-memory-resource.md and in the header of its name.
RMM_C_API int rmm_open(const char* kind, const char* options, rmm_resource* upstream, rmm_resource** out);

/// A resource that the caller implements. `allocate` returns a code of rmm_status: RMM_OK with the memory in `*out`,
/// RMM_OUT_OF_MEMORY (reclaimers may then be asked to make room), or another. `deallocate` cannot fail. Both are called
/// by any thread that uses the resource, with no lock held, and must be thread-safe; `bytes` is never 0. They must not
/// throw or longjmp. `stream` 0 is the legacy default stream; a caller built with CUDA_API_PER_THREAD_DEFAULT_STREAM
/// passes the handle of its thread's stream instead.
typedef int (*rmm_allocate_function)(void* user, size_t bytes, struct CUstream_st* stream, void** out);
typedef void (*rmm_deallocate_function)(void* user, void* pointer, size_t bytes, struct CUstream_st* stream);

/// A resource of the current device over these functions. `on_close`, if not null, is called once with `user` when the
/// last reference has gone (not where this fails), on the thread that let it go.
RMM_C_API int rmm_open_callbacks(rmm_allocate_function allocate, rmm_deallocate_function deallocate,
                                 void (*on_close)(void* user), void* user, rmm_resource** out);

/// One more reference; its argument. Null is null. Constant time, no lock.
RMM_C_API rmm_resource* rmm_retain(rmm_resource* resource);
/// One reference less. Null is nothing. The last one closes the resource as its destructor does, and may take as long
/// as that.
RMM_C_API void rmm_release(rmm_resource* resource);

/// As given to `rmm_open`; "callbacks"; "external" for what C++ made. Lives as long as the resource.
RMM_C_API const char* rmm_kind(const rmm_resource* resource);
/// The device that the resource belongs to; -1 for null.
RMM_C_API int rmm_device(const rmm_resource* resource);
/// What it was opened over, as a new reference; null if nothing.
RMM_C_API rmm_resource* rmm_upstream(rmm_resource* resource);

/// Allocates at least `bytes` bytes for use on `stream`, and writes the address to `*out` (null where it fails). 0
/// bytes give null without a call of the resource. `alignment` is 0 or a power of two up to 256, to which all memory is
/// aligned; the kind "aligned" gives more.
RMM_C_API int rmm_allocate(rmm_resource* resource, size_t bytes, size_t alignment, struct CUstream_st* stream,
                           void** out);
/// Gives memory back, which may be used again on `stream` at once; `bytes` as it was asked for. A null `pointer` is
/// ignored. Fails only for a null resource, and where a resource of the program throws; the block then counts as freed.
RMM_C_API int rmm_deallocate(rmm_resource* resource, void* pointer, size_t bytes, struct CUstream_st* stream);

/// Gives unused memory back to where it came from, until `keep_bytes` are held; `*given_back`, if not null, gets the
/// number of bytes. A resource that keeps no memory itself asks its upstream; if none keeps any, `*given_back` is 0.
RMM_C_API int rmm_trim(rmm_resource* resource, size_t keep_bytes, size_t* given_back);
/// What errors and reports call the resource. RMM_INVALID_ARGUMENT for a kind that has no names.
RMM_C_API int rmm_set_name(rmm_resource* resource, const char* name);

enum rmm_known {
    RMM_KNOWS_POOL = 1,      ///< pools of any kind
    RMM_KNOWS_COUNTERS = 2,  ///< "statistics"
    RMM_KNOWS_ALLOCATED = 4  ///< "limiting", "tracking"
};

typedef struct rmm_statistics {
    size_t struct_size;  ///< set by the caller
    uint64_t known;      ///< bits of enum rmm_known: which groups are filled, the others are 0
    // RMM_KNOWS_POOL, at one instant
    size_t held_bytes;    ///< from upstream, used and free
    size_t in_use_bytes;  ///< rounded up to 256 for each block
    size_t free_bytes;
    size_t largest_free_bytes;  ///< the largest request that needs no growth
    size_t maximum_bytes;       ///< 0: none
    size_t num_blocks;
    size_t num_upstream_blocks;
    // RMM_KNOWS_COUNTERS, of the innermost section: now, at most, and all that there ever were
    int64_t bytes_now, bytes_peak, bytes_total;
    int64_t blocks_now, blocks_peak, blocks_total;
    // RMM_KNOWS_ALLOCATED
    size_t allocated_bytes;
    size_t limit_bytes;  ///< of "limiting"
} rmm_statistics;

/// What the resource itself knows, not its upstream. Constant time but for pools, which look at their free memory.
RMM_C_API int rmm_get_statistics(rmm_resource* resource, rmm_statistics* out);
/// Begins (push) and ends (pop) a section of the counters of a "statistics" resource; RMM_INVALID_ARGUMENT for any
/// other. `out`, which may be null, gets the counters of the outer section (push) or of the section that has ended
/// (pop). The outermost section cannot be ended: RMM_LOGIC_ERROR.
RMM_C_API int rmm_push_counters(rmm_resource* resource, rmm_statistics* out);
RMM_C_API int rmm_pop_counters(rmm_resource* resource, rmm_statistics* out);

// ---- Devices
// `device` is a number of the driver's, or -1 for the current one.

/// The resource that the device's allocations use unless they say otherwise, of C and of C++; a new reference.
RMM_C_API int rmm_get_device_resource(int device, rmm_resource** out);
/// Replaces it; null: the initial one, "cuda". The library keeps a reference until it is replaced again. A user of
/// memory from the previous resource needs its own reference; the hooks for PyTorch hold one for each block.
RMM_C_API int rmm_set_device_resource(int device, rmm_resource* resource);

/// Free and total bytes, as the driver counts. Either pointer may be null.
RMM_C_API int rmm_memory_info(int device, size_t* free_bytes, size_t* total_bytes);

/// A readable report of who in this process holds memory of the device. At most `*size` bytes are written to `text`,
/// with a terminating 0; `*size` becomes the size of the whole text with its 0. With `*size` 0, `text` may be null.
RMM_C_API int rmm_memory_report(int device, char* text, size_t* size);
/// A snapshot of all devices as JSON, written like `rmm_memory_report`; `with_blocks` not 0: with every block.
RMM_C_API int rmm_memory_snapshot(int with_blocks, char* text, size_t* size);

// ---- Hooks of other libraries
// Null means failure here, with the reason in `rmm_last_error`; 0 bytes are null too, and no failure.

/// With the signature that PyTorch's CUDAPluggableAllocator wants: allocates from the current resource of `device`, on
/// `stream`. A block goes back to the resource that it came from, which the library keeps until then. PyTorch may not
/// check for null: a program that comes close to the memory limit should use a resource with reclaimers, or one of
/// virtual memory.
RMM_C_API void* rmm_torch_allocate(ptrdiff_t bytes, int device, struct CUstream_st* stream);
RMM_C_API void rmm_torch_deallocate(void* pointer, ptrdiff_t bytes, int device, struct CUstream_st* stream);

/// With the signature that CuPy's CFunctionAllocator wants; `resource` is an rmm_resource to which CuPy's user
/// keeps a reference. CuPy passes no stream, and no size to the free: memory is allocated on the thread's hook
/// stream, the library remembers the size, and the memory is freed on the stream that it was allocated on. `device`
/// must be the resource's.
RMM_C_API void* rmm_cupy_allocate(void* resource, size_t bytes, int device);
RMM_C_API void rmm_cupy_deallocate(void* resource, void* pointer, int device);
/// The stream of hooks of this thread that name none; at first 0. Returns the one of before.
RMM_C_API struct CUstream_st* rmm_set_hook_stream(struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif

#endif
