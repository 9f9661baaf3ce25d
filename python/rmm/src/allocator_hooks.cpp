// Functions of C for CuPy's CFunctionAllocator: no Python runs between CuPy and the resource.
//
// CuPy calls both with the GIL, which guards the table of blocks; it passes no stream, and no size to the free.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <exception>
#include <unordered_map>
#include <utility>

#include "binding.hpp"
#include "errors.hpp"

namespace rmm_python {
namespace {

struct block {
    std::size_t size_bytes = 0;
    rmm::cuda_stream_view stream;
    native_ptr from;
};
std::unordered_map<void*, block>& blocks() {
    static auto* const all = new std::unordered_map<void*, block>();  // arrays may outlive static objects
    return *all;
}

std::intptr_t (*current_stream_of_cupy)() = nullptr;

// What CuPy takes for "there is an exception of Python".
void* const failure = reinterpret_cast<void*>(std::intptr_t{-1});

void* allocate(void*, std::size_t bytes, int device) noexcept {
    if (bytes == 0) return nullptr;
    try {
        const rmm::cuda_set_device_raii on_it{rmm::cuda_device_id{device}};
        block made{bytes, rmm::cuda_stream_view{reinterpret_cast<cudaStream_t>(current_stream_of_cupy())},
                   current_resource().held};
        void* pointer = nullptr;
        {
            const without_gil released;
            pointer = made.from->object().allocate(bytes, made.stream);
        }
        resource& from = made.from->object();
        const rmm::cuda_stream_view stream = made.stream;
        try {
            blocks().insert_or_assign(pointer, std::move(made));
        } catch (...) {
            from.deallocate(pointer, bytes, stream);
            throw;
        }
        return pointer;
    } catch (...) {
        raise_in_python(std::current_exception());
        return failure;
    }
}

void deallocate(void*, void* pointer, int device) noexcept {
    if (pointer == nullptr || pointer == failure || is_exiting()) return;
    const auto found = blocks().find(pointer);
    if (found == blocks().end()) return;
    block gone = std::move(found->second);
    blocks().erase(found);
    const without_gil released;
    try {
        const rmm::cuda_set_device_raii on_it{rmm::cuda_device_id{device}};
        gone.from->object().deallocate(pointer, gone.size_bytes, gone.stream);
        gone.from.reset();
    } catch (...) {
        // A resource of the program threw in a free: the block counts as freed.
    }
}

std::pair<std::uintptr_t, std::uintptr_t> cupy_functions() {
    const nb::object exported = imported("cupy_backends.cuda.stream", "__pyx_capi__");
    const nb::object capsule = exported.attr("get")("get_current_stream_ptr");
    void* const function = capsule.is_none() ? nullptr : PyCapsule_GetPointer(capsule.ptr(), "intptr_t (void)");
    if (function == nullptr) {
        PyErr_Clear();
        throw nb::import_error("this CuPy does not let C functions ask for its current stream");
    }
    current_stream_of_cupy = reinterpret_cast<std::intptr_t (*)()>(function);
    return {reinterpret_cast<std::uintptr_t>(&allocate), reinterpret_cast<std::uintptr_t>(&deallocate)};
}

}  // namespace

void bind_allocator_hooks(nb::module_& core) {
    core.def("cupy_functions", &cupy_functions,
             "Addresses of two functions for CuPy's CFunctionAllocator, with parameter 0. ImportError for a CuPy that "
             "does not "
             "export its current stream to C.");
}

}  // namespace rmm_python
