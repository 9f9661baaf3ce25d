// Building and evaluating mapping expressions. Pure; runs on the submitting thread.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "driver/format.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/detail/index_chain.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/integer_fun.hpp"

namespace kmm {

namespace detail {

namespace {

using Index = std::int64_t;
__extension__ using Wide = __int128;

// Only results count, not what lies in between: |value * scale| < 2^126. Not inlined: apply() is called for each axis
// of each task.
[[gnu::cold, gnu::noinline]] Index apply_wide(Index value, const IndexStage& stage) {
    const Wide numerator = Wide(value) * stage.scale + stage.offset;
    Wide quotient = numerator / stage.divisor;
    if (numerator % stage.divisor < 0) quotient--;
    if (quotient < std::numeric_limits<Index>::min() || quotient > std::numeric_limits<Index>::max()) {
        throw std::overflow_error(driver::format("overflow in a mapping expression: ({} * {} + {}) / {} does not fit "
                                                 "64 bits; check the constants of the mapping",
                                                 value, stage.scale, stage.offset, stage.divisor));
    }
    return static_cast<Index>(quotient);
}

}  // namespace

bool IndexChain::has_division() const noexcept {
    return std::any_of(stages_, stages_ + count_, [](const IndexStage& stage) { return stage.divisor != 1; });
}

bool IndexChain::is_increasing() const noexcept {
    bool increasing = true;
    for (std::size_t i = 0; i < count_; i++) increasing = increasing == (stages_[i].scale >= 0);
    return increasing;
}

std::int64_t IndexChain::period(std::int64_t limit) const noexcept {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < count_; i++) {
        if (mul_overflows(product, stages_[i].divisor, product) || product > limit) return 0;
    }
    return product;
}

void IndexChain::push(const IndexStage& stage) {
    if (count_ == max_stages) {
        throw InvalidArgument(driver::format("mapping expression with too many nested operations: at most {} that "
                                             "cannot be combined; write a functor instead",
                                             max_stages));
    }
    stages_[count_++] = stage;
}

void IndexChain::add(std::int64_t value) {
    if (value == 0) return;
    if (count_ > 0) {
        // floor(a / d) + c = floor((a + c d) / d)
        IndexStage& last = stages_[count_ - 1];
        std::int64_t offset = 0;
        if (!mul_overflows(value, last.divisor, offset) && !add_overflows(last.offset, offset, offset)) {
            last.offset = offset;
            return;
        }
    }
    push({1, value, 1});
}

void IndexChain::multiply(std::int64_t value) {
    if (value == 1) return;
    if (count_ > 0 && stages_[count_ - 1].divisor == 1) {
        IndexStage& last = stages_[count_ - 1];
        std::int64_t scale = 0;
        std::int64_t offset = 0;
        if (!mul_overflows(last.scale, value, scale) && !mul_overflows(last.offset, value, offset)) {
            last.scale = scale;
            last.offset = offset;
            return;
        }
    }
    push({value, 0, 1});
}

void IndexChain::divide(std::int64_t divisor) {
    if (divisor == 0) throw InvalidArgument("mapping expression: division by 0");
    if (divisor < 0) {
        // floor(a / -d) = floor(-a / d)
        multiply(-1);
        if (divisor == std::numeric_limits<std::int64_t>::min()) {
            throw_overflow("overflow in a mapping expression: the divisor is too large");
        }
        divisor = -divisor;
    }
    if (divisor == 1) return;
    if (count_ > 0) {
        // floor(floor(a / d) / e) = floor(a / (d e))
        IndexStage& last = stages_[count_ - 1];
        std::int64_t product = 0;
        if (!mul_overflows(last.divisor, divisor, product)) {
            last.divisor = product;
            return;
        }
    }
    push({1, 0, divisor});
}

void IndexChain::append(const IndexChain& that) {
    for (std::size_t i = 0; i < that.count_; i++) {
        multiply(that.stages_[i].scale);
        add(that.stages_[i].offset);
        divide(that.stages_[i].divisor);
    }
}

std::int64_t IndexChain::apply(std::int64_t index) const {
    std::int64_t value = index;
    for (std::size_t i = 0; i < count_; i++) {
        const IndexStage& stage = stages_[i];
        std::int64_t numerator = 0;
        if (mul_overflows(value, stage.scale, numerator) || add_overflows(numerator, stage.offset, numerator)) {
            value = apply_wide(value, stage);
        } else {
            value = stage.divisor == 1 ? numerator : div_floor(numerator, stage.divisor);
        }
    }
    return value;
}

std::string IndexChain::text(std::string index) const {
    const auto in_brackets = [&] {
        if (index.find(' ') != std::string::npos) index = "(" + index + ")";
    };
    for (std::size_t i = 0; i < count_; i++) {
        const IndexStage& stage = stages_[i];
        if (stage.scale == 0) {
            index = driver::format("{}", stage.offset);
        } else {
            if (stage.scale != 1) {
                in_brackets();
                index = stage.scale == -1 ? "-" + index : driver::format("{} * {}", stage.scale, index);
            }
            const std::uint64_t distance = stage.offset < 0 ? 0u - static_cast<std::uint64_t>(stage.offset)
                                                            : static_cast<std::uint64_t>(stage.offset);
            if (distance != 0) index = driver::format("{} {} {}", index, stage.offset < 0 ? '-' : '+', distance);
        }
        if (stage.divisor != 1) {
            in_brackets();
            index = driver::format("{} / {}", index, stage.divisor);
        }
    }
    return index;
}

}  // namespace detail

