// A program of C++ that has the interpreter of Python inside and goes on after its end: the table of resources, and
// what Python has left behind.
#include <Python.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <exception>
#include <string>
#include <thread>

#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/rmm.h"

namespace {

using rmm::cuda_device_id;
using rmm::mr::device_memory_resource;

/// Devices, by what was done about their resources while there was an interpreter.
enum : int {
    set_by_cpp,
    set_by_c,
    set_by_python,
    shared_by_cpp,         ///< C++ has set what Python had set for `set_by_python`
    replaced_for_a_while,  ///< C++ has replaced Python's
    callback_replaced,
    failure_callback_replaced,
    held_by_c,  ///< C has taken Python's
    num_devices
};

/// What the program has from before the end of Python.
struct left_behind {
    rmm::mr::managed_memory_resource of_cpp;
    rmm_resource* of_c = nullptr;
    rmm_resource* held = nullptr;
    device_memory_resource* initial = nullptr;
    device_memory_resource* shared = nullptr;
    device_memory_resource* replaced[num_devices] = {};
    int status = -1;
} left;

const char* const first_part = R"(
from rmm import mr
from rmm._cuda.gpu import setDevice

def on(device, make):
    setDevice(device)
    mr.set_per_device_resource(device, make())
    setDevice(0)

def counted():
    return mr.StatisticsResourceAdaptor(mr.PoolMemoryResource(mr.CudaMemoryResource(), 1 << 20))

def callback():
    upstream = mr.CudaMemoryResource()
    return mr.CallbackMemoryResource(lambda n, s: upstream.allocate(n, s), lambda p, n, s: upstream.deallocate(p, n, s))

def failing():
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), 1 << 20)
    return mr.FailureCallbackResourceAdaptor(limited, lambda n: True)

on(2, mr.ManagedMemoryResource)
on(4, counted)
on(5, callback)
on(6, failing)
on(7, counted)
)";
const char* const last_part = "looked = [mr.get_per_device_resource(device) for device in range(8)]\n";

device_memory_resource* now(int device) { return rmm::mr::get_per_device_resource(cuda_device_id{device}); }
device_memory_resource* set(int device, device_memory_resource* resource) {
    return rmm::mr::set_per_device_resource(cuda_device_id{device}, resource);
}

class Python : public testing::Environment {
    void SetUp() override {
        left.initial = now(0);
        PyConfig config;
        PyConfig_InitPythonConfig(&config);
        ASSERT_FALSE(PyStatus_Exception(PyConfig_SetBytesString(&config, &config.program_name, KMM_TEST_PYTHON)));
        ASSERT_FALSE(PyStatus_Exception(Py_InitializeFromConfig(&config)));
        PyConfig_Clear(&config);
        ASSERT_EQ(PyRun_SimpleString(first_part), 0);
        set(set_by_cpp, &left.of_cpp);
        {
            const rmm::cuda_set_device_raii on_it{cuda_device_id{set_by_c}};
            ASSERT_EQ(rmm_open("pool", "initial=1MiB", nullptr, &left.of_c), RMM_OK) << rmm_last_error();
        }
        ASSERT_EQ(rmm_set_device_resource(set_by_c, left.of_c), RMM_OK) << rmm_last_error();
        left.shared = now(set_by_python);
        set(shared_by_cpp, left.shared);
        for (const int device : {replaced_for_a_while, callback_replaced, failure_callback_replaced})
            left.replaced[device] = set(device, &left.of_cpp);
        ASSERT_EQ(rmm_get_device_resource(held_by_c, &left.held), RMM_OK) << rmm_last_error();
        ASSERT_EQ(PyRun_SimpleString(last_part), 0);
        left.status = Py_FinalizeEx();
    }
    void TearDown() override {
        for (int device = 0; device < num_devices; ++device) set(device, nullptr);
        rmm_release(left.held);
        rmm_release(left.of_c);
    }
};
[[maybe_unused]] const auto* const python = testing::AddGlobalTestEnvironment(new Python);

void expect_memory_of(int device) {
    const rmm::cuda_set_device_raii on_it{cuda_device_id{device}};
    constexpr std::size_t bytes = 1000;
    void* const memory = now(device)->allocate(bytes, rmm::cuda_stream_view{});
    EXPECT_NE(memory, nullptr);
    now(device)->deallocate(memory, bytes, rmm::cuda_stream_view{});
}

std::string text_of_refusal(int device, std::size_t bytes) {
    const rmm::cuda_set_device_raii on_it{cuda_device_id{device}};
    try {
        (void)now(device)->allocate(bytes, rmm::cuda_stream_view{});
    } catch (const std::exception& e) {
        return e.what();
    }
    return {};
}

TEST(AfterPython, the_interpreter_has_ended_well) {
    EXPECT_EQ(left.status, 0);
    EXPECT_EQ(Py_IsInitialized(), 0);
}

TEST(AfterPython, what_cpp_has_set_is_still_there_though_python_has_looked_at_it) {
    EXPECT_EQ(now(set_by_cpp), &left.of_cpp);
    expect_memory_of(set_by_cpp);
}

TEST(AfterPython, what_c_has_set_is_still_its_own_though_python_has_looked_at_it) {
    rmm_resource* found = nullptr;
    ASSERT_EQ(rmm_get_device_resource(set_by_c, &found), RMM_OK);
    EXPECT_EQ(found, left.of_c);
    rmm_release(found);
    expect_memory_of(set_by_c);
}

TEST(AfterPython, what_python_has_set_is_the_initial_resource) {
    EXPECT_EQ(now(set_by_python), left.initial);
    EXPECT_EQ(now(held_by_c), left.initial);
    expect_memory_of(set_by_python);
}

TEST(AfterPython, what_cpp_has_set_of_python_s_for_another_device_still_gives_memory) {
    ASSERT_EQ(now(shared_by_cpp), left.shared);
    expect_memory_of(shared_by_cpp);
}

TEST(AfterPython, what_cpp_has_replaced_of_python_s_can_be_set_again) {
    ASSERT_EQ(set(replaced_for_a_while, left.replaced[replaced_for_a_while]), &left.of_cpp);
    expect_memory_of(replaced_for_a_while);
}

TEST(AfterPython, what_c_has_taken_of_python_s_can_be_set_again) {
    ASSERT_EQ(rmm_set_device_resource(held_by_c, left.held), RMM_OK) << rmm_last_error();
    EXPECT_NE(now(held_by_c), left.initial);
    expect_memory_of(held_by_c);
}

TEST(AfterPython, functions_of_python_are_not_called_and_the_error_says_why) {
    set(callback_replaced, left.replaced[callback_replaced]);
    EXPECT_NE(text_of_refusal(callback_replaced, 100).find("the interpreter of Python has ended"), std::string::npos);
    std::thread other([] { EXPECT_NE(text_of_refusal(callback_replaced, 100).find("has ended"), std::string::npos); });
    other.join();
    now(callback_replaced)->deallocate(&left, 100, rmm::cuda_stream_view{});  // not its own, and not looked at
    set(failure_callback_replaced, left.replaced[failure_callback_replaced]);
    expect_memory_of(failure_callback_replaced);
    EXPECT_NE(text_of_refusal(failure_callback_replaced, std::size_t{2} << 20).find("limit"), std::string::npos);
}

}  // namespace
