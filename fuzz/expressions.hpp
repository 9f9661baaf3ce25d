// Random mapping expressions, each with its meaning at every single index.
//
// Owns: Expression, what the library makes of an expression beside a model of it. Must not know: how the library
// combines operations. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "elements.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/error.hpp"

namespace kmm_fuzz {

using kmm::Axis;
using kmm::DomainChunk;
using kmm::IndexMap;
__extension__ using Wide = __int128;

inline Wide floor_quotient(Wide a, Wide b) {
    const Wide q = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}

/// An arithmetic operation with a constant.
struct Operation {
    enum class Kind : std::uint8_t { add, subtract, subtract_from, multiply, divide, negate };
    Kind kind = Kind::add;
    std::int64_t c = 0;

    Wide operator()(Wide v) const {
        switch (kind) {
        case Kind::add: return v + c;
        case Kind::subtract: return v - c;
        case Kind::subtract_from: return c - v;
        case Kind::multiply: return v * c;
        case Kind::divide: return floor_quotient(v, c);
        default: return -v;
        }
    }
    template<typename E> IndexMap operator()(const E& e) const {
        switch (kind) {
        case Kind::add: return e + c;
        case Kind::subtract: return e - c;
        case Kind::subtract_from: return c - e;
        case Kind::multiply: return e * c;
        case Kind::divide: return e / c;
        default: return -e;
        }
    }
    static Operation random(Input& in, std::int64_t constant) {
        const auto kind = static_cast<Kind>(in.number(6));
        return {kind, kind == Kind::divide && constant == 0 ? 3 : constant};
    }
};

struct Interval {
    Wide begin = 0, end = 0;
    bool is_empty() const { return end <= begin; }
};

/// The indices of an array that belong to a chunk.
struct Region {
    bool is_known = true;  ///< false: the documentation does not say
    bool any = false;
    std::int64_t begin = 0, end = 0;
};

/// An interval for each index, whose elements go through operations one by one.
struct Expression {
    IndexMap map{Axis()};
    bool is_all = false;
    bool is_constant = false;
    bool is_single = false;  ///< one index for each, of an axis
    std::size_t axis = 0;
    std::function<std::optional<Interval>(Wide)> bounds;  ///< none: the documentation does not say
    std::vector<Operation> operations;
    std::int64_t divisors = 1;  ///< product of all of them

    /// The elements of the interval, each through the operations; the smallest and the largest result.
    Interval hull(const Interval& in) const {
        const auto of = [&](Wide v) {
            for (const Operation& o : operations) v = o(v);
            return v;
        };
        Interval result{of(in.begin), of(in.begin)};
        for (Wide v = in.begin; v < in.end; ++v) {
            const Wide r = of(v);
            result = {std::min(result.begin, r), std::max(result.end, r)};
            if (v - in.begin == 40 && in.end - v > 80) v = in.end - 40;  // of a long one, both ends
        }
        ++result.end;
        return result;
    }
    std::optional<Wide> first(Wide i) const {
        const auto in = bounds(i);
        if (!in || in->is_empty()) return std::nullopt;
        return hull(*in).begin;
    }

    Region region(const DomainChunk& chunk) const {
        Wide first = 0, end = 1;
        if (!is_constant && axis < kmm::DOMAIN_DIMS) {
            first = chunk.offset[axis];
            end = first + chunk.size[axis];
        }
        Region result;
        std::optional<Interval> all, elements;
        bool every = true;
        const auto unite = [](std::optional<Interval>& sum, const Interval& next) {
            sum = sum ? Interval{std::min(sum->begin, next.begin), std::max(sum->end, next.end)} : next;
        };
        for (Wide i = first; i < end; ++i) {
            const auto in = bounds(i);
            if (!in) return {false};
            unite(all, *in);
            every = every && !in->is_empty();
            if (!in->is_empty()) unite(elements, hull(*in));
        }
        if (!elements) {
            // With such divisors the library does not look at each index.
            result.is_known = !all || all->is_empty() || divisors <= 4096;
            return result;
        }
        // From the least begin to the greatest end, also of indices whose own intervals are empty.
        const Interval whole = hull(*all);
        require(whole.begin <= elements->begin && elements->end <= whole.end, "the model contradicts itself");
        require(!every || (whole.begin == elements->begin && whole.end == elements->end),
                "the model contradicts itself where no interval is empty");
        result.any = true;
        result.begin = static_cast<std::int64_t>(whole.begin);
        result.end = static_cast<std::int64_t>(whole.end);
        return result;
    }

