// Programs that must not compile, one for each CASE_; without any, this file does.
#include <string>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

struct NotTrivial {
    NotTrivial() {}
    NotTrivial(const NotTrivial&) {}
    int value = 0;
};

struct alignas(8192) TooAligned {
    char value[8192];
};

__global__ void two(int, float) {}
__global__ void mutable_view(kmm::GPUSubviewMut<float>) {}
__global__ void not_trivial(NotTrivial) {}
struct OfInts {
    OfInts(kmm::GPUView<int>) {}
};
struct OfFloats {
    OfFloats(kmm::GPUViewMut<float> v) : view(v) {}
    OfFloats(const OfFloats& that) : view(that.view) {}
    kmm::GPUViewMut<float> view;
};
__global__ void of_ints(OfInts) {}
__global__ void of_floats(OfFloats) {}

void program(kmm::RuntimeHandle rt, kmm::Array<float> a, const kmm::Array<float> c, kmm::Array<float, 2> m) {
    const auto nothing = kmm::Host([](auto&&...) {});
    rt.parallel_submit(10, nothing, _x, read(c), write(a), m[_y][_x]);
#if defined(CASE_no_launcher)
    rt.parallel_submit(10, 2, _x, a);
#elif defined(CASE_no_launcher_in_submit)
    rt.submit(kmm::DeviceId(0), _x, a);
#elif defined(CASE_no_domain)
    rt.parallel_submit(std::string("ten"), nothing, a);
#elif defined(CASE_bare_underscore)
    rt.parallel_submit(10, nothing, _);
#elif defined(CASE_mutable_view_for_a_read)
    rt.parallel_submit(10, kmm::Host([](kmm::SubviewMut<float>) {}), a[_x]);
#elif defined(CASE_mutable_kernel_view_for_a_read)
    rt.parallel_submit(10, kmm::GPUKernel(mutable_view, 1), a[_x]);
#elif defined(CASE_write_of_a_const_array)
    rt.parallel_submit(10, nothing, write(c[_x]));
#elif defined(CASE_overwrite_of_a_const_array)
    rt.parallel_submit(10, nothing, overwrite(c));
#elif defined(CASE_element_that_is_not_trivially_copyable)
    kmm::Array<NotTrivial> array;
#elif defined(CASE_element_of_too_large_alignment)
    kmm::Array<TooAligned> array;
#elif defined(CASE_const_element)
    kmm::Array<const int> array;
#elif defined(CASE_too_few_indices)
    rt.parallel_submit(10, nothing, m[_y]);
#elif defined(CASE_missing_index_in_read)
    rt.parallel_submit(10, nothing, read(m[_y]));
#elif defined(CASE_missing_index_in_write)
    rt.parallel_submit(10, nothing, write(m[_y]));
#elif defined(CASE_missing_index_in_overwrite)
    rt.parallel_submit(10, nothing, overwrite(m[_y]));
#elif defined(CASE_missing_index_in_reduce)
    rt.parallel_submit(10, nothing, reduce(kmm::Reduction::Sum, m[_y]));
#elif defined(CASE_missing_index_in_accumulate)
    rt.parallel_submit(10, nothing, accumulate(kmm::Reduction::Sum, privatize(_x), m[_y]));
#elif defined(CASE_missing_index_and_mapping)
    rt.parallel_submit(10, nothing, write(m[_y], _x));
#elif defined(CASE_product_of_axes)
    rt.parallel_submit(10, nothing, a[_x * _y]);
#elif defined(CASE_too_few_kernel_arguments)
    rt.parallel_submit(10, kmm::GPUKernel(two, 1), 1);
#elif defined(CASE_kernel_parameter_not_trivially_copyable)
    rt.parallel_submit(10, kmm::GPUKernel(not_trivial, 1), NotTrivial());
#elif defined(CASE_own_parameter_of_another_view)
    rt.parallel_submit(10, kmm::GPUKernel(of_ints, 1), a);
#elif defined(CASE_own_parameter_not_trivially_copyable)
    rt.parallel_submit(10, kmm::GPUKernel(of_floats, 1), write(a));
#elif defined(CASE_array_as_a_number)
    rt.parallel_submit(10, kmm::GPUKernel(two, 1), 1, a);
#elif defined(CASE_array_shape_of_another_rank)
    rt.array<float, 2>(kmm::Dim<1>(10));
#endif
}
