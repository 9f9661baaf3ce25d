// A sequence of `+ - * /` with constants, applied to one index. A plain value; used by kmm/api/mapper.hpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kmm::detail {

/// v -> floor((v * scale + offset) / divisor), divisor > 0.
struct IndexStage {
    std::int64_t scale;
    std::int64_t offset;
    std::int64_t divisor;
};

/// Stages applied one after the other. Operations are folded into the last stage where that changes no result: a
/// multiplication behind a division begins a new one. Copying costs as much as there are stages. Folding, applying and
/// appending throw std::overflow_error where a result leaves 64 bits, and InvalidArgument beyond `max_stages`.
class IndexChain {
  public:
    /// At least eight nested operations are accepted; folding usually needs far fewer stages.
    static constexpr std::size_t max_stages = 8;

    IndexChain() noexcept : count_(0) {}
    IndexChain(const IndexChain& that) noexcept : count_(0) { *this = that; }
    IndexChain& operator=(const IndexChain& that) noexcept {
        count_ = that.count_;
        // Most chains have no stage, and for those a compiler makes a call out of the loop.
        if (count_ != 0) {
            for (std::size_t i = 0; i < count_; i++) {
                stages_[i] = that.stages_[i];
            }
        }
        return *this;
    }

    bool is_identity() const noexcept { return count_ == 0; }
    bool has_division() const noexcept;
    /// Whether a larger index gives a result that is not smaller; false if it gives one that is not larger.
    bool is_increasing() const noexcept;
    /// Product of all divisors, or 0 if it is above `limit`: results repeat, but for a constant step, with this period.
    std::int64_t period(std::int64_t limit) const noexcept;

    void add(std::int64_t value);
    void multiply(std::int64_t value);
    void divide(std::int64_t divisor);
    void append(const IndexChain& that);
    std::int64_t apply(std::int64_t index) const;
    /// Of the expression `index`: "(2 * _x + 1) / 3".
    std::string text(std::string index) const;

  private:
    void push(const IndexStage& stage);

    std::size_t count_;
    IndexStage stages_[max_stages];
};

}  // namespace kmm::detail
