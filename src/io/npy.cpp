#include "io/npy.h"

#include <array>
#include <bit>
#include <cctype>
#include <optional>
#include <string_view>

#include "base/byte_reader.h"
#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxHeader = 65536;  // of a few hundred bytes in every file that NumPy writes

struct Name {
  std::string_view name;
  DType dtype;
};
constexpr std::array<Name, 12> kNames{{{"f4", DType::f32},
                                       {"f8", DType::f64},
                                       {"f2", DType::f16},
                                       {"i8", DType::i64},
                                       {"i4", DType::i32},
                                       {"i2", DType::i16},
                                       {"i1", DType::i8},
                                       {"u8", DType::u64},
                                       {"u4", DType::u32},
                                       {"u2", DType::u16},
                                       {"u1", DType::u8},
                                       {"b1", DType::boolean}}};

/// The header: a dictionary of Python with the keys descr, fortran_order and shape.
class Header {
 public:
  Header(std::string_view text, const std::string& file) : text_(text), file_(file) {
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      if (key == "descr" && !dtype_) {
        descr();
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = boolean();
      } else if (key == "shape" && !shape_) {
        shape();
      } else {
        corrupt("the key '" + key + "' is unknown or stands there twice");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (position_ != text_.size()) corrupt("text after the dictionary");
    if (!dtype_ || !fortran_ || !shape_) corrupt("descr, fortran_order or shape is missing");
  }
  DType dtype() const { return *dtype_; }
  bool fortran() const { return *fortran_; }
  const std::vector<std::int64_t>& dims() const { return *shape_; }

 private:
  [[noreturn]] void corrupt(const std::string& message) const {
    fail(ErrorCode::CorruptFile, "{}: not a valid .npy file: header at {}: {}", file_, position_, message);
  }
  void skip() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_])) != 0) ++position_;
  }
  bool accept(char c) {
    skip();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) corrupt(formatted("'{}' expected", c));
  }
  bool word(std::string_view w) {
    skip();
    if (!text_.substr(position_).starts_with(w)) return false;
    position_ += w.size();
    return true;
  }
  std::string string(std::string_view what) {
    skip();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote != '\'' && quote != '"') corrupt(formatted("{} expected", what));
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) corrupt("a string without end");
    const std::string value(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return value;
  }
  bool boolean() {
    if (word("True")) return true;
    if (!word("False")) corrupt("fortran_order is neither True nor False");
    return false;
  }
  void descr() {
    skip();
    if (position_ < text_.size() && text_[position_] == '[')
      fail(ErrorCode::Unsupported, "{}: records are not supported", file_);
    const std::string text = string("descr");
    for (const Name& n : kNames) {
      const bool byte = dtype_info(n.dtype).block_bytes == 1;
      if (text.size() == 3 && text.substr(1) == n.name && (text[0] == '<' || (byte && text[0] == '|')))
        dtype_ = n.dtype;
    }
    if (!dtype_)
      fail(ErrorCode::Unsupported, "{}: dtype '{}'; little-endian numbers and booleans are supported", file_, text);
  }
  void shape() {
    shape_.emplace();
    expect('(');
    while (!accept(')')) {
      skip();
      std::int64_t d = 0;
      const std::size_t start = position_;
      for (; position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0; ++position_) {
        if (d > (INT64_MAX - 9) / 10) corrupt("a dimension that does not fit 64 bits");
        d = d * 10 + (text_[position_] - '0');
      }
      if (position_ == start) corrupt("a dimension expected");
      if (shape_->size() >= static_cast<std::size_t>(Shape::kMaxRank))
        fail(ErrorCode::Unsupported, "{}: a rank above {}", file_, Shape::kMaxRank);
      shape_->push_back(d);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t position_ = 0;
  std::optional<DType> dtype_;
  std::optional<bool> fortran_;
  std::optional<std::vector<std::int64_t>> shape_;
};

/// Column-major elements in row-major order.
std::vector<std::byte> turned(std::span<const std::byte> data, const Shape& shape, std::size_t width) {
  std::vector<std::byte> result(data.size());
  std::array<std::int64_t, Shape::kMaxRank> strides{}, at{};
  std::int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  for (std::int64_t n = 0, from = 0; n < shape.elements(); ++n) {
    std::copy_n(data.begin() + from * static_cast<std::ptrdiff_t>(width), width,
                result.begin() + n * static_cast<std::ptrdiff_t>(width));
    for (int i = shape.rank(); i-- > 0;) {
      const auto k = static_cast<std::size_t>(i);
      from += strides[k];
      if (++at[k] < shape[i]) break;
      from -= strides[k] * shape[i];
      at[k] = 0;
    }
  }
  return result;
}

}  // namespace