namespace {

using Index = default_index_type;

// Longest stretch of indices that is looked at one by one: enough for every grid ratio in practice, and below 10 µs.
constexpr Index max_period = 4096;

[[noreturn]] void refuse_whole_axis() {
    throw InvalidArgument("mapping expression: arithmetic on _ (the whole axis): use an axis, an integer or a range");
}

}  // namespace

IndexMap::IndexMap(Axis axis, index_type scale, index_type offset, index_type length, index_type divisor)
    : kind_(Kind::axis), axis_(axis) {
    if (length < 1) {
        throw InvalidArgument(driver::format("mapping of length {}: use a length of at least 1", length));
    }
    if (length == 1) {
        post_.multiply(scale);
        post_.add(offset);
    } else {
        kind_ = Kind::interval;
        begin_.multiply(scale);
        begin_.add(offset);
        end_ = begin_;
        end_.add(length);
    }
    post_.divide(divisor);
}

std::string IndexMap::text() const {
    if (kind_ == Kind::all) return "_";
    if (kind_ == Kind::fixed) {
        return !is_empty_ && first_ == last_ ? driver::format("{}", first_)
                                             : driver::format("range({}, {})", first_, is_empty_ ? last_ : last_ + 1);
    }
    static constexpr const char* names[] = {"_x", "_y", "_z"};
    const std::string axis = is_constant_                ? "0"
                             : axis_.get() < DOMAIN_DIMS ? names[axis_.get()]
                                                         : driver::format("Axis({})", axis_.get());
    if (kind_ == Kind::axis) return post_.text(axis);
    return post_.text(driver::format("range({}, {})", begin_.text(axis), end_.text(axis)));
}

bool IndexMap::looks_closed() const noexcept {
    if (kind_ != Kind::interval || is_closed_ || is_constant_ || !post_.is_identity() || begin_.has_division() ||
        end_.has_division())
        return false;
    try {
        const Index begin = begin_.apply(0), end = end_.apply(0);
        const Index scale = checked_sub(begin_.apply(1), begin);
        if (checked_sub(end_.apply(1), end) != scale) return false;
        return scale == 1 ? begin < 0 && end == checked_neg(begin) : scale > 1 && checked_sub(end, begin) == scale - 1;
    } catch (const std::overflow_error&) {
        return false;
    }
}

IndexMap IndexMap::as_chains() const {
    IndexMap result = *this;
    if (kind_ != Kind::fixed) return result;
    result.is_empty_ = false;
    if (!is_empty_ && first_ == last_) {
        result.kind_ = Kind::axis;
        result.post_.add(first_);
        return result;
    }
    result.kind_ = Kind::interval;
    result.begin_.add(first_);
    result.end_.add(last_);
    if (!is_empty_) result.end_.add(1);
    return result;
}

// The first index of the interval as a function of the domain index.
detail::IndexChain IndexMap::first_index() const {
    if (kind_ == Kind::fixed) {
        detail::IndexChain first;
        first.add(first_);
        return first;
    }
    if (kind_ == Kind::axis) return post_;
    detail::IndexChain result = begin_;
    if (!post_.is_increasing()) {
        // A decreasing operation makes the last index the first.
        result = end_;
        result.add(-1);
    }
    result.append(post_);
    return result;
}

IndexMap IndexMap::range_along_axis(const IndexMap& begin, const IndexMap& end) {
    if (begin.kind_ == Kind::all || end.kind_ == Kind::all) {
        throw InvalidArgument("range with _ as a bound: use an axis expression or an integer");
    }
    if (!begin.is_constant_ && !end.is_constant_ && begin.axis_.get() != end.axis_.get()) {
        throw InvalidArgument(
            driver::format("range from axis {} to axis {}: both bounds must use the same axis, or one be constant",
                           begin.axis_.get(), end.axis_.get()));
    }
    IndexMap result = IndexMap(begin.is_constant_ ? end.axis_ : begin.axis_);
    result.kind_ = Kind::interval;
    result.begin_ = begin.first_index();
    result.end_ = end.first_index();
    result.is_constant_ = begin.is_constant_ && end.is_constant_;
    // A constant chain is a function of 0; along an axis it must not depend on the index.
    if (begin.is_constant_ != end.is_constant_) {
        detail::IndexChain& fixed = begin.is_constant_ ? result.begin_ : result.end_;
        const Index value = fixed.apply(0);
        fixed = detail::IndexChain();
        fixed.multiply(0);
        fixed.add(value);
    }
    if (!result.is_constant_ && result.is_empty_everywhere()) {
        throw InvalidArgument(
            "range that is empty for every index of its axis, such as range(_x, _x): ranges are half-open; use "
            "closed_range to include the end");
    }
    return result;
}

