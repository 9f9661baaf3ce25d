// Types of array elements at run time: which scalar a C++ type is, how large it is, what it is called. Plain values
// whose texts live as long as the program. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/key_value.hpp"
#include "kmm/utils/macros.hpp"

// Half-precision types of CUDA and HIP. Naming them costs nothing where they do not exist.
struct __half;
struct __nv_bfloat16;
struct __hip_bfloat16;

namespace kmm {

/// The types that the library computes with itself. `Complex32` has two components of 32 bits.
enum struct ScalarType : std::uint8_t {
    Invalid,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    BFloat16,
    Complex16,
    Complex32,
    Complex64,
    KeyAndInt64,
    KeyAndFloat64,
};

namespace detail {

// One constant for each type; equality of data types does not depend on its address.
struct DataTypeRecord {
    std::size_t size_bytes;
    std::size_t alignment;
    const std::type_info* type;
    ScalarType scalar;
    ScalarType key_value;             // V of a KeyValue<V>, else Invalid
    const char* made_name = nullptr;  // of a type that was made when the program ran
};

/// Size in bytes of a scalar, 0 for Invalid.
std::size_t scalar_size_in_bytes(ScalarType type) noexcept;
std::size_t scalar_alignment(ScalarType type) noexcept;
const char* scalar_name(ScalarType type) noexcept;    ///< "Float32"
const char* scalar_c_name(ScalarType type) noexcept;  ///< "float"
const DataTypeRecord& record_of_scalar(ScalarType type) noexcept;

template<typename T>
constexpr ScalarType integer_scalar() noexcept {
    if constexpr (std::is_integral<T>::value && !std::is_same<T, bool>::value) {
        constexpr bool is_signed = std::is_signed<T>::value;
        return sizeof(T) == 1   ? (is_signed ? ScalarType::Int8 : ScalarType::Uint8)
               : sizeof(T) == 2 ? (is_signed ? ScalarType::Int16 : ScalarType::Uint16)
               : sizeof(T) == 4 ? (is_signed ? ScalarType::Int32 : ScalarType::Uint32)
               : sizeof(T) == 8 ? (is_signed ? ScalarType::Int64 : ScalarType::Uint64)
                                : ScalarType::Invalid;
    } else {
        return ScalarType::Invalid;
    }
}

// std::complex and its kin, by their shape: <complex> would triple the cost of this header.
template<typename T, typename = void>
struct ComplexScalar {
    static constexpr ScalarType value = ScalarType::Invalid;
};
template<typename T>
struct ComplexScalar<T, std::void_t<typename T::value_type, decltype(std::declval<const T&>().real()),
                                    decltype(std::declval<const T&>().imag())>> {
    static constexpr bool is_pair =
        sizeof(T) == 2 * sizeof(typename T::value_type) && std::is_trivially_copyable<T>::value;
    static constexpr ScalarType value =
        is_pair && std::is_same<typename T::value_type, float>::value    ? ScalarType::Complex32
        : is_pair && std::is_same<typename T::value_type, double>::value ? ScalarType::Complex64
                                                                         : ScalarType::Invalid;
};

template<typename T>
constexpr ScalarType deduced_scalar() noexcept {
    if constexpr (std::is_class<T>::value) {
        return ComplexScalar<T>::value;
    } else {
        return integer_scalar<T>();
    }
}

}  // namespace detail

/// Which scalar `T` is: integers, and std::complex or what has its members and size, are known; others are declared by
/// KMM_DEFINE_SCALAR_TYPE.
template<typename T>
struct ScalarTypeOf {
    static constexpr ScalarType value = detail::deduced_scalar<T>();
};

}  // namespace kmm

/// At global scope: objects of type `T` are scalars of kind `S` (the name of a ScalarType, such as Complex32).
#define KMM_DEFINE_SCALAR_TYPE(S, T)                                     \
    template<>                                                           \
    struct kmm::ScalarTypeOf<T> {                                        \
        static constexpr ::kmm::ScalarType value = ::kmm::ScalarType::S; \
    };