Literal parse_npy(std::span<const std::byte> bytes, const std::string& name) {
  static_assert(std::endian::native == std::endian::little, "elements are read as they lie in memory");
  ByteReader reader(bytes, name);
  if (reader.text(kMagic.size(), "magic") != kMagic)
    reader.corrupt("not a .npy file: it does not start with \\x93NUMPY");
  const unsigned major = reader.u8("major version");
  reader.u8("minor version");
  if (major < 1 || major > 3) fail(ErrorCode::Unsupported, "{}: version {} of .npy; 1 to 3 are supported", name, major);
  const std::uint64_t length = major == 1 ? reader.u16("header length") : reader.u32("header length");
  if (length > kMaxHeader)
    fail(ErrorCode::CorruptFile, "{}: not a valid .npy file: header length {} is above {}", name, length, kMaxHeader);
  const Header header(reader.text(length, "header"), name);
  const std::size_t width = dtype_info(header.dtype()).block_bytes;
  Shape shape;
  std::uint64_t size = width;
  try {
    for (const std::int64_t d : header.dims()) size = checked_mul(size, static_cast<std::uint64_t>(d), "bytes");
    shape = Shape(std::span<const std::int64_t>(header.dims()));
    (void)shape.elements();
  } catch (const Error&) {
    fail(ErrorCode::CorruptFile, "{}: not a valid .npy file: the size of its shape overflows", name);
  }
  if (size != reader.remaining()) {
    fail(ErrorCode::CorruptFile, "{}: not a valid .npy file: {} needs {} bytes, {} are there", name,
         TensorType{header.dtype(), shape}.to_string(), size, reader.remaining());
  }
  const std::span<const std::byte> data = reader.take(size, "data");
  if (header.dtype() == DType::boolean) {
    for (const std::byte b : data) {
      if (static_cast<unsigned>(b) > 1)
        fail(ErrorCode::CorruptFile, "{}: not a valid .npy file: a boolean is {}", name, static_cast<unsigned>(b));
    }
  }
  return Literal({header.dtype(), shape},
                 header.fortran() ? turned(data, shape, width) : std::vector<std::byte>(data.begin(), data.end()));
}

Literal read_npy(const std::filesystem::path& path) { return parse_npy(read_file(path), path.string()); }

void write_npy(const std::filesystem::path& path, const Literal& value) {
  const TensorType& type = value.type();
  if (type.dtype == DType::bf16)
    return write_npy(path, Literal::from_doubles({DType::f32, type.shape}, value.to_doubles()));
  std::string_view name;
  for (const Name& n : kNames) {
    if (n.dtype == type.dtype) name = n.name;
  }
  if (name.empty())
    fail(ErrorCode::Unsupported, "{}: NumPy has no dtype for {}", path.string(), dtype_name(type.dtype));
  std::string dims;
  for (const std::int64_t d : type.shape) dims += formatted("{}, ", d);
  if (type.shape.rank() > 1) dims.resize(dims.size() - 2);
  if (type.shape.rank() == 1) dims.pop_back();
  std::string header = formatted("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 dtype_info(type.dtype).block_bytes == 1 ? '|' : '<', name, dims);
  const std::size_t prefix = kMagic.size() + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');  // the data starts at a multiple of 64
  header += '\n';
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  start += header;
  const std::array<std::span<const std::byte>, 2> parts = {std::as_bytes(std::span(start)), value.bytes()};
  write_file_atomic(path, parts);
}

}  // namespace aeshna
