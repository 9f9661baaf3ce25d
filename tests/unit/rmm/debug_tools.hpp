// What tests of the debugging resources need: a list of findings, and defects to find.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rmm/mr/debug_resource_adaptor.hpp"
#include "stream_tools.hpp"

namespace rmm_test {

/// Takes findings instead of stderr.
class findings {
  public:
    rmm::mr::debug_options options(rmm::mr::debug_options base = {}) {
        base.report = [](rmm::mr::debug_finding const& f, void* self) { static_cast<findings*>(self)->add(f); };
        base.report_user = this;
        return base;
    }
    std::size_t size() const {
        std::lock_guard lock(mutex_);
        return found_.size();
    }
    rmm::mr::debug_finding operator[](std::size_t i) const {
        std::lock_guard lock(mutex_);
        return found_.at(i);
    }

  private:
    void add(rmm::mr::debug_finding const& f) {
        std::lock_guard lock(mutex_);
        found_.push_back(f);
    }
    mutable std::mutex mutex_;
    std::vector<rmm::mr::debug_finding> found_;
};

/// Queues a write of one byte at `offset` of a block.
inline void poke(void* block, std::ptrdiff_t offset, unsigned char value, rmm::cuda_stream_view stream = {}) {
    ASSERT_TRUE(driver().fill(static_cast<char*>(block) + offset, &value, 1, 1, {stream.value()}).ok());
}

/// The bytes at the beginning of a block, once the stream is done.
inline std::vector<unsigned char> peek(void const* block, std::size_t bytes, rmm::cuda_stream_view stream = {}) {
    std::vector<unsigned char> copied(bytes);
    EXPECT_TRUE(driver().copy(copied.data(), block, bytes, {stream.value()}).ok());
    EXPECT_TRUE(driver().synchronize_stream({stream.value()}).ok());
    return copied;
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// RMM_DEBUG for a scope.
class debug_variable {
  public:
    explicit debug_variable(const char* value) {
        if (const char* before = std::getenv("RMM_DEBUG")) before_ = before;
        setenv("RMM_DEBUG", value, 1);
    }
    ~debug_variable() {
        if (before_)
            setenv("RMM_DEBUG", before_->c_str(), 1);
        else
            unsetenv("RMM_DEBUG");
    }
    debug_variable(const debug_variable&) = delete;
    debug_variable& operator=(const debug_variable&) = delete;

  private:
    std::optional<std::string> before_;
};

}  // namespace rmm_test
