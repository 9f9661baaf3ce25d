// Names and sizes of scalar types, and types that are made when the program runs. Any thread.
#include "kmm/core/data_type.hpp"

#include <cxxabi.h>

#include <complex>
#include <cstdlib>
#include <forward_list>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/error.hpp"

namespace kmm {

namespace detail {

namespace {

struct ScalarEntry {
    const char* name;
    const char* c_name;
    DataTypeRecord record;
};

template<typename T>
constexpr ScalarEntry entry(ScalarType type, const char* name, const char* c_name,
                            ScalarType key_value = ScalarType::Invalid) {
    return {name, c_name, {sizeof(T), alignof(T), &typeid(T), type, key_value}};
}

// The library computes with these types by their bits; no vendor header is needed here.
struct Float16Bits {
    std::uint16_t bits;
};
struct BFloat16Bits {
    std::uint16_t bits;
};
struct Complex16Bits {
    Float16Bits real, imag;
};

/// Stands for all of them.
struct MadeType {};

/// Types that were made when the program ran; they are never forgotten.
class MadeTypes {
  public:
    const DataTypeRecord* find_or_add(const std::string& name, std::size_t size_bytes, std::size_t alignment) {
        const locks::Guard guard(mutex_);
        for (const Entry& e : entries_)
            if (e.name == name && e.record.size_bytes == size_bytes && e.record.alignment == alignment)
                return &e.record;
        entries_.push_front({name, {}});
        Entry& e = entries_.front();
        e.record = {size_bytes, alignment, &typeid(MadeType), ScalarType::Invalid, ScalarType::Invalid, e.name.c_str()};
        return &e.record;
    }

  private:
    struct Entry {
        std::string name;
        DataTypeRecord record;
    };
    locks::Mutex mutex_;
    std::forward_list<Entry> entries_ KMM_GUARDED_BY(mutex_);
};

const ScalarEntry& entry_of(ScalarType type) noexcept {
    static const ScalarEntry entries[] = {
        {"Invalid", "void", {0, 1, &typeid(void), ScalarType::Invalid, ScalarType::Invalid}},
        entry<std::int8_t>(ScalarType::Int8, "Int8", "int8_t"),
        entry<std::int16_t>(ScalarType::Int16, "Int16", "int16_t"),
        entry<std::int32_t>(ScalarType::Int32, "Int32", "int32_t"),
        entry<std::int64_t>(ScalarType::Int64, "Int64", "int64_t"),
        entry<std::uint8_t>(ScalarType::Uint8, "Uint8", "uint8_t"),
        entry<std::uint16_t>(ScalarType::Uint16, "Uint16", "uint16_t"),
        entry<std::uint32_t>(ScalarType::Uint32, "Uint32", "uint32_t"),
        entry<std::uint64_t>(ScalarType::Uint64, "Uint64", "uint64_t"),
        entry<Float16Bits>(ScalarType::Float16, "Float16", "half"),
        entry<float>(ScalarType::Float32, "Float32", "float"),
        entry<double>(ScalarType::Float64, "Float64", "double"),
        entry<BFloat16Bits>(ScalarType::BFloat16, "BFloat16", "bfloat16"),
        entry<Complex16Bits>(ScalarType::Complex16, "Complex16", "complex<half>"),
        entry<std::complex<float>>(ScalarType::Complex32, "Complex32", "complex<float>"),
        entry<std::complex<double>>(ScalarType::Complex64, "Complex64", "complex<double>"),
        entry<KeyValue<std::int64_t>>(ScalarType::KeyAndInt64, "KeyAndInt64", "KeyValue<int64_t>", ScalarType::Int64),
        entry<KeyValue<double>>(ScalarType::KeyAndFloat64, "KeyAndFloat64", "KeyValue<double>", ScalarType::Float64),
    };
    const auto index = static_cast<std::size_t>(type);
    return entries[index < sizeof(entries) / sizeof(entries[0]) ? index : 0];
}

std::string cpp_name(const std::type_info& type) {
    int status = 0;
    char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
    std::string name = status == 0 && text != nullptr ? text : type.name();
    std::free(text);
    return name;
}

}  // namespace

std::size_t scalar_size_in_bytes(ScalarType type) noexcept { return entry_of(type).record.size_bytes; }
std::size_t scalar_alignment(ScalarType type) noexcept { return entry_of(type).record.alignment; }
const char* scalar_name(ScalarType type) noexcept { return entry_of(type).name; }
const char* scalar_c_name(ScalarType type) noexcept { return entry_of(type).c_name; }
const DataTypeRecord& record_of_scalar(ScalarType type) noexcept { return entry_of(type).record; }

}  // namespace detail

DataType DataType::made(const std::string& name, std::size_t size_bytes, std::size_t alignment) {
    const bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
    if (name.empty() || size_bytes == 0 || !is_power || alignment > 4096 || size_bytes % alignment != 0)
        throw InvalidArgument(driver::format(
            "DataType::made(\"{}\", {}, {}): a type has a name, a size in bytes that is a multiple of its alignment, "
            "and an alignment that is a power of two up to 4096",
            name, size_bytes, alignment));
    return DataType(driver::never_destroyed<detail::MadeTypes>().find_or_add(name, size_bytes, alignment));
}

std::string DataType::name() const {
    if (record_->made_name != nullptr) return record_->made_name;
    if (as_scalar() != ScalarType::Invalid) return detail::scalar_name(as_scalar());
    return size_in_bytes() == 0 ? "Invalid" : detail::cpp_name(type_info());
}

std::string DataType::c_name() const {
    if (record_->made_name != nullptr) return record_->made_name;
    if (as_scalar() != ScalarType::Invalid) return detail::scalar_c_name(as_scalar());
    return size_in_bytes() == 0 ? "void" : detail::cpp_name(type_info());
}

}  // namespace kmm