    void apply(const Operation& o) {
        map = o(map);
        operations.push_back(o);
        if (o.kind == Operation::Kind::divide) divisors *= std::abs(o.c);
    }
};

inline Expression axis(std::size_t k) {
    Expression e;
    e.map = IndexMap(Axis(k));
    e.axis = k;
    e.is_single = true;
    e.bounds = [](Wide i) { return Interval{i, i + 1}; };
    return e;
}

inline Expression constant_range(std::int64_t begin, std::int64_t end, const IndexMap& map) {
    Expression e;
    e.map = map;
    e.is_constant = true;
    e.bounds = [=](Wide) { return Interval{begin, end}; };
    return e;
}

/// Whether a range along an axis is empty at every index; none if that is not known. Lengths that are one period apart
/// differ by a constant.
inline std::optional<bool> is_empty_everywhere(const Expression& range) {
    if (range.divisors > 256) return std::nullopt;
    const auto length = [&](Wide i) -> std::optional<Wide> {
        const auto in = range.bounds(i);
        return in ? std::optional<Wide>(in->end - in->begin) : std::nullopt;
    };
    const auto at_0 = length(0), later = length(range.divisors);
    if (!at_0 || !later) return std::nullopt;
    if (*at_0 != *later) return false;
    for (Wide i = 0; i < range.divisors; ++i) {
        const auto at = length(i);
        if (!at) return std::nullopt;
        if (*at > 0) return false;
    }
    return true;
}

/// A range between two expressions, `closed` or not; none if it is refused, as it must be.
inline std::optional<Expression> range_of(const Expression& b, const Expression& e, bool closed) {
    Expression r;
    r.is_constant = b.is_constant && e.is_constant;
    r.axis = b.is_constant ? e.axis : b.axis;
    r.divisors = b.divisors * e.divisors;
    // A bound that is constant is so along the other one's axis.
    r.bounds = [=](Wide i) -> std::optional<Interval> {
        const auto begin = b.first(i), end = e.first(i);
        if (!begin || !end) return std::nullopt;
        return Interval{*begin, *end + (closed ? 1 : 0)};
    };
    const bool is_mixed = b.is_all || e.is_all || (!b.is_constant && !e.is_constant && b.axis != e.axis);
    std::optional<bool> is_refused = true;
    if (!is_mixed) is_refused = r.is_constant ? std::optional<bool>(false) : is_empty_everywhere(r);
    try {
        r.map = closed ? closed_range(b.map, e.map) : range(b.map, e.map);
    } catch (const kmm::InvalidArgument&) {
        require(is_refused.value_or(true), "a range is refused that some index is not empty at");
        return std::nullopt;
    }
    require(!is_refused.value_or(false), "a range is accepted that mixes axes, or is always empty");
    const bool has_operations = !b.operations.empty() || !e.operations.empty();
    if (r.divisors == 1 && !r.is_constant && (has_operations || closed)) {
        const auto at_0 = r.bounds(0), at_1 = r.bounds(1);
        if (at_0 && at_1) {
            const Wide scale = at_1->begin - at_0->begin, length = at_0->end - at_0->begin;
            const bool looks_closed =
                !closed && at_1->end - at_0->end == scale &&
                (scale == 1 ? at_0->begin < 0 && at_0->end == -at_0->begin : scale > 1 && length == scale - 1);
            require(r.map.looks_closed() == looks_closed, "a range looks closed, or does not");
        }
    }
    return r;
}

/// At most `depth` ranges in each other.
inline Expression random_expression(Input& in, int depth = 2) {
    const auto small = [&] { return in.between(-6, 6); };
    Expression e = axis(in.one_in(12) ? 3 + in.number(5) : in.number(3));
    switch (depth > 0 ? in.number(12) : in.number(5)) {
    case 0:
    case 1:
    case 2: break;
    case 3: {
        const std::int64_t value = small();
        e = constant_range(value, value + 1, IndexMap::constant(value));
        break;
    }
    case 4: {
        const std::int64_t begin = small(), end = in.one_in(4) ? begin - in.between(0, 3) : begin + in.between(1, 9);
        e = begin == 0 ? constant_range(0, end, kmm::range(end)) : constant_range(begin, end, kmm::range(begin, end));
        break;
    }
    case 5: {
        const std::int64_t scale = small(), offset = small(), length = in.between(1, 7), divisor = small();
        try {
            e.map = IndexMap(Axis(e.axis), scale, offset, length, divisor);
        } catch (const kmm::InvalidArgument&) {
            require(divisor == 0, "a mapping in the long form is refused");
            break;
        }
        require(divisor != 0, "a division by 0 is accepted");
        e.is_single = false;
        e.bounds = [=](Wide i) { return Interval{scale * i + offset, scale * i + offset + length}; };
        e.operations.push_back({Operation::Kind::divide, divisor});
        e.divisors = std::abs(divisor);
        break;
    }
    case 6:
        e.map = IndexMap(kmm::All());
        e.is_all = true;
        try {
            (void)e.map.offset_by(1);
            fail("arithmetic on the whole axis is accepted");
        } catch (const kmm::InvalidArgument&) {
            return e;
        }
    default: {
        const Expression b = random_expression(in, depth - 1);
        Expression other = b;
        switch (in.number(3)) {
        case 0: other = random_expression(in, depth - 1); break;
        case 1:  // a halo, or nearly
            if (!b.is_all && b.operations.size() < 3) other.apply({Operation::Kind::add, in.between(-1, 3)});
            break;
        default:  // the same of another index: where it divides, the range is empty at some indices
            if (b.is_all || b.is_constant || !b.is_single || b.operations.size() > 2) break;
            other = axis(b.axis);
            other.apply({Operation::Kind::add, in.between(-3, 3)});
            for (const Operation& o : b.operations) other.apply(o);
        }
        if (const auto range = range_of(b, other, in.one_in(3))) e = *range;
    }
    }
    for (std::size_t n = in.number(3); n > 0; --n) e.apply(Operation::random(in, small()));
    return e;
}

/// An expression with any constants: where all that it means fits 64 bits it is exact, and where its result does not
/// fit it is refused.
inline void check_overflow(Input& in) {
    const auto any_number = [&]() -> std::int64_t {
        constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
        const std::int64_t n = in.eight_bytes() >> in.number(64);
        switch (in.number(4)) {
        case 0: return most - in.between(0, 3);
        case 1: return -most + in.between(0, 3);
        default: return std::max(n, -most);
        }
    };
    const auto fits = [](Wide v) {
        return std::numeric_limits<std::int64_t>::min() <= v && v <= std::numeric_limits<std::int64_t>::max();
    };
    DomainChunk chunk;
    chunk.offset[0] = any_number() / 2;
    chunk.size[0] = in.between(1, 9);
    Wide first = chunk.offset[0], last = first + chunk.size[0] - 1;
    bool all_fit = true;
    try {
        IndexMap map{Axis(0)};
        for (std::size_t n = 1 + in.number(8); n > 0; --n) {
            const Operation o = Operation::random(in, in.one_in(2) ? any_number() : in.between(-4, 4));
            constexpr Wide limit = Wide{1} << 62;
            if (first < -(limit << 60) || first > limit << 60 || last < -(limit << 60) || last > limit << 60) break;
            if (!fits(first) || !fits(last)) {
                // What lies in between may be too large for the model in the next step.
                if (o.kind == Operation::Kind::multiply) continue;
            }
            map = o(map);
            first = o(first), last = o(last);
            all_fit = all_fit && fits(first) && fits(last);
        }
        const kmm::Range<> region = map.apply(chunk);
        require(region.begin == std::min(first, last) && region.end == std::max(first, last) + 1,
                "an expression overflows without an error");
    } catch (const std::overflow_error&) {
        require(!all_fit || !fits(std::max(first, last) + 1), "an overflow that is none");
    }
}

}  // namespace kmm_fuzz
