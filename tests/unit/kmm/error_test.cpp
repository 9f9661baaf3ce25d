// The exceptions: their texts, members and nesting, and what a failed assertion does.
#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kmm/core/data_type.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/panic.hpp"

namespace {

using kmm::DeviceId;
using kmm::Range;
using kmm::ResourceId;
using kmm::SourceLocation;

kmm::TaskFailure axpy_failure() {
    kmm::TaskFailure failure;
    failure.task = {"axpy", 3, 10, SourceLocation("/home/someone/main.cpp", 41, "main")};
    failure.chunk = {ResourceId(DeviceId(1)), {600}, {200}};
    failure.resource = ResourceId(DeviceId(1));
    failure.event = kmm::EventId(77);
    failure.cause = "division by zero";
    return failure;
}

TEST(Errors, all_of_them_are_runtime_errors_with_a_code_and_can_be_copied_without_throwing) {
    static_assert(std::is_base_of_v<std::runtime_error, kmm::Error>);
    static_assert(std::is_nothrow_copy_constructible_v<kmm::InvalidArgument>);
    static_assert(std::is_nothrow_copy_constructible_v<kmm::ConflictingAccess>);
    static_assert(std::is_nothrow_copy_constructible_v<kmm::TaskError>);
    static_assert(std::is_nothrow_copy_constructible_v<kmm::OutOfMemory>);
    static_assert(std::is_nothrow_copy_constructible_v<kmm::DeviceError>);
    static_assert(std::is_same_v<kmm::GPUException, kmm::DeviceError>);
    static_assert(std::is_base_of_v<kmm::DeviceError, kmm::BlasException>);
    static_assert(std::is_base_of_v<std::nested_exception, kmm::TaskError>);
    EXPECT_EQ(kmm::InvalidArgument("x").code(), kmm::ErrorCode::InvalidArgument);
    EXPECT_STREQ(kmm::to_string(kmm::ErrorCode::DeadlockError), "DL");
    EXPECT_THROW(throw kmm::Closed("closed"), std::runtime_error);
    EXPECT_EQ(kmm::IoError("disk", 28, "/tmp/x").path(), "/tmp/x");
    EXPECT_EQ(kmm::IoError("disk", 28, "/tmp/x").error_number(), 28);
    EXPECT_GT(kmm::InternalError("x").where().line(), 0);
}

SourceLocation here(SourceLocation where = SourceLocation::current()) { return where; }

TEST(Errors, a_source_location_as_default_argument_is_the_place_of_the_call) {
    const SourceLocation where = here();
    EXPECT_EQ(where.line(), __LINE__ - 1);
    EXPECT_EQ(kmm::to_string(where), "error_test.cpp:" + std::to_string(where.line()));
    EXPECT_FALSE(SourceLocation().is_known());
}

TEST(Errors, a_task_error_says_which_task_failed_where_and_why) {
    const kmm::TaskError error(axpy_failure());
    EXPECT_STREQ(error.what(), "task \"axpy\" chunk 3 of 10 (offset {600}, size {200}) on GPU 1 failed, submitted at "
                               "main.cpp:41: division by zero");
    EXPECT_EQ(error.task_name(), "axpy");
    EXPECT_EQ(error.chunk_index(), 3u);
    EXPECT_EQ(error.num_chunks(), 10u);
    EXPECT_EQ(error.chunk().offset.x, 600);
    EXPECT_EQ(error.resource(), ResourceId(DeviceId(1)));
    EXPECT_EQ(error.event(), kmm::EventId(77));
    EXPECT_EQ(error.where().line(), 41);
    EXPECT_TRUE(error.also_failed().empty());
}

TEST(Errors, a_failure_names_the_place_as_its_runtime_does) {
    kmm::TaskFailure failure = axpy_failure();
    failure.place = "virtual GPU 1";
    const std::string text = kmm::TaskError(failure).what();
    EXPECT_NE(text.find(" on virtual GPU 1 failed"), std::string::npos) << text;
}

TEST(Errors, a_cancelled_task_names_itself_too) {
    kmm::TaskFailure failure = axpy_failure();
    failure.needed_by =
        std::make_shared<kmm::TaskLabel>(kmm::TaskLabel{"sum", 0, 1, SourceLocation("main.cpp", 47, "main")});
    const std::string text = kmm::TaskError(failure).what();
    EXPECT_NE(text.find("needed by task \"sum\" chunk 0 of 1, submitted at main.cpp:47"), std::string::npos) << text;
}

TEST(Errors, the_original_exception_is_nested) {
    const auto cause = std::make_exception_ptr(std::logic_error("original"));
    const auto other = std::make_exception_ptr(std::runtime_error("other"));
    const std::exception_ptr pointer = kmm::TaskError::with_cause(axpy_failure(), cause, {other});
    try {
        std::rethrow_exception(pointer);
        FAIL();
    } catch (const kmm::TaskError& error) {
        EXPECT_EQ(error.also_failed().size(), 1u);
        EXPECT_EQ(error.code(), kmm::ErrorCode::TaskError);
        try {
            std::rethrow_if_nested(error);
            FAIL();
        } catch (const std::logic_error& nested) {
            EXPECT_STREQ(nested.what(), "original");
        }
    }
    EXPECT_THROW(std::rethrow_exception(kmm::TaskError::with_cause(axpy_failure(), nullptr)), kmm::TaskError);
}

TEST(Errors, a_conflict_names_array_both_sides_and_the_overlap) {
    const kmm::ConflictParty first{0, {0}, {5}, 0, ResourceId(DeviceId(0))};
    const kmm::ConflictParty second{1, {5}, {5}, 0, ResourceId(DeviceId(1))};
    const kmm::ConflictingAccess error("histogram", first, second, {Range<>(0, 256)});
    const std::string text = error.what();
    for (const char* part : {"histogram", "task 0", "task 1", "{0...256}", "GPU 1", "or use one chunk"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    EXPECT_EQ(error.second().chunk_index, 1u);
    EXPECT_EQ(error.overlap().size(), 1u);
    EXPECT_EQ(error.array_name(), "histogram");
    kmm::TaskLabel label;
    label.task_name = "count";
    label.num_chunks = 4;
    const kmm::ConflictingAccess named("histogram", first, second, {Range<>(0, 256)}, label);
    for (const char* part : {"task \"count\" chunk 0 of 4 (offset {0}", "task \"count\" chunk 1 of 4 (offset {5}"}) {
        EXPECT_NE(std::string(named.what()).find(part), std::string::npos) << part << " in " << named.what();
    }
}

TEST(Errors, an_uninitialized_read_and_out_of_memory_tell_their_numbers) {
    const kmm::UninitializedRead read("A", {Range<>(2, 4), Range<>(0, 9)});
    EXPECT_NE(std::string(read.what()).find("{2...4, 0...9}"), std::string::npos);
    EXPECT_EQ(read.region()[1], Range<>(0, 9));
    // Of an array that is not bound, fill and copy_from throw: the text must not send anybody there.
    for (const char* part : {"write it by a submit first", "rt.allocate", "rt.array"})
        EXPECT_NE(std::string(read.what()).find(part), std::string::npos) << read.what();
    const std::string scalar = kmm::UninitializedRead("total", {}).what();
    EXPECT_NE(scalar.find("the scalar \"total\", which"), std::string::npos) << scalar;
    EXPECT_EQ(scalar.find("{}"), std::string::npos) << scalar;
    const kmm::OutOfMemory memory(DeviceId(1), 100, 50, 120, "the report");
    EXPECT_EQ(memory.memory(), kmm::MemoryId(DeviceId(1)));
    EXPECT_EQ(memory.requested(), 100u);
    EXPECT_EQ(memory.in_use(), 50u);
    EXPECT_EQ(memory.limit(), 120u);
    EXPECT_EQ(memory.report(), "the report");
    const kmm::GPUDriverException native("boom", kmm::DriverKind::CUDA, 2, 700, "cudaErrorIllegalAddress", true);
    EXPECT_EQ(native.status, 700);
    EXPECT_EQ(native.device(), 2);
    EXPECT_TRUE(native.is_sticky());
    EXPECT_EQ(native.status_name(), "cudaErrorIllegalAddress");
    EXPECT_EQ(native.driver(), kmm::DriverKind::CUDA);
}

TEST(Row125_Panic, a_failed_assertion_prints_file_and_text_and_aborts) {
    EXPECT_DEATH(KMM_ASSERT(1 + 1 == 3), "error_test.cpp:.*1 \\+ 1 == 3");
    EXPECT_DEATH(KMM_PANIC("the text"), "the text");
    EXPECT_DEATH(KMM_TODO(), "not implemented");
    KMM_ASSERT(true);
    int evaluated = 0;
    KMM_DEBUG_ASSERT(++evaluated > 0);
#ifdef NDEBUG
    EXPECT_EQ(evaluated, 0);
#else
    EXPECT_EQ(evaluated, 1);
#endif
}

}  // namespace