KMM_DEFINE_SCALAR_TYPE(Float32, float)
KMM_DEFINE_SCALAR_TYPE(Float64, double)
KMM_DEFINE_SCALAR_TYPE(Float16, ::__half)
KMM_DEFINE_SCALAR_TYPE(BFloat16, ::__nv_bfloat16)
KMM_DEFINE_SCALAR_TYPE(BFloat16, ::__hip_bfloat16)
KMM_DEFINE_SCALAR_TYPE(KeyAndInt64, ::kmm::KeyValue<std::int64_t>)
KMM_DEFINE_SCALAR_TYPE(KeyAndFloat64, ::kmm::KeyValue<double>)

namespace kmm {

namespace detail {

template<typename T>
struct KeyValueScalar {
    static constexpr ScalarType value = ScalarType::Invalid;
};
template<typename V>
struct KeyValueScalar<KeyValue<V>> {
    static constexpr ScalarType value = ScalarTypeOf<V>::value;
};

template<typename T>
inline const DataTypeRecord data_type_record = {sizeof(T), alignof(T), &typeid(T), ScalarTypeOf<T>::value,
                                                KeyValueScalar<T>::value};

}  // namespace detail

/// The type of an element. Two are equal if they are the same C++ type or the same scalar.
class DataType {
  public:
    /// No type: size 0.
    DataType() noexcept : record_(&detail::record_of_scalar(ScalarType::Invalid)) {}
    DataType(ScalarType type) noexcept : record_(&detail::record_of_scalar(type)) {}

    template<typename T>
    static DataType of() noexcept {
        return DataType(&detail::data_type_record<std::remove_cv_t<T>>);
    }
    static DataType of(ScalarType type) noexcept { return DataType(type); }
    /// A type that no C++ type stands for, such as a record of a binding. The same name, size and alignment give the
    /// same type, for the whole process, which keeps it until it ends. Takes a lock. IA for an empty name, size 0, a
    /// size that is no multiple of the alignment, and one that is no power of two or above 4096.
    static DataType made(const std::string& name, std::size_t size_bytes, std::size_t alignment);

    /// "Float32" for a scalar, the name it was made with, else the C++ name.
    std::string name() const;
    /// "float" for a scalar, the name it was made with, else the C++ name.
    std::string c_name() const;
    std::size_t size_in_bytes() const noexcept { return record_->size_bytes; }
    std::size_t alignment() const noexcept { return record_->alignment; }
    /// Invalid if this is no scalar.
    ScalarType as_scalar() const noexcept { return record_->scalar; }
    /// For KeyValue<V>: which scalar V is. Else Invalid.
    ScalarType key_value_scalar() const noexcept { return record_->key_value; }
    /// The same for all types that were made.
    const std::type_info& type_info() const noexcept { return *record_->type; }

    friend bool operator==(const DataType& a, const DataType& b) noexcept {
        return a.record_ == b.record_ ||
               (a.record_->made_name == nullptr && b.record_->made_name == nullptr &&
                a.record_->scalar == b.record_->scalar &&
                (a.record_->scalar != ScalarType::Invalid || *a.record_->type == *b.record_->type));
    }
    friend bool operator!=(const DataType& a, const DataType& b) noexcept { return !(a == b); }

  private:
    explicit DataType(const detail::DataTypeRecord* record) noexcept : record_(record) {}

    const detail::DataTypeRecord* record_;
};

template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const ScalarType& type) {
    return stream << detail::scalar_name(type);
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const DataType& type) {
    return stream << type.name().c_str();
}

}  // namespace kmm

template<>
struct std::hash<kmm::DataType> {
    std::size_t operator()(const kmm::DataType& type) const noexcept {
        return type.as_scalar() != kmm::ScalarType::Invalid ? std::size_t(type.as_scalar())
                                                            : type.type_info().hash_code();
    }
};