IndexMap IndexMap::closed_range(const IndexMap& begin, const IndexMap& last) {
    if (last.kind_ == Kind::all) return range(begin, last);
    IndexMap end = last.as_chains();
    if (end.kind_ == Kind::interval) {
        end.post_ = end.first_index();
        end.kind_ = Kind::axis;
    }
    IndexMap result = range(begin, end.offset_by(1));
    result.is_closed_ = true;
    return result;
}

IndexMap IndexMap::offset_by(index_type value) const {
    if (kind_ == Kind::all) refuse_whole_axis();
    IndexMap result = as_chains();
    result.post_.add(value);
    return result;
}

IndexMap IndexMap::scale_by(index_type value) const {
    if (kind_ == Kind::all) refuse_whole_axis();
    IndexMap result = as_chains();
    result.post_.multiply(value);
    return result;
}

IndexMap IndexMap::divide_by(index_type divisor) const {
    if (kind_ == Kind::all) refuse_whole_axis();
    IndexMap result = as_chains();
    result.post_.divide(divisor);
    return result;
}

IndexMap IndexMap::negate() const { return scale_by(-1); }

bool IndexMap::is_empty_at(index_type index) const { return end_.apply(index) <= begin_.apply(index); }

bool IndexMap::is_empty_over(index_type first, index_type last) const {
    for (Index i = first; i <= last; i++) {
        if (!is_empty_at(i)) return false;
    }
    return true;
}

// The length end - begin, over indices that lie one period apart, is a straight line: if it is the same one period on,
// it is periodic, and the range is empty for ever if it is within one period. Otherwise some index has a positive
// length.
bool IndexMap::is_empty_everywhere() const {
    const Index begin_period = begin_.period(max_period);
    const Index end_period = end_.period(max_period);
    const Index period = begin_period * end_period;
    if (period == 0 || period > max_period) return false;
    try {
        const Index length = checked_sub(end_.apply(0), begin_.apply(0));
        const Index later = checked_sub(end_.apply(period), begin_.apply(period));
        return length == later && is_empty_over(0, period - 1);
    } catch (const std::overflow_error&) {
        return false;  // evaluation says so for the chunks that there are
    }
}

// Every part of an expression is monotone, so bounds are reached at the first and the last index of the chunk. Only
// whether an interval is empty is not, once there is a division: then indices within one period of either end decide.
Range<default_index_type> IndexMap::apply_general(const DomainChunk& chunk) const {
    if (kind_ == Kind::all) return Range<Index>(0, std::numeric_limits<Index>::max());
    const Range<Index> indices = axis_range(chunk);
    const Index first = indices.begin;
    if (indices.is_empty()) {
        const Index at = kind_ == Kind::axis ? post_.apply(first) : post_.apply(begin_.apply(first));
        return Range<Index>(at, at);
    }
    const Index last = indices.end - 1;
    if (kind_ == Kind::axis) {
        const Index a = post_.apply(first);
        const Index b = first == last ? a : post_.apply(last);
        return Range<Index>(std::min(a, b), checked_add(std::max(a, b), Index(1)));
    }
    const Index begin = std::min(begin_.apply(first), begin_.apply(last));
    const Index end = std::max(end_.apply(first), end_.apply(last));
    bool empty = is_empty_at(first) && is_empty_at(last);
    if (empty && end > begin && (begin_.has_division() || end_.has_division())) {
        const Index begin_period = begin_.period(max_period);
        const Index period = begin_period * end_.period(max_period);
        if (period == 0 || period > max_period) {
            empty = false;  // too long to look: the hull of all bounds contains the region
        } else {
            const Index reach = std::min(period, last - first);
            empty = is_empty_over(first, first + reach) && is_empty_over(last - reach, last);
        }
    }
    if (empty || end <= begin) {
        const Index at = post_.apply(begin);
        return Range<Index>(at, at);
    }
    const Index a = post_.apply(begin);
    const Index b = post_.apply(end - 1);
    return Range<Index>(std::min(a, b), checked_add(std::max(a, b), Index(1)));
}

}  // namespace kmm
